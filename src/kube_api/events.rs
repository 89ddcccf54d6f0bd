//! Events: one for each change of state, none for repetitions. A lost event never fails a reconcile.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::condition::Reason;
use crate::causes::chain;

/// The API server deletes events after an hour; an event that still applies then is sent again.
const TOLD: Duration = Duration::from_secs(3_300);
const LIMIT: Duration = Duration::from_secs(5);
/// The API server's limit for a note.
const NOTE_BYTES: usize = 1_000;

/// A counter, called with `published` or `lost` after each attempt, for metrics.
pub type Count = Arc<dyn Fn(&'static str) + Send + Sync>;

/// Publishes events with this program as the reporter.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    count: Count,
    told: Arc<Mutex<HashMap<u64, (u64, Instant)>>>,
}

impl Events {
    /// Creates a publisher. `instance` is the name of this process, e.g. of its pod.
    pub fn new(client: Client, instance: &str, count: Count) -> Self {
        let reporter = Reporter { controller: "capw.cluster.x-k8s.io".into(), instance: Some(instance.into()) };
        Self { client, reporter, count, told: Arc::default() }
    }

    /// Sends a warning about the object, unless the last event about this object and action was the same. `action` is in PascalCase; `note` is cut
    /// after 1000 bytes.
    pub async fn warning<K: Resource<DynamicType = ()>>(&self, object: &K, reason: Reason, action: &str, note: &str) {
        let reference = object.object_ref(&());
        let subject = hash(&(&reference.uid, &reference.namespace, &reference.name, action));
        let said = hash(&(reason, note));
        if !self.is_news(subject, said) {
            return;
        }
        let event = Event { type_: EventType::Warning, reason: reason.to_string(), note: Some(cut(note)), action: action.into(), secondary: None };
        // A new recorder each time: a reused one treats a changed note as a repetition and drops it.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        // Boxed, as in `cluster::request`: every report of a status has room for it.
        let outcome = match tokio::time::timeout(LIMIT, recorder.publish(&event, &reference).boxed()).await {
            Ok(Ok(())) => "published",
            Ok(Err(error)) => {
                tracing::warn!(%reason, error = chain(&error), "event not published");
                "lost"
            }
            Err(_) => {
                tracing::warn!(%reason, "event not published: no answer");
                "lost"
            }
        };
        (self.count)(outcome);
    }

    fn is_news(&self, subject: u64, said: u64) -> bool {
        let now = Instant::now();
        let mut told = self.told.lock();
        told.retain(|_, (_, at)| now.duration_since(*at) < TOLD);
        match told.get(&subject) {
            Some((last, _)) if *last == said => false,
            _ => {
                told.insert(subject, (said, now));
                true
            }
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn cut(note: &str) -> String {
    let mut end = note.len().min(NOTE_BYTES);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
