//! The triggers of a pass besides a change of the object itself: helpers for the triggers of each kind, and requests between controllers.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::{self, BoxStream};
use kube::api::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;

use super::caches::{Cache, Caches};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster, Reference};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{self, ConditionType};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::domain::identity::INFRASTRUCTURE;
use crate::kube_api::cluster::Kind;

/// The objects of one kind that need a pass.
pub type Triggers<K> = Vec<BoxStream<'static, ObjectRef<K>>>;

/// The requested passes of one kind.
pub type Receiver<K> = UnboundedReceiver<ObjectRef<K>>;

/// Requests for a pass, from one controller to another: a VM has changed, a certificate was issued.
#[derive(Clone)]
pub struct Requests {
    machines: UnboundedSender<ObjectRef<WindowsMachine>>,
    configs: UnboundedSender<ObjectRef<WindowsBootstrapConfig>>,
    pools: UnboundedSender<ObjectRef<WindowsNodePool>>,
    windows_clusters: UnboundedSender<ObjectRef<WindowsCluster>>,
}

/// The receiving ends of [`Requests`].
pub struct Requested {
    pub machines: Receiver<WindowsMachine>,
    pub configs: Receiver<WindowsBootstrapConfig>,
    pub pools: Receiver<WindowsNodePool>,
    pub windows_clusters: Receiver<WindowsCluster>,
}

impl Requests {
    pub fn new() -> (Self, Requested) {
        let (machines, machine_calls) = unbounded();
        let (configs, config_calls) = unbounded();
        let (pools, pool_calls) = unbounded();
        let (windows_clusters, windows_cluster_calls) = unbounded();
        let requested = Requested { machines: machine_calls, configs: config_calls, pools: pool_calls, windows_clusters: windows_cluster_calls };
        (Self { machines, configs, pools, windows_clusters }, requested)
    }

    // A controller that has ended, or that another process runs, needs no request.
    pub fn machine(&self, object: &WindowsMachine) {
        let _ = self.machines.unbounded_send(ObjectRef::from_obj(object));
    }
    pub fn config(&self, object: &WindowsBootstrapConfig) {
        let _ = self.configs.unbounded_send(ObjectRef::from_obj(object));
    }
    pub fn pool_of(&self, object: &WindowsMachine) {
        for pool in of_owner(object, "WindowsNodePool") {
            let _ = self.pools.unbounded_send(pool);
        }
    }
    pub fn windows_cluster(&self, object: ObjectRef<WindowsCluster>) {
        let _ = self.windows_clusters.unbounded_send(object);
    }
    /// Requests a pass of every object that uses the cluster.
    pub fn all_of(&self, caches: &Caches, cluster: &ClusterRef) {
        let namespace = &cluster.namespace;
        let is_its = |of: Option<ClusterRef>| of.as_ref() == Some(cluster);
        for pool in caches.pools.all(namespace).iter().filter(|pool| is_its(ClusterRef::joined_by(pool))) {
            let _ = self.pools.unbounded_send(ObjectRef::from_obj(&**pool));
        }
        for machine in caches.windows_machines.all(namespace).iter().filter(|machine| is_its(ClusterRef::of(&machine.metadata))) {
            self.machine(machine);
        }
        for config in caches.configs.all(namespace).iter().filter(|config| is_its(ClusterRef::of_config(config))) {
            self.config(config);
        }
        for object in caches.windows_clusters.all(namespace).iter().filter(|object| is_its(ClusterRef::of_windows_cluster(object))) {
            self.windows_cluster(ObjectRef::from_obj(&**object));
        }
    }
}

/// Returns the owner of that kind, if the kind is ours.
pub fn of_owner<K: Kind>(object: &impl Resource, kind: &str) -> Vec<ObjectRef<K>> {
    let owner = capi::owner(object.meta().owner_references.as_ref(), INFRASTRUCTURE, kind);
    owner.map(|owner| ObjectRef::new(&owner.name).within(&namespace(object))).into_iter().collect()
}

/// Returns every object of the cache in a namespace.
pub fn all_of<K: Kind>(cache: &Cache<K>, namespace: &str) -> Vec<ObjectRef<K>> {
    cache.all(namespace).iter().map(|object| ObjectRef::from_obj(&**object)).collect()
}

/// The facts for [`concerned`] that change with the spec or when the object is recreated.
pub fn generation(meta: &ObjectMeta) -> String {
    format!("{:?} {:?}", meta.uid, meta.generation)
}

/// Returns the objects that a change concerns, if the facts that they depend on have changed or the object was deleted. Most changes of a Cluster
/// do not concern its thousand machines.
pub fn concerned<K: Kind, T: Kind>(
    caches: &Arc<Caches>,
    cache: &Cache<K>,
    facts: fn(&K) -> String,
    objects: fn(&Caches, &K) -> Vec<ObjectRef<T>>,
) -> BoxStream<'static, ObjectRef<T>> {
    let (caches, store) = (caches.clone(), cache.0.store());
    let seen = Mutex::new(Seen::default());
    let touched = cache.0.subscribe().map(move |object| {
        let is_news = seen.lock().is_news(&store, &object, facts(&object));
        if is_news { objects(&caches, &object) } else { Vec::new() }
    });
    touched.flat_map(stream::iter).boxed()
}

/// The newest facts of each object that a cache holds.
struct Seen<K: Kind>(HashMap<ObjectRef<K>, String>);

impl<K: Kind> Default for Seen<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Kind> Seen<K> {
    /// Whether the object was deleted or its facts have changed. The watch writes the cache before it reports a change, so an object that the cache
    /// does not hold was deleted; a new object with its name may exist already.
    fn is_news(&mut self, cache: &Store<K>, object: &K, facts: String) -> bool {
        let key = ObjectRef::from_obj(object);
        if cache.get(&key).is_none_or(|held| held.uid() != object.uid()) {
            self.0.remove(&key);
            return true;
        }
        self.0.insert(key, facts.clone()).is_none_or(|before| before != facts)
    }
}

pub fn cluster_facts(cluster: &Cluster) -> String {
    format!("{} {} {} {:?}", cluster.is_paused(), cluster.infrastructure_provisioned(), cluster.control_plane_initialized(), cluster.endpoint())
}

pub fn hypervisor_facts(hypervisor: &WindowsHypervisor) -> String {
    let conditions = hypervisor.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let reachable = condition::find(conditions, ConditionType::Reachable).map(|c| (&c.status, &c.message));
    format!("{reachable:?} {:?} {}", hypervisor.metadata.generation, hypervisor.metadata.deletion_timestamp.is_some())
}

pub fn of_cluster<K: Kind>(objects: &[Arc<K>], cluster: &Cluster) -> Vec<ObjectRef<K>> {
    let name = cluster.name_any();
    objects.iter().filter(|o| capi::cluster_name(o.meta().labels.as_ref()) == Some(&name)).map(|o| ObjectRef::from_obj(&**o)).collect()
}

/// Returns the object of that kind that a reference names, in the namespace of `from`.
pub fn named<K: Kind>(reference: Option<&Reference>, kind: &str, from: &impl ResourceExt) -> Vec<ObjectRef<K>> {
    let found = reference.filter(|r| r.kind == kind);
    found.map(|r| ObjectRef::new(&r.name).within(&from.namespace().unwrap_or_default())).into_iter().collect()
}

pub fn namespace(object: &impl Resource) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{holding, read};

    #[test]
    fn an_object_that_goes_is_news_and_so_is_the_next_one_of_its_name() {
        let cluster = |uid: &str| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab", "uid": uid}, "spec": {}});
        let mut seen = Seen::<Cluster>::default();
        // The object that the watch reports, the cached object at that time, whether it is a change, and how many objects are remembered.
        for (told, held, is_news, remembered) in [
            ("a", Some("a"), true, 1),
            ("a", Some("a"), false, 1),
            ("a", None, true, 0),
            ("b", Some("b"), true, 1),
            ("b", Some("b"), false, 1),
            // The watch is ahead: it has cached the next object already.
            ("b", Some("c"), true, 0),
            ("c", Some("c"), true, 1),
        ] {
            let (cache, object) = (holding::<Cluster>(held.map(cluster).into_iter().collect()), read::<Cluster>(cluster(told)));
            let found = seen.is_news(&cache.0.store(), &object, cluster_facts(&object));
            assert_eq!((found, seen.0.len()), (is_news, remembered), "{told} {held:?}");
        }
    }
}
