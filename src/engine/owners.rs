//! The owners that request the nodes of our objects, as cached. [`crate::domain::owner`] reads their requests.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::caches::Caches;
use super::management::Management;
use super::nodes::Nodes;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster};
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::machine::WindowsMachine;
use crate::domain::identity::{INFRASTRUCTURE, is_provisioned};
use crate::domain::owner::{NodeRequest, Owner, machine_pool_of, may_join};
use crate::kube_api::error::ApiError;

#[derive(Clone)]
pub struct Owners {
    caches: Arc<Caches>,
    nodes: Arc<Nodes>,
}

impl Owners {
    pub fn new(caches: Arc<Caches>, nodes: Arc<Nodes>) -> Self {
        Self { caches, nodes }
    }

    /// Returns the owner that requests a WindowsMachine.
    pub fn of_machine(&self, object: &WindowsMachine) -> Owner {
        let namespace = object.namespace().unwrap_or_default();
        let Some(reference) = capi::machine_owner(object.metadata.owner_references.as_ref()) else { return self.standalone(object) };
        let found = self.caches.machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
        let Some(machine) = found else { return Owner::Unseen };
        let Some(pool) = machine_pool_of(&machine) else { return NodeRequest::of_machine(&machine).into() };
        let pool = self.caches.machine_pools.get(&namespace, pool);
        let config = self.caches.config_of(object);
        NodeRequest::of_pool_machine(&machine, object, pool.as_deref(), config.as_deref()).into()
    }

    fn standalone(&self, object: &WindowsMachine) -> Owner {
        let Some(cluster) = ClusterRef::standalone(&object.metadata) else { return Owner::None };
        // Every user who may write a WindowsMachine can write that annotation.
        if !may_join(&cluster, self.caches.pool_of(object).as_deref()) {
            return Owner::Unseen;
        }
        // Whether the machine has joined is not known yet, and it must not be treated as one that never did.
        if is_provisioned(object) && !self.nodes.are_known(&cluster) {
            return Owner::Unseen;
        }
        let machine = self.caches.node_of(object);
        let node = machine.as_ref().and_then(|machine| self.nodes.of(&cluster, machine));
        let unready = machine.as_ref().and_then(|machine| self.nodes.unready_since(&cluster, machine));
        NodeRequest::standalone(object, &cluster, self.caches.config_of(object).as_deref(), node.as_deref()).seen_unready(unready).into()
    }

    /// Returns the owner that requests the node of a WindowsBootstrapConfig: its Machine, or the owner of a pool's WindowsMachine.
    pub fn of_config(&self, object: &WindowsBootstrapConfig) -> Owner {
        let namespace = object.namespace().unwrap_or_default();
        let owners = object.metadata.owner_references.as_ref();
        if let Some(reference) = capi::owner(owners, INFRASTRUCTURE, "WindowsMachine") {
            let found = self.caches.windows_machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
            let same_cluster = |machine: &Arc<WindowsMachine>| ClusterRef::of(&machine.metadata) == ClusterRef::of_config(object);
            return match found.filter(same_cluster).map(|m| self.of_machine(&m)) {
                // The Machine does not exist yet.
                None | Some(Owner::None) => Owner::Unseen,
                Some(owner) => owner,
            };
        }
        // A Machine only requests nodes of its own Cluster.
        if ClusterRef::of_config(object).is_some_and(|cluster| cluster.is_standalone()) {
            return Owner::Unseen;
        }
        let found = capi::machine_owner(owners).and_then(|o| self.caches.machines.get(&namespace, &o.name));
        Owner::of(owners, found.as_deref())
    }

    /// Reads the Cluster of an object that is being deleted, if the cache does not have it: nothing is removed while the Cluster is paused, and a
    /// watch that is behind must not hide the pause.
    pub async fn missing_cluster(
        &self,
        management: &Management,
        meta: &ObjectMeta,
        cluster: Option<&ClusterRef>,
    ) -> Result<Option<Cluster>, ApiError> {
        let Some(ClusterRef { namespace, source: ClusterSource::ClusterApi(name) }) = cluster else { return Ok(None) };
        if meta.deletion_timestamp.is_none() || self.caches.clusters.get(namespace, name).is_some() {
            return Ok(None);
        }
        cluster_now(management, namespace, name).await
    }
}

/// Reads the Cluster from the API server. A cache may be behind, which does not suit irreversible actions. Roles have no right to get a Cluster.
pub async fn cluster_now(management: &Management, namespace: &str, name: &str) -> Result<Option<Cluster>, ApiError> {
    match management.cluster.find::<Cluster>(namespace, name).await {
        Err(ApiError::NotServed(why)) if is_cluster_api_gone(&management.cluster.groups().await?) => {
            tracing::info!(namespace, cluster = name, "Cluster API is not installed any more, so the Cluster is gone: {why}");
            Ok(None)
        }
        found => found,
    }
}

/// Whether no version of Cluster API is installed, given the API groups that are served. All Clusters are deleted with its definitions, and the
/// pause with its Cluster: objects that are being deleted are released as if the Cluster had been deleted. That the version that CAPW reads is not
/// served proves nothing, because a paused Cluster may exist in another version.
fn is_cluster_api_gone(groups: &[String]) -> bool {
    lists_providers(groups) && !groups.iter().any(|group| group == capi::GROUP)
}

/// Whether this list of groups contains groups of providers, like CAPW's own. Only such a list proves that another kind is not served. A web page
/// instead of an answer does not.
pub fn lists_providers(groups: &[String]) -> bool {
    let of_providers = format!(".{}", capi::GROUP);
    groups.iter().any(|group| group.ends_with(&of_providers))
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::cluster_ref::JOINS_ANNOTATION;
    use crate::api::name::VmUuid;
    use crate::kube_api::mock::{refuse, step};
    use crate::kube_api::workload::Workload;
    use crate::testing::{groups, holding, read, shared};

    /// A recreated object with that name has another UID: its request is not for the machine of the first object.
    #[tokio::test]
    async fn an_owner_is_the_object_that_a_reference_names() {
        let refers = |kind: &str, group: &str, uid: &str| json!([{"apiVersion": format!("{group}/v1beta2"), "kind": kind, "name": "m", "uid": uid, "controller": true}]);
        let machine = |owners: Value, of_status: Value| -> WindowsMachine {
            read(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
                "metadata": {"name": "m", "namespace": "lab", "uid": "w", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}, "ownerReferences": owners},
                "spec": {"image": "w"}, "status": of_status}))
        };
        let config = |cluster: &str, uid: &str| -> WindowsBootstrapConfig {
            read(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
                "metadata": {"name": "m", "namespace": "lab", "labels": {"cluster.x-k8s.io/cluster-name": cluster},
                    "ownerReferences": refers("WindowsMachine", INFRASTRUCTURE, uid)}, "spec": {}}))
        };
        let of_core = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "namespace": "lab", "uid": "core"},
            "spec": {"clusterName": "c1", "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "WindowsMachine", "name": "m"}}});
        let cached = serde_json::to_value(machine(refers("Machine", capi::GROUP, "core"), json!({}))).unwrap();
        let caches = Caches { machines: holding(vec![of_core]), windows_machines: holding(vec![cached]), ..Caches::empty() };
        let owners = shared(caches, 1, vec![]).0.owners;
        let is_found = |owner: Owner| owner.request().is_some();
        for (uid, expected) in [("core", true), ("another", false)] {
            assert_eq!(is_found(owners.of_machine(&machine(refers("Machine", capi::GROUP, uid), json!({})))), expected, "{uid}");
        }
        for (cluster, uid, expected) in [("c1", "w", true), ("c1", "another", false), ("another", "w", false)] {
            assert_eq!(is_found(owners.of_config(&config(cluster, uid))), expected, "{cluster} {uid}");
        }
        // Its Node may exist: that is not known yet.
        for (provisioned, expected) in [(false, true), (true, false)] {
            let mut standalone = machine(Value::Null, json!({"initialization": {"provisioned": provisioned}}));
            standalone.metadata.labels = None;
            standalone.metadata.annotations = Some([(JOINS_ANNOTATION.to_owned(), "secret/other/value".to_owned())].into());
            assert_eq!(is_found(owners.of_machine(&standalone)), expected, "{provisioned}");
        }
    }

    /// A Cluster that no cache holds must not count as one that is not paused.
    #[tokio::test]
    async fn a_cluster_that_no_cache_holds_is_asked_for_before_anything_is_removed() {
        const CLUSTERS: &str = "GET /apis/cluster.x-k8s.io/v1beta2/namespaces/lab/clusters";
        let answer =
            |items: Value| step(CLUSTERS, json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterList", "metadata": {}, "items": items}));
        let paused = json!({"metadata": {"name": "c1", "namespace": "lab"}, "spec": {"paused": true}});
        let mut unreadable = paused.clone();
        unreadable["spec"]["paused"] = json!("Never");
        let exchanges = vec![answer(json!([paused])), answer(json!([])), refuse(CLUSTERS, 503, "ServiceUnavailable"), answer(json!([unreadable]))];
        let (all, script) = shared(Caches::empty(), 1, exchanges);
        let object = |deleted: Value| -> ObjectMeta { read(json!({"name": "m", "namespace": "lab", "deletionTimestamp": deleted})) };
        let c1 = ClusterRef::cluster_api("lab", "c1");
        let going = object(json!("2026-01-01T00:00:00Z"));
        let found = all.owners.missing_cluster(&all.management, &going, Some(&c1)).await.unwrap();
        assert!(found.is_some_and(|cluster| cluster.is_paused()));
        assert!(all.owners.missing_cluster(&all.management, &going, Some(&c1)).await.unwrap().is_none(), "it is gone");
        assert!(all.owners.missing_cluster(&all.management, &going, Some(&c1)).await.is_err(), "in doubt, nothing is removed");
        let error = all.owners.missing_cluster(&all.management, &going, Some(&c1)).await.unwrap_err().to_string();
        assert!(error.contains("Cluster lab/c1 cannot be read: spec.paused"), "{error}");
        assert!(all.owners.missing_cluster(&all.management, &object(Value::Null), Some(&c1)).await.unwrap().is_none());
        let queries: Vec<String> = script.seen().into_iter().map(|request| request.query).collect();
        assert_eq!(queries, ["&fieldSelector=metadata.name%3Dc1"; 4], "another Cluster is not read; one that stays asks for nothing");
    }

    /// Otherwise its pool would label that Node and count it.
    #[tokio::test]
    async fn a_copy_of_a_machine_does_not_have_the_node_of_the_original() {
        let joins = "secret/there/value";
        let id = format!("windows://h1/{}", VmUuid::of("original"));
        let machine = |namespace: &str, uid: &str| {
            json!({"apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "WindowsMachine", "spec": {"image": "w", "providerID": id},
                "metadata": {"name": "win-1", "namespace": namespace, "uid": uid, "annotations": {JOINS_ANNOTATION: joins}}})
        };
        let originals = holding(vec![machine("other", "original")]);
        let (all, _script) = shared(Caches { windows_machines: originals, ..Caches::empty() }, 1, vec![]);
        let node = json!({"metadata": {"name": "win-1"}, "spec": {"providerID": id}});
        for (namespace, uid, expected) in [("other", "original", Some("win-1")), ("lab", "copy", None)] {
            let object: WindowsMachine = read(machine(namespace, uid));
            let cluster = ClusterRef::standalone(&object.metadata).unwrap();
            let workload = Workload::of(all.management.cluster.client().clone());
            all.clusters.nodes().watch(&cluster, &workload, |_| tokio::spawn(std::future::pending::<()>()).abort_handle());
            for event in [Event::Init, Event::InitApply(read(node.clone())), Event::InitDone] {
                all.clusters.nodes().note(&cluster, event, jiff::Timestamp::UNIX_EPOCH);
            }
            assert_eq!(all.owners.of_machine(&object).request().unwrap().node.as_deref(), expected, "{namespace}");
        }
    }

    /// Before anything is removed, the list of groups must confirm it too.
    #[tokio::test]
    async fn a_page_alone_does_not_prove_that_cluster_api_was_uninstalled() {
        const CLUSTERS: &str = "GET /apis/cluster.x-k8s.io/v1beta2/namespaces/lab/clusters";
        let page = || refuse(CLUSTERS, 404, "Failed to parse error data");
        let ours = "infrastructure.cluster.x-k8s.io";
        for (exchanges, expected) in [
            (vec![page(), groups(&["apps", ours])], Ok(())),
            (vec![page(), groups(&["apps", "controlplane.cluster.x-k8s.io"])], Ok(())),
            // The Cluster may exist in another version and be paused.
            (vec![page(), groups(&["apps", ours, "cluster.x-k8s.io"])], Err("not_served")),
            // Definitions are not served yet.
            (vec![page(), groups(&["apps"])], Err("not_served")),
            (vec![page(), groups(&[])], Err("not_served")),
            (vec![page(), refuse("GET /apis", 404, "Failed to parse error data")], Err("not_served")),
            (vec![page(), refuse("GET /apis", 503, "ServiceUnavailable")], Err("unreachable")),
            // The answer is about an object.
            (vec![refuse(CLUSTERS, 404, "NotFound")], Err("not_found")),
        ] {
            let (all, _script) = shared(Caches::empty(), 1, exchanges);
            let found = cluster_now(&all.management, "lab", "c1").await;
            assert_eq!(found.map(|cluster| assert!(cluster.is_none())).map_err(|error| error.label()), expected);
        }
    }
}
