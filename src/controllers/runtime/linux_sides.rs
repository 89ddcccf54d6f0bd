//! The Linux sides of clusters whose WindowsClusters report on them: one task per cluster watches the metadata of all that was read. What may be
//! read differently now triggers a pass, which reads it again.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::select_all;
use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::watch_task::WatchTask;
use super::workload_clusters::WorkloadClusters;
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::cluster::linux_side::{Watched, changes};
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::facts;

/// From the first change to the pass: changes come together, for example when a manifest is applied.
const SETTLE: Duration = Duration::from_secs(1);

/// The watches.
#[derive(Default)]
pub struct LinuxSides(Mutex<HashMap<ClusterRef, Followed>>);

struct Followed {
    what: LinuxSide,
    watch: WatchTask,
}

/// What is watched, and the object that says what it means.
#[derive(Clone, PartialEq)]
pub struct LinuxSide {
    pub object: ObjectRef<WindowsCluster>,
    pub watched: Vec<Watched>,
}

impl LinuxSides {
    /// Watches this of a cluster, and nothing else, unless it is watched with this kubeconfig.
    pub(super) fn watch(&self, cluster: &ClusterRef, workload: &Workload, what: &LinuxSide, spawn: impl FnOnce(Workload) -> AbortHandle) {
        let mut all = self.lock();
        let new = || Followed { what: what.clone(), watch: WatchTask::default() };
        let followed = all.entry(cluster.clone()).or_insert_with(new);
        if followed.what != *what {
            *followed = new();
        }
        followed.watch.start(workload, spawn);
    }

    pub fn forget(&self, cluster: &ClusterRef) {
        self.lock().remove(cluster);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterRef, Followed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the Linux side of one cluster until the task is aborted.
pub(super) async fn follow(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload, what: LinuxSide) {
    let mut news = select_all(what.watched.iter().map(|watched| news(&workload, watched).boxed()));
    let mut due: Option<Instant> = None;
    loop {
        tokio::select! {
            next = news.next() => match next {
                Some(Ok(())) => {
                    due.get_or_insert_with(|| Instant::now() + SETTLE);
                }
                Some(Err(error)) => {
                    tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "pod network: {error}");
                    clusters.doubt(&cluster, &error).await;
                }
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                clusters.context().requests.windows_cluster(what.object.clone());
            }
        }
    }
}

/// An item for each event after which something may be read differently.
fn news(workload: &Workload, watched: &Watched) -> impl Stream<Item = Result<(), WorkloadError>> + use<> {
    let (mut shown, kind) = (Shown::default(), watched.kind());
    changes(workload, watched).filter_map(move |event| {
        ready(match event {
            Ok(event) => shown.note(kind, event).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    })
}

type Facts = HashMap<(Option<String>, String), String>;

/// What a watch has shown: the facts of each object, by namespace and name.
#[derive(Default)]
struct Shown {
    /// `None` before the first complete listing.
    known: Option<Facts>,
    /// A listing that is not complete yet.
    begun: Facts,
}

impl Shown {
    /// Takes in an event. True: what was read before may be out of date. That is so after the first listing too, because the last pass may have
    /// read before the watch began.
    fn note(&mut self, kind: &str, event: Event<PartialObjectMeta<DynamicObject>>) -> bool {
        let name = |object: &PartialObjectMeta<DynamicObject>| (object.namespace(), object.name_any());
        match event {
            Event::Init => self.begun.clear(),
            Event::InitApply(object) => {
                self.begun.insert(name(&object), facts(kind, &object.metadata));
            }
            Event::InitDone => {
                let now = std::mem::take(&mut self.begun);
                return self.known.replace(now) != self.known;
            }
            Event::Apply(object) => {
                let facts = facts(kind, &object.metadata);
                let before = self.known.get_or_insert_default().insert(name(&object), facts.clone());
                return before != Some(facts);
            }
            Event::Delete(object) => return self.known.get_or_insert_default().remove(&name(&object)).is_some(),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use kube::core::PartialObjectMetaExt;

    use super::*;

    fn object(name: &str, generation: i64) -> PartialObjectMeta<DynamicObject> {
        ObjectMeta { name: Some(name.into()), generation: Some(generation), ..ObjectMeta::default() }.into_response_partial()
    }

    #[test]
    fn news_is_what_may_be_read_differently() {
        let mut shown = Shown::default();
        for (event, is_news, why) in [
            (Event::Init, false, "nothing is known yet"),
            (Event::InitApply(object("a", 1)), false, "the listing goes on"),
            (Event::InitDone, true, "a pass may have read before"),
            (Event::Apply(object("a", 1)), false, "its status has changed"),
            (Event::Apply(object("a", 2)), true, "its spec has changed"),
            (Event::Apply(object("b", 1)), true, "it is new"),
            (Event::Init, false, "the watch began again"),
            (Event::InitApply(object("a", 2)), false, "the listing goes on"),
            (Event::InitApply(object("b", 1)), false, "the listing goes on"),
            (Event::InitDone, false, "all is as it was"),
            (Event::Delete(object("b", 1)), true, "it is gone"),
            (Event::Delete(object("b", 1)), false, "it was gone"),
            (Event::Init, false, "the watch began again"),
            (Event::InitDone, true, "the last one went meanwhile"),
        ] {
            assert_eq!(shown.note("DaemonSet", event), is_news, "{why}");
        }
    }
}
