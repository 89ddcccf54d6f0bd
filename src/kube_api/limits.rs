//! A layer around a Kubernetes client that limits the time and the size of every answer. Watches have their own limit of time ([`super::watches`]);
//! the size of a single event is limited too.
//!
//! The answers of workload clusters that are read at the same time have a budget, and each cluster gets a part: none of them can take the memory of
//! this process. An answer returns its part when its body is dropped. kube-client decodes an answer in the same step in which it reads the end of
//! the body, so that beyond the budget at most one answer for each thread is decoded.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use thiserror::Error;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep, timeout};
use tower::{BoxError, Layer, Service};

use super::budget::{Budget, Crowded};
use crate::request_info::RequestInfo;

/// The limit for one request, so that no reconcile hangs and a stop stays bounded.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// The limit until an answer begins. Requests have the same limit for the whole answer; watches and their listings have this one.
const BEGIN: Duration = REQUEST_LIMIT;
/// The limit from then on, for the rest of an answer that is not a watch.
const REST: Duration = Duration::from_secs(60);
/// The most bytes of an object: etcd stores at most 1.5 MiB by default, and nobody raises that to more than some MiB.
const OBJECT: usize = 16 << 20;
/// The most bytes of a list of the management cluster, which is read whole. Workload clusters answer with pages, no larger than an object.
const LIST: usize = 256 << 20;
/// The budgets of all workload clusters at the same time, and of one.
const BUDGET: usize = 64 << 20;
const SHARE: usize = 24 << 20;
/// Further costs against the budgets. A server may send each byte alone, and an answer may consist mostly of `{`, `[` and `,`, each of which begins
/// a value that is larger in memory. An object in a list costs most: all its fields take their place, whether they are set or not.
const FRAME: usize = 128;
const VALUE: usize = 32;
const ELEMENT: usize = 256;

/// Why an answer is not read to its end.
#[derive(Debug, Error)]
pub(super) enum TooMuch {
    #[error("no answer within {}s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("the answer did not end within {}s", .0.as_secs())]
    Slow(Duration),
    #[error("the answer is larger than {} MiB", .0 >> 20)]
    Large(usize),
    #[error("the answer would take more than {} MiB of memory", .0 >> 20)]
    Costly(usize),
    #[error(transparent)]
    Crowded(#[from] Crowded),
}

/// The layer that limits answers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes of a list.
    list: usize,
    budgets: Vec<Budget>,
}

impl Limits {
    pub fn of_management() -> Self {
        Self { list: LIST, budgets: Vec::new() }
    }

    /// The budget of all workload clusters.
    pub fn of_workloads() -> Budget {
        Budget::new(BUDGET, "answers of all workload clusters that are read at the same time")
    }

    /// The limits of one workload cluster.
    pub fn of_workload(all: &Budget) -> Self {
        Self { list: OBJECT, budgets: vec![Budget::new(SHARE, "answers of this API server that are read at the same time"), all.clone()] }
    }

    fn most(&self, answer: Answer) -> usize {
        match answer {
            Answer::Watch | Answer::Object => OBJECT,
            Answer::List => self.list,
        }
    }
}

impl<S> Layer<S> for Limits {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited { inner, limits: self.clone() }
    }
}

/// The service around the client's own service.
#[derive(Clone)]
pub struct Limited<S> {
    inner: S,
    limits: Limits,
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
        let (kind, limits) = (Answer::to(&request), self.limits.clone());
        let sent = self.inner.call(request);
        Box::pin(async move {
            let answer = timeout(BEGIN, sent).await.map_err(|_| TooMuch::NoAnswer(BEGIN))?.map_err(Into::<BoxError>::into)?;
            Ok(answer.map(|body| LimitedBody::new(body, kind, limits)))
        })
    }
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Watch,
    List,
    Object,
}

impl Answer {
    fn to<B>(request: &Request<B>) -> Self {
        match RequestInfo::of(request).map(|info| info.verb) {
            Some("watch") => Self::Watch,
            Some("list") => Self::List,
            _ => Self::Object,
        }
    }
}

/// The body of an answer.
pub struct LimitedBody<B> {
    inner: Pin<Box<B>>,
    kind: Answer,
    /// The bytes so far; for a watch, of the event that has begun.
    read: usize,
    /// The last byte that is not white space.
    last: u8,
    /// The cost of the bytes so far, and the permits for it from each budget.
    cost: usize,
    held: Vec<OwnedSemaphorePermit>,
    limits: Limits,
    end: Pin<Box<Sleep>>,
}

impl<B> LimitedBody<B> {
    fn new(body: B, kind: Answer, limits: Limits) -> Self {
        Self { inner: Box::pin(body), kind, read: 0, last: 0, cost: 0, held: Vec::new(), limits, end: Box::pin(sleep(REST)) }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), TooMuch> {
        let last_line = if self.kind == Answer::Watch { data.iter().rposition(|byte| *byte == b'\n') } else { None };
        if last_line.is_some() {
            (self.read, self.cost) = (0, 0);
            self.held.clear();
        }
        let data = last_line.and_then(|at| data.get(at + 1..)).unwrap_or(data);
        let cost = data.len() + FRAME + if self.limits.budgets.is_empty() { 0 } else { self.cost_of_values(data) };
        (self.read, self.cost) = (self.read + data.len(), self.cost + cost);
        let most = self.limits.most(self.kind);
        if self.read > most {
            return Err(TooMuch::Large(most));
        }
        for (nth, budget) in self.limits.budgets.iter().enumerate() {
            if self.cost > budget.most() {
                return Err(TooMuch::Costly(budget.most()));
            }
            let more = budget.take(cost)?;
            match self.held.get_mut(nth) {
                Some(held) => held.merge(more),
                None => self.held.push(more),
            }
        }
        Ok(())
    }

    /// Returns the cost of the values besides their bytes.
    fn cost_of_values(&mut self, data: &[u8]) -> usize {
        let mut cost = 0;
        for byte in data.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            cost += match byte {
                b'{' if matches!(self.last, b'[' | b',') => VALUE + ELEMENT,
                b'{' | b'[' | b',' => VALUE,
                _ => 0,
            };
            self.last = *byte;
        }
        cost
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
            self.count(data)?;
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

    /// The same chunk repeated, or nothing at all.
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
        read_with(&Limits::of_management(), uri, chunk, count).await
    }

    async fn read_with(limits: &Limits, uri: &str, chunk: Option<Bytes>, count: usize) -> Result<(), String> {
        read_on(&mut begun(limits, uri, chunk, count).await?).await
    }

    async fn begun(limits: &Limits, uri: &str, chunk: Option<Bytes>, count: usize) -> Result<LimitedBody<Chunks>, String> {
        let server = tower::service_fn(|_: Request<()>| {
            let body = Chunks(chunk.clone(), count);
            async { Ok::<_, BoxError>(Response::new(body)) }
        });
        let request = Request::get(uri).body(()).unwrap();
        Ok(limits.layer(server).oneshot(request).await.map_err(|e| e.to_string())?.into_body())
    }

    async fn read_on(body: &mut LimitedBody<Chunks>) -> Result<(), String> {
        while let Some(frame) = body.frame().await {
            frame.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_begins_or_never_ends_is_given_up() {
        let silent = tower::service_fn(|_: Request<()>| pending::<Result<Response<Chunks>, BoxError>>());
        let error = Limits::of_management().layer(silent).oneshot(Request::get(NODE).body(()).unwrap()).await.map(drop).unwrap_err();
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
        assert_eq!(Limits::of_management().list, LIST);
        let limits = Limits { list: 20 << 20, ..Limits::of_management() };
        for (uri, chunk, count, wrong) in [
            (NODE, &mib, 16, None),
            (NODE, &mib, 17, Some(16)),
            ("/api/v1/namespaces/lab/secrets?limit=500", &mib, 20, None),
            ("/api/v1/namespaces/lab/secrets?limit=500", &mib, 21, Some(20)),
            ("/api/v1/nodes?&watch=true", &line, 40, None),
            ("/api/v1/nodes?&watch=true", &mib, 17, Some(16)),
        ] {
            let expected = wrong.map_or(Ok(()), |most| Err(format!("the answer is larger than {most} MiB")));
            assert_eq!(read_with(&limits, uri, Some(chunk.clone()), count).await, expected, "{uri} {count}");
        }
    }

    #[tokio::test]
    async fn a_workload_cluster_answers_with_pages_no_larger_than_an_object() {
        let (limits, mib) = (Limits::of_workload(&Limits::of_workloads()), Bytes::from(vec![b' '; 1 << 20]));
        assert_eq!(read_with(&limits, "/api/v1/pods?limit=250", Some(mib.clone()), 16).await, Ok(()));
        assert_eq!(read_with(&limits, "/api/v1/pods?limit=250", Some(mib), 17).await, Err("the answer is larger than 16 MiB".into()));
    }

    /// Each cluster has one answer that has not ended.
    #[tokio::test]
    async fn answers_of_all_workload_clusters_have_one_budget_and_give_it_back() {
        let (all, mib) = (Limits::of_workloads(), Bytes::from(vec![b' '; 1 << 20]));
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut body = begun(&Limits::of_workload(&all), NODE, Some(mib.clone()), 15).await.unwrap();
            read_on(&mut body).await.unwrap();
            held.push(body);
        }
        let one_more = async || read_with(&Limits::of_workload(&all), NODE, Some(mib.clone()), 15).await;
        let crowded = "answers of all workload clusters that are read at the same time would take more than 64 MiB of memory";
        assert_eq!(one_more().await, Err(crowded.into()));
        held.pop();
        assert_eq!(one_more().await, Ok(()));
        drop(held);
        assert!(all.is_untouched());
    }

    #[tokio::test]
    async fn no_workload_cluster_takes_the_share_of_another() {
        let (all, mib) = (Limits::of_workloads(), Bytes::from(vec![b' '; 1 << 20]));
        let (one, other) = (Limits::of_workload(&all), Limits::of_workload(&all));
        let mut held = begun(&one, NODE, Some(mib.clone()), 15).await.unwrap();
        read_on(&mut held).await.unwrap();
        let crowded = "answers of this API server that are read at the same time would take more than 24 MiB of memory";
        assert_eq!(read_with(&one, NODE, Some(mib.clone()), 15).await, Err(crowded.into()));
        assert_eq!(read_with(&other, NODE, Some(mib.clone()), 15).await, Ok(()));
        drop(held);
        assert_eq!(read_with(&one, NODE, Some(mib.clone()), 15).await, Ok(()));
    }

    #[tokio::test]
    async fn an_answer_that_costs_more_than_its_bytes_is_given_up() {
        let limits = Limits::of_workload(&Limits::of_workloads());
        for (uri, chunk, count, passes) in [
            (NODE, " ".to_owned(), 1 << 18, false),
            (NODE, "{},".repeat(1 << 16), 16, false),
            (NODE, r#"{"name":"DNS","value":"10.0.0.10"},"#.repeat(1 << 10), 50, true),
            (NODE, r#"{"name":"DNS","value":"10.0.0.10"}, "#.repeat(1 << 10), 80, false),
            // Objects in objects, as in the list of managed fields.
            (NODE, r#""f:name":{},"#.repeat(1 << 10), 150, true),
            ("/api/v1/nodes?&watch=true", format!("{{\"object\":{}}}\n", "[]".repeat(1 << 10)), 10_000, true),
        ] {
            let expected = if passes { Ok(()) } else { Err("the answer would take more than 24 MiB of memory".to_owned()) };
            assert_eq!(read_with(&limits, uri, Some(Bytes::from(chunk.clone())), count).await, expected, "{uri} {}", &chunk[..chunk.len().min(40)]);
        }
    }
}
