//! A layer around a Kubernetes client: no answer is awaited for ever, and none may grow without end. Watches have their own limit of time
//! ([`super::watches`]); a single event of one may not grow without end either.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use thiserror::Error;
use tokio::time::{Sleep, sleep, timeout};
use tower::{BoxError, Layer, Service};

/// Until an answer begins. Requests have the same limit for the whole answer; those of watches and their listings have this one.
const BEGIN: Duration = super::REQUEST_LIMIT;
/// From then on, for the rest of an answer that is no watch.
const REST: Duration = Duration::from_secs(60);
/// An object: etcd stores no larger ones than 1.5 MiB by default, and no one sets that to more than some MiB.
const OBJECT: usize = 16 << 20;
/// A page of a list, or a list that is read whole.
const LIST: usize = 256 << 20;

/// Why an answer is not read to its end.
#[derive(Debug, Error)]
enum TooMuch {
    #[error("no answer within {}s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("the answer did not end within {}s", .0.as_secs())]
    Slow(Duration),
    #[error("the answer is larger than {} MiB", .0 >> 20)]
    Large(usize),
}

/// The layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits;

impl<S> Layer<S> for Limits {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited { inner }
    }
}

/// The service around the client's own.
#[derive(Clone)]
pub struct Limited<S> {
    inner: S,
}

impl<S, B, A> Service<Request<B>> for Limited<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<LimitedBody<A>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let kind = Answer::to(&request);
        let sent = self.inner.call(request);
        Box::pin(async move {
            let answer = timeout(BEGIN, sent).await.map_err(|_| TooMuch::NoAnswer(BEGIN))?.map_err(Into::<BoxError>::into)?;
            Ok(answer.map(|body| LimitedBody::new(body, kind)))
        })
    }
}

/// What an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Watch,
    List,
    Object,
}

impl Answer {
    fn to<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        if uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true")) {
            return Self::Watch;
        }
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => return Self::Object,
        };
        let is_list = matches!(rest, ["namespaces", _, _] | [_]) && request.method() == Method::GET;
        if is_list { Self::List } else { Self::Object }
    }

    fn most(self) -> usize {
        match self {
            Self::Watch | Self::Object => OBJECT,
            Self::List => LIST,
        }
    }
}

/// The body of an answer.
pub struct LimitedBody<B> {
    inner: Pin<Box<B>>,
    kind: Answer,
    /// Bytes so far; of a watch, those of the event that has begun.
    read: usize,
    end: Pin<Box<Sleep>>,
}

impl<B> LimitedBody<B> {
    fn new(body: B, kind: Answer) -> Self {
        Self { inner: Box::pin(body), kind, read: 0, end: Box::pin(sleep(REST)) }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.kind != Answer::Watch && self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(TooMuch::Slow(REST).into())));
        }
        let Some(frame) = ready!(self.inner.as_mut().poll_frame(cx)).transpose().map_err(Into::<BoxError>::into)? else { return Poll::Ready(None) };
        if let Some(data) = frame.data_ref() {
            let last_line = if self.kind == Answer::Watch { data.iter().rposition(|byte| *byte == b'\n') } else { None };
            self.read = match last_line {
                Some(at) => data.len() - at - 1,
                None => self.read + data.len(),
            };
            if self.read > self.kind.most() {
                return Poll::Ready(Some(Err(TooMuch::Large(self.kind.most()).into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::pending;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    const NODE: &str = "/api/v1/nodes/a";

    /// The same chunk again and again, or nothing at all.
    struct Chunks(Option<Bytes>, usize);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let Some(chunk) = self.0.clone() else { return Poll::Pending };
            if self.1 == 0 {
                return Poll::Ready(None);
            }
            self.1 -= 1;
            Poll::Ready(Some(Ok(Frame::data(chunk))))
        }
    }

    async fn read(uri: &str, chunk: Option<Bytes>, count: usize) -> Result<(), String> {
        let server = tower::service_fn(|_: Request<()>| {
            let body = Chunks(chunk.clone(), count);
            async { Ok::<_, BoxError>(Response::new(body)) }
        });
        let request = Request::get(uri).body(()).unwrap();
        let answer = Limits.layer(server).oneshot(request).await.map_err(|e| e.to_string())?;
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_begins_or_never_ends_is_given_up() {
        let silent = tower::service_fn(|_: Request<()>| pending::<Result<Response<Chunks>, BoxError>>());
        let error = Limits.layer(silent).oneshot(Request::get(NODE).body(()).unwrap()).await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), "no answer within 20s");
        assert_eq!(read(NODE, None, 0).await, Err("the answer did not end within 60s".into()));
        assert_eq!(read("/api/v1/nodes?limit=500", None, 0).await, Err("the answer did not end within 60s".into()));
        let watch = timeout(Duration::from_secs(3600), read("/api/v1/nodes?&watch=true", None, 0)).await;
        assert!(watch.is_err(), "a watch has its own limit");
    }

    #[tokio::test]
    async fn an_answer_that_grows_without_end_is_given_up() {
        let mib = Bytes::from(vec![b' '; 1 << 20]);
        let line = Bytes::from([vec![b' '; (1 << 20) - 1], vec![b'\n']].concat());
        for (uri, chunk, count, wrong) in [
            (NODE, &mib, 16, None),
            (NODE, &mib, 17, Some(16)),
            ("/api/v1/namespaces/lab/secrets?limit=500", &mib, 256, None),
            ("/api/v1/namespaces/lab/secrets?limit=500", &mib, 257, Some(256)),
            ("/api/v1/nodes?&watch=true", &line, 300, None),
            ("/api/v1/nodes?&watch=true", &mib, 17, Some(16)),
        ] {
            let expected = wrong.map_or(Ok(()), |most| Err(format!("the answer is larger than {most} MiB")));
            assert_eq!(read(uri, Some(chunk.clone()), count).await, expected, "{uri} {count}");
        }
    }

    #[test]
    fn lists_are_told_from_objects() {
        let group = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1";
        for (uri, expected) in [
            (format!("{group}/windowsmachines?limit=500"), Answer::List),
            (format!("{group}/namespaces/lab/windowsmachines"), Answer::List),
            (format!("{group}/namespaces/lab/windowsmachines/a"), Answer::Object),
            (format!("{group}/namespaces/lab/windowsmachines?&watch=true&timeoutSeconds=45"), Answer::Watch),
            ("/api/v1/namespaces/lab".into(), Answer::Object),
            ("/version".into(), Answer::Object),
            (group.into(), Answer::Object),
        ] {
            assert_eq!(Answer::to(&Request::get(&uri).body(()).unwrap()), expected, "{uri}");
        }
    }
}
