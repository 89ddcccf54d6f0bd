//! The loop around every controller: queue, back-off per object, limits, metrics, spans. It is independent of the kind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{FutureExt, StreamExt};
use kube::runtime::controller::{Action, Config, Error};
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::backoff::{ON_CHANGE, delay};
use super::outcome::{Outcome, ReconcileError};
use super::unreadable::Unreadable;
use super::watch::{Selection, Watch};
use super::written::Written;
use crate::api::name::ObjectKey;
use crate::kube_api::cluster::Kind;
use crate::kube_api::error::Retry;
use crate::telemetry::{Metrics, Passes};

/// The settings and shared parts of every controller's loop.
#[derive(Clone)]
pub struct ControllerLoop {
    /// The most passes that run at the same time.
    pub concurrency: u16,
    /// The watch filter: objects that it does not select get no pass.
    pub selection: Selection,
    pub metrics: Metrics,
    pub written: Written,
    pub passes: Passes,
    pub stop: CancellationToken,
}

/// The failures in a row of one object, and the text that was logged last.
#[derive(Default)]
struct Trouble {
    failures: u32,
    text: String,
}

/// The state that the passes of one controller share.
struct Controller {
    name: &'static str,
    settings: ControllerLoop,
    unreadable: Unreadable,
    trouble: Mutex<HashMap<ObjectKey, Trouble>>,
    /// The objects that wait for a pass, and since when.
    waiting: Mutex<HashMap<ObjectKey, Instant>>,
}

impl ControllerLoop {
    /// Returns the settings for a kind whose controller checks the watch filter itself.
    pub fn unfiltered(&self) -> Self {
        Self { selection: self.selection.unfiltered(), ..self.clone() }
    }

    /// Runs a controller until `stop`, then waits for the running passes. An object gets a pass when `watch` or one of `triggers` names it; an
    /// object never has two passes at a time.
    pub async fn run<K, F, R>(&self, name: &'static str, watch: &Watch<K>, triggers: Vec<BoxStream<'static, ObjectRef<K>>>, reconcile: F)
    where
        K: Kind,
        F: Fn(Arc<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let controller = Arc::new(Controller {
            name,
            settings: self.clone(),
            unreadable: watch.unreadable(),
            trouble: Mutex::default(),
            waiting: Mutex::default(),
        });
        let changes = watch.subscribe().map(|object| ObjectRef::from_obj(&*object)).boxed();
        let counted = controller.clone();
        let queue = select_all(triggers.into_iter().chain([changes]))
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
                let key = ObjectKey::new(object.namespace.as_deref().unwrap_or_default(), &object.name);
                controller.forget::<K>(&key);
            }
        }
    }
}

impl Controller {
    fn queued<K: Kind>(&self, object: &ObjectRef<K>) {
        let mut waiting = self.waiting.lock();
        waiting.entry(key_of(object)).or_insert_with(Instant::now);
        self.settings.metrics.queue_depth(self.name, waiting.len());
    }

    fn taken(&self, key: &ObjectKey) {
        let mut waiting = self.waiting.lock();
        if let Some(since) = waiting.remove(key) {
            self.settings.metrics.queue_depth(self.name, waiting.len());
            self.settings.metrics.taken_from_queue(self.name, since.elapsed());
        }
    }

    fn forget<K: Kind>(&self, key: &ObjectKey) {
        self.taken(key);
        self.trouble.lock().remove(key);
        self.settings.written.forget::<K>(key);
    }

    async fn pass<K, F, R>(self: Arc<Self>, object: Arc<K>, reconcile: Arc<F>) -> Result<Action, ReconcileError>
    where
        K: Kind,
        F: Fn(Arc<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let key = ObjectKey::of(object.meta());
        self.taken(&key);
        if !self.settings.selection.selects(object.meta()) {
            return Ok(Action::await_change());
        }
        if self.unreadable.contains(&key) {
            // A correction of the object triggers a pass.
            return Ok(Action::await_change());
        }
        if self.settings.written.is_stale(&*object) {
            // The watch delivers the write within milliseconds and triggers a pass. The requeue is for a watch that is down.
            return Ok(Action::requeue(Duration::from_secs(1)));
        }
        let span = tracing::info_span!(parent: None, "pass", controller = self.name, namespace = key.namespace, name = key.name);
        self.settings.metrics.reconcile_started(self.name);
        let start = Instant::now();
        // A separate task, so that a panic ends this pass and not the controller.
        let task = AbortOnDropHandle::new(tokio::spawn(async move { reconcile(object).await }.instrument(span.clone())));
        let _running = self.settings.passes.begin(self.name);
        let result = task.await.unwrap_or(Err(ReconcileError::Defect));
        let label = match &result {
            Ok(Outcome { requeue_after: None }) => "done",
            Ok(_) => "requeue",
            Err(error) if error.is_pending() => "requeue",
            Err(error) => error.label(),
        };
        self.settings.metrics.reconcile_finished(self.name, label, start.elapsed());
        let outcome = match result {
            // Nothing has failed: the pending answer triggers the next pass.
            Err(error) if error.is_pending() => {
                span.in_scope(|| tracing::debug!("{error}"));
                return Ok(Action::requeue(ON_CHANGE));
            }
            ended => ended?,
        };
        if self.trouble.lock().remove(&key).is_some_and(|t| t.failures > 1) {
            span.in_scope(|| tracing::info!("reconcile recovered"));
        }
        Ok(outcome.requeue_after.map_or_else(Action::await_change, Action::requeue))
    }

    fn failed<K: Kind>(&self, object: &K, error: &ReconcileError) -> Action {
        let key = ObjectKey::of(object.meta());
        let mut all = self.trouble.lock();
        let trouble = all.entry(key.clone()).or_default();
        trouble.failures = trouble.failures.saturating_add(1);
        let after = delay(error, trouble.failures, &key.name);
        let text = error.to_string();
        // A first conflict is not logged: another client wrote at the same time.
        let quiet = error.retry() == Retry::Soon && trouble.failures == 1;
        if trouble.text != text && !quiet {
            tracing::warn!(controller = self.name, namespace = key.namespace, name = key.name, error = error.label(), "{text}");
            trouble.text = text;
        }
        Action::requeue(after)
    }
}

fn key_of<K: Kind>(object: &ObjectRef<K>) -> ObjectKey {
    ObjectKey::new(object.namespace.as_deref().unwrap_or_default(), &object.name)
}

#[cfg(test)]
mod tests;
