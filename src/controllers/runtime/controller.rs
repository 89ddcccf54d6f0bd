//! THE LOOP AROUND EVERY CONTROLLER: queue, back-off per object, limits, metrics, spans. Decides nothing about any kind.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::runtime::controller::{Action, Config, Error};
use kube::runtime::reflector::ObjectRef;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::watch::Watch;
use crate::cluster::workload::WorkloadError;
use crate::cluster::{ApiError, Kind, Retry};
use crate::hypervisor::DriverError;
use crate::telemetry::Metrics;

/// What a reconcile wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    look_again: Option<Duration>,
}

impl Outcome {
    /// Nothing, until something changes.
    pub fn done() -> Self {
        Self { look_again: None }
    }

    /// Another pass at once: one effect was made.
    pub fn now() -> Self {
        Self { look_again: Some(Duration::ZERO) }
    }

    /// Another pass as a decision wants it.
    pub fn of(look_again: Option<Duration>) -> Self {
        Self { look_again }
    }

    /// Another pass after that time, or earlier when something changes.
    pub fn look_again(after: Duration) -> Self {
        Self { look_again: Some(after) }
    }
}

/// Why a pass failed, by the layer that said so.
#[derive(Clone, Debug, Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What the user wrote cannot be carried out; a change will wake the object.
    #[error("{0}")]
    Invalid(String),
    /// A defect in CAPW: the pass panicked. The text is in the log.
    #[error("the pass ended by a defect in CAPW; its log has the details")]
    Defect,
}

impl ReconcileError {
    /// A label for metrics: few, fixed values.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Api(error) => error.label(),
            Self::Workload(error) => error.label(),
            Self::Driver(error) => error.label(),
            Self::Invalid(_) => "invalid_object",
            Self::Defect => "defect",
        }
    }

    /// As [`ApiError::is_refusal`].
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_refusal())
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Workload(error) => error.retry(),
            // Whether a call whose reply was lost has worked shows at the next look.
            Self::Driver(DriverError::Unknown(_)) => Retry::Soon,
            Self::Driver(_) | Self::Defect => Retry::Backoff,
            Self::Invalid(_) => Retry::OnChange,
        }
    }

    /// Not before that time, because the other side asked for it.
    fn not_before(&self) -> Duration {
        match self {
            Self::Api(ApiError::Throttled { after })
            | Self::Workload(WorkloadError::Api(ApiError::Throttled { after }) | WorkloadError::Management(ApiError::Throttled { after }))
            | Self::Driver(DriverError::Busy { after }) => *after,
            _ => Duration::ZERO,
        }
    }
}

/// After an error that only a change can cure, the object is still looked at so often: a change of something that nobody
/// watches may have cured it.
const ON_CHANGE: Duration = Duration::from_secs(300);

/// The delay after the `failures`-th failure in a row (1 is the first), with a jitter of ±20 % that depends on the object.
fn delay(error: &ReconcileError, failures: u32, object: &str) -> Duration {
    let (first, most) = match error.retry() {
        Retry::Soon => (Duration::from_millis(20), Duration::from_secs(5)),
        Retry::Backoff => (Duration::from_millis(500), Duration::from_secs(30)),
        Retry::OnChange => (ON_CHANGE, ON_CHANGE),
    };
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
    let mut hasher = DefaultHasher::new();
    (object, failures).hash(&mut hasher);
    let percent = 80 + u32::try_from(hasher.finish() % 41).unwrap_or(20);
    (doubled * percent / 100).max(error.not_before())
}

/// What this process wrote last, so that no pass works with a cache that does not have it yet. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<HashMap<Place, (String, u64)>>>);

/// Kind, namespace and name.
type Place = (String, String, String);

impl Written {
    /// Tell of every object that a write returned.
    pub fn note<K: Kind>(&self, object: &K) {
        if let Some((uid, version)) = version(object.meta()) {
            // Who takes the last finalizer away gets the object once more, in the version that it had: nothing comes after it.
            let gone = object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty();
            let version = if gone { u64::MAX } else { version };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place(object), (uid, version));
        }
    }

    /// Whether the cache has an older version of the object than the one that was written last.
    fn is_stale<K: Kind>(&self, cached: &K) -> bool {
        let Some((uid, seen)) = version(cached.meta()) else { return false };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(cached);
        match all.get(&place) {
            Some((of, written)) if *of == uid && seen < *written => true,
            Some(_) => {
                all.remove(&place);
                false
            }
            None => false,
        }
    }

    fn forget<K: Kind>(&self, namespace: &str, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(K::kind(&()).into_owned(), namespace.into(), name.into()));
    }
}

fn place<K: Kind>(object: &K) -> Place {
    (K::kind(&()).into_owned(), object.namespace().unwrap_or_default(), object.name_any())
}

/// Versions of one object are numbers that grow (KEP-5504); a server whose are not switches the guard off.
fn version(metadata: &ObjectMeta) -> Option<(String, u64)> {
    Some((metadata.uid.clone()?, metadata.resource_version.as_ref()?.parse().ok()?))
}

/// What every controller gets.
#[derive(Clone)]
pub struct Shell {
    /// Passes at the same time.
    pub concurrency: u16,
    pub metrics: Metrics,
    pub written: Written,
    pub stop: CancellationToken,
}

/// Trouble of one object: failures in a row, and what was logged last.
#[derive(Default)]
struct Trouble {
    failures: u32,
    text: String,
}

/// Shared by the passes of one controller.
struct Controller {
    name: &'static str,
    shell: Shell,
    trouble: Mutex<HashMap<(String, String), Trouble>>,
    /// Since when.
    waiting: Mutex<HashMap<(String, String), Instant>>,
}

impl Shell {
    /// Runs a controller until `stop`, then lets the passes that run finish. Objects are looked at when `watch` or one of
    /// `triggers` says so; never two passes at a time for one object. `gone` is told of objects that no longer exist.
    pub async fn run<K, F, R>(
        &self,
        name: &'static str,
        watch: &Watch<K>,
        triggers: Vec<BoxStream<'static, ObjectRef<K>>>,
        reconcile: F,
        gone: impl Fn(&str, &str) + Send + Sync,
    ) where
        K: Kind,
        F: Fn(Arc<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let controller = Arc::new(Controller { name, shell: self.clone(), trouble: Mutex::default(), waiting: Mutex::default() });
        let own = watch.subscribe().map(|object| ObjectRef::from_obj(&*object)).boxed();
        let counted = controller.clone();
        let queue = select_all(triggers.into_iter().chain([own]))
            .inspect(move |object| counted.queued(object))
            .take_until(self.stop.clone().cancelled_owned())
            .map(Ok::<_, std::convert::Infallible>);
        let reconcile = Arc::new(reconcile);
        let mut results = std::pin::pin!(kube::runtime::applier(
            move |object, controller: Arc<Controller>| controller.pass(object, reconcile.clone()).boxed(),
            |object, error, controller| controller.failed(&*object, error),
            controller.clone(),
            watch.store(),
            queue,
            Config::default().concurrency(self.concurrency),
        ));
        while let Some(result) = results.next().await {
            if let Err(Error::ObjectNotFound(object)) = result {
                let namespace = object.namespace.clone().unwrap_or_default();
                controller.forget::<K>(&namespace, &object.name);
                gone(&namespace, &object.name);
            }
        }
    }
}

impl Controller {
    fn queued<K: Kind>(&self, object: &ObjectRef<K>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry((object.namespace.clone().unwrap_or_default(), object.name.clone())).or_insert_with(Instant::now);
        self.shell.metrics.queue_depth(self.name, waiting.len());
    }

    fn taken(&self, key: &(String, String)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = waiting.remove(key) {
            self.shell.metrics.queue_depth(self.name, waiting.len());
            self.shell.metrics.taken_from_queue(self.name, since.elapsed());
        }
    }

    fn forget<K: Kind>(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.taken(&key);
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.shell.written.forget::<K>(namespace, name);
    }

    async fn pass<K, F, R>(self: Arc<Self>, object: Arc<K>, reconcile: Arc<F>) -> Result<Action, ReconcileError>
    where
        K: Kind,
        F: Fn(Arc<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        self.taken(&key);
        if self.shell.written.is_stale(&*object) {
            // The watch brings our own write within milliseconds and wakes the object; this is for a watch that is down.
            return Ok(Action::requeue(Duration::from_secs(1)));
        }
        let span = tracing::info_span!(parent: None, "pass", controller = self.name, namespace = key.0, name = key.1);
        self.shell.metrics.reconcile_started(self.name);
        let start = Instant::now();
        // A task of its own: a panic ends this pass and not the controller.
        let task = AbortOnDropHandle::new(tokio::spawn(async move { reconcile(object).await }.instrument(span.clone())));
        let result = task.await.unwrap_or(Err(ReconcileError::Defect));
        let label = match &result {
            Ok(Outcome { look_again: None }) => "done",
            Ok(_) => "look_again",
            Err(error) => error.label(),
        };
        self.shell.metrics.reconcile_finished(self.name, label, start.elapsed());
        let outcome = result?;
        if self.trouble.lock().unwrap_or_else(PoisonError::into_inner).remove(&key).is_some_and(|t| t.failures > 1) {
            span.in_scope(|| tracing::info!("the trouble is over"));
        }
        Ok(outcome.look_again.map_or_else(Action::await_change, Action::requeue))
    }

    fn failed<K: Kind>(&self, object: &K, error: &ReconcileError) -> Action {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        let mut all = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = all.entry(key.clone()).or_default();
        trouble.failures = trouble.failures.saturating_add(1);
        let after = delay(error, trouble.failures, &key.1);
        let text = error.to_string();
        // A first conflict is no news: somebody else wrote at the same time.
        let quiet = error.retry() == Retry::Soon && trouble.failures == 1;
        if trouble.text != text && !quiet {
            tracing::warn!(controller = self.name, namespace = key.0, name = key.1, error = error.label(), "{text}");
            trouble.text = text;
        }
        Action::requeue(after)
    }
}

#[cfg(test)]
mod tests;
