//! What the watches know: one cache per kind, shared by all controllers. Reading costs no request.

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::watch::{Watch, Watching};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{Cluster, Machine};
use crate::api::cluster::WindowsCluster;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::cluster::Kind;

/// The caches that decisions read.
pub struct Stores {
    pub clusters: Cache<Cluster>,
    pub machines: Cache<Machine>,
    pub windows_machines: Cache<WindowsMachine>,
    pub configs: Cache<WindowsBootstrapConfig>,
    pub hypervisors: Cache<WindowsHypervisor>,
    pub windows_clusters: Cache<WindowsCluster>,
}

impl Stores {
    /// Starts the watches. Core's objects are followed whatever our label selects: ours refer to them.
    pub fn start(watching: &Watching) -> Self {
        let all = Watching { selection: watching.selection.unfiltered(), ..watching.clone() };
        Self {
            clusters: Cache(Watch::start(&all)),
            machines: Cache(Watch::start(&all)),
            windows_machines: Cache(Watch::start(watching)),
            configs: Cache(Watch::start(watching)),
            hypervisors: Cache(Watch::start(watching)),
            windows_clusters: Cache(Watch::start(watching)),
        }
    }

    /// Decisions look at several caches: none is taken before all of them are filled once.
    pub async fn ready(&self) {
        tokio::join!(
            self.clusters.0.ready(),
            self.machines.0.ready(),
            self.windows_machines.0.ready(),
            self.configs.0.ready(),
            self.hypervisors.0.ready(),
            self.windows_clusters.0.ready(),
        );
    }
}

/// A cache of one namespaced kind, and its watch.
pub struct Cache<K: Kind>(pub Watch<K>);

impl<K: Kind> Cache<K> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.0.store().get(&ObjectRef::new(name).within(namespace))
    }

    /// Every object of the namespace.
    pub fn all(&self, namespace: &str) -> Vec<Arc<K>> {
        self.0.store().state().into_iter().filter(|o| o.meta().namespace.as_deref() == Some(namespace)).collect()
    }

    /// The names of every object of the namespace that is not being deleted, sorted.
    pub fn names(&self, namespace: &str) -> Vec<String> {
        let mut names: Vec<String> = self.all(namespace).iter().filter(|o| o.meta().deletion_timestamp.is_none()).map(|o| o.name_any()).collect();
        names.sort();
        names
    }
}
