//! The lowest number of objects of a kind in a state: every version of each object counts, so nothing is missed between two
//! polls. It must not judge.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capw_patience::wait_for;
use futures::TryStreamExt;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::client::{Kind, text};
use super::control_plane::ControlPlane;

/// The limit for the first listing, and for the last change to arrive.
const LIMIT: Duration = Duration::from_secs(60);

/// A counter, which runs until it is dropped.
pub struct Fewest {
    kind: Kind,
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
}

/// The events of a watch so far.
#[derive(Default)]
struct Seen {
    /// Version of each object by its name, and whether it counts.
    objects: BTreeMap<String, (String, bool)>,
    /// `None` until the first listing is complete.
    fewest: Option<usize>,
}

impl ControlPlane {
    /// Counts the objects of a kind for which `counts` is true, from now on.
    pub async fn fewest(&self, kind: Kind, counts: fn(&Value) -> bool) -> Fewest {
        let api = self.api(kind, None);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
            // After an error the watcher lists again.
            loop {
                if let Ok(Some(event)) = events.try_next().await {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).take(event, counts);
                }
            }
        });
        let fewest = Fewest { kind, seen, task: task.abort_handle() };
        fewest.so_far(self).await;
        fewest
    }
}

impl Seen {
    fn take(&mut self, event: Event<DynamicObject>, counts: fn(&Value) -> bool) {
        let row = |object: DynamicObject| {
            let version = object.resource_version().unwrap_or_default();
            (object.name_any(), (version, counts(&serde_json::to_value(object).expect("an object is JSON"))))
        };
        match event {
            Event::Init => return self.objects.clear(),
            Event::InitApply(object) => return self.objects.extend([row(object)]),
            Event::Apply(object) => self.objects.extend([row(object)]),
            Event::Delete(object) => drop(self.objects.remove(&object.name_any())),
            Event::InitDone => {}
        }
        let now = self.objects.values().filter(|(_, counts)| *counts).count();
        self.fewest = Some(self.fewest.map_or(now, |fewest| fewest.min(now)));
    }
}

impl Fewest {
    /// The fewest since the counter started, with every change up to now.
    pub async fn so_far(&self, cp: &ControlPlane) -> usize {
        wait_for(&format!("the watch of {} has told every change", self.kind.plural), LIMIT, || async {
            let listed = cp.list(self.kind, None).await;
            let there = listed.iter().map(|object| (text(object, "/metadata/name"), text(object, "/metadata/resourceVersion")));
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let told = seen.objects.iter().map(|(name, (version, _))| (name.as_str(), version.as_str()));
            let (there, told): (BTreeMap<_, _>, BTreeMap<_, _>) = (there.collect(), told.collect());
            seen.fewest.filter(|_| there == told).ok_or_else(|| format!("listed {there:?}, told {told:?}"))
        })
        .await
    }
}

impl Drop for Fewest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_worst_moment_counts_and_a_listing_is_one_moment() {
        let node = |name: &str, ready: bool| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": name, "resourceVersion": "1"}, "ready": ready})).expect("an object")
        };
        let counts = |node: &Value| node["ready"] == true;
        let mut seen = Seen::default();
        seen.take(Event::Init, counts);
        for event in ["a", "b"].map(|name| Event::InitApply(node(name, true))) {
            seen.take(event, counts);
        }
        assert_eq!(seen.fewest, None);
        for (event, fewest) in [
            (Event::InitDone, 2),
            (Event::Apply(node("c", true)), 2),
            (Event::Delete(node("a", true)), 2),
            (Event::Apply(node("b", false)), 1),
            (Event::Apply(node("b", true)), 1),
            (Event::Init, 1),
            (Event::InitApply(node("b", true)), 1),
            (Event::InitDone, 1),
        ] {
            seen.take(event, counts);
            assert_eq!(seen.fewest, Some(fewest));
        }
    }
}
