//! A layer around a Kubernetes client that counts its requests and keeps them below a rate.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

use super::metrics::Metrics;
use crate::request_info::RequestInfo;

/// The longest wait for a turn. A later request is not sent: its caller gives up after 20 s, and the answer takes time too. Without this limit,
/// abandoned requests would take the turns of later ones.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The error for a request when too many others wait for their turn.
#[derive(Debug, Error)]
#[error("not sent: {}s of requests wait for their turn already; raise --kube-api-qps if the API server can bear more", .0.as_secs())]
struct Crowded(Duration);

/// A limit of requests per second, with a burst. Watches count as one request.
#[derive(Clone, Debug)]
pub struct Rate {
    interval: Duration,
    burst: u32,
    /// When the next request is due at an even rate.
    next: Arc<Mutex<Option<Instant>>>,
}

impl Rate {
    /// Creates a limit. `per_second` 0 means no limit.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let interval = if per_second == 0 { Duration::ZERO } else { Duration::from_secs(1) / per_second };
        Self { interval, burst: burst.max(1), next: Arc::default() }
    }

    /// Takes a turn, and returns when the request may be sent.
    fn turn(&self, now: Instant) -> Result<Instant, Crowded> {
        let mut next = self.next.lock();
        let credit = self.interval.saturating_mul(self.burst - 1);
        let earliest = now.checked_sub(credit).unwrap_or(now);
        let due = next.map_or(earliest, |n| n.max(earliest));
        let wait = due.saturating_duration_since(now);
        if wait > LONGEST_WAIT {
            return Err(Crowded(wait));
        }
        *next = Some(due + self.interval);
        Ok(due.max(now))
    }
}

/// The layer that counts requests and limits their rate.
#[derive(Clone)]
pub struct Counted {
    pub metrics: Metrics,
    pub rate: Rate,
    /// The kind of cluster: `management` or `workload`.
    pub cluster: &'static str,
}

impl<S> Layer<S> for Counted {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CountedService { inner, settings: self.clone() }
    }
}

/// The service around the client's own service.
#[derive(Clone)]
pub struct CountedService<S> {
    inner: S,
    settings: Counted,
}

impl<S, B, A> Service<Request<B>> for CountedService<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (verb, resource) = RequestInfo::of(&request).map_or_else(|| ("get", "nonresource".to_owned()), |info| (info.verb, info.full_resource()));
        let settings = self.settings.clone();
        let turn = match settings.rate.turn(Instant::now()) {
            Ok(turn) => turn,
            Err(crowded) => return Box::pin(async { Err(crowded.into()) }),
        };
        let sent = self.inner.call(request);
        Box::pin(async move {
            sleep_until(turn).await;
            let start = Instant::now();
            let answer = sent.await;
            let code = answer.as_ref().ok().map(|a| a.status().as_u16());
            settings.metrics.api_request(settings.cluster, verb, &resource, code, start.elapsed());
            answer.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt;

    #[tokio::test]
    async fn requests_are_counted_by_verb_and_resource() {
        let metrics = Metrics::default();
        let counted = Counted { metrics: metrics.clone(), rate: Rate::new(0, 1), cluster: "management" };
        for uri in ["/apis/coordination.k8s.io/v1/namespaces/lab/leases/a", "/version"] {
            let server = tower::service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) });
            counted.layer(server).oneshot(Request::get(uri).body(()).unwrap()).await.unwrap();
        }
        for labels in ["verb=\"get\",resource=\"leases.coordination.k8s.io\",code=\"200\"", "verb=\"get\",resource=\"nonresource\",code=\"200\""] {
            assert!(metrics.text().contains(&format!("capw_api_requests_total{{cluster=\"management\",{labels}}} 1")), "{labels}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate_holds() {
        let rate = Rate::new(10, 3);
        let start = Instant::now();
        let turns: Vec<u128> = (0..6).map(|_| (rate.turn(start).unwrap() - start).as_millis()).collect();
        assert_eq!(turns, [0, 0, 0, 100, 200, 300]);
        tokio::time::advance(Duration::from_secs(60)).await;
        let later = Instant::now();
        let turns: Vec<u128> = (0..5).map(|_| (rate.turn(later).unwrap() - later).as_millis()).collect();
        assert_eq!(turns, [0, 0, 0, 100, 200]);
        assert_eq!(Rate::new(0, 1).turn(later).unwrap(), later);
    }

    /// Ten times the rate, for ten minutes; every caller gives up.
    #[tokio::test(start_paused = true)]
    async fn requests_that_come_faster_than_the_rate_never_wait_for_more_than_ten_seconds() {
        let (rate, mut sent) = (Rate::new(10, 1), 0);
        for _ in 0..600 {
            sent += (0..100).filter(|_| rate.turn(Instant::now()).is_ok()).count();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((6000..6200).contains(&sent), "{sent} at ten a second");
        tokio::time::advance(LONGEST_WAIT).await;
        let now = Instant::now();
        assert_eq!(rate.turn(now).unwrap(), now, "the backlog is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_turn_is_not_sent() {
        let rate = Rate::new(1, 1);
        while rate.turn(Instant::now()).is_ok() {}
        let counted = Counted { metrics: Metrics::default(), rate, cluster: "management" };
        let server = tower::service_fn(|_: Request<()>| async { panic!("it is sent") as Result<Response<()>, BoxError> });
        let start = Instant::now();
        let error = counted.layer(server).oneshot(Request::get("/version").body(()).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("--kube-api-qps"), "{error}");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
