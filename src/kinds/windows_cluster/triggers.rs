//! The triggers for a pass of a WindowsCluster.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::decide::ending::is_ending;
use super::windows_pods;
use crate::api::capi::Cluster;
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::engine::caches::Caches;
use crate::engine::triggers::{Receiver, Triggers, all_of, cluster_facts, concerned, hypervisor_facts, named, namespace};

pub fn triggers(caches: &Arc<Caches>, requested: Receiver<WindowsCluster>) -> Triggers<WindowsCluster> {
    vec![
        concerned(caches, &caches.clusters, facts, |_, cluster| of_cluster(cluster)),
        concerned(caches, &caches.hypervisors, hypervisor_facts, |caches, hypervisor| all_of(&caches.windows_clusters, &namespace(hypervisor))),
        concerned(
            caches,
            &caches.configs,
            |config| windows_pods::host_facts(ClusterRef::of_config(config), &config.spec),
            |caches, config| windows_pods::without(caches, ClusterRef::of_config(config), &config.spec),
        ),
        concerned(
            caches,
            &caches.config_templates,
            |template| windows_pods::host_facts(ClusterRef::of_template(&template.metadata), &template.spec.template.spec),
            |caches, template| windows_pods::without(caches, ClusterRef::of_template(&template.metadata), &template.spec.template.spec),
        ),
        gone_machines(caches),
        requested.boxed(),
    ]
}

/// The deletion of the Cluster counts, too: the WindowsCluster then removes what CAPW brought.
fn facts(cluster: &Cluster) -> String {
    format!("{} {}", cluster_facts(cluster), cluster.metadata.deletion_timestamp.is_some())
}

fn of_cluster(cluster: &Cluster) -> Vec<ObjectRef<WindowsCluster>> {
    named(cluster.spec.infrastructure_ref.as_ref(), "WindowsCluster", cluster)
}

/// The last deleted machine of a Cluster triggers a pass if the WindowsCluster is ending. No other machine does.
fn gone_machines(caches: &Arc<Caches>) -> BoxStream<'static, ObjectRef<WindowsCluster>> {
    let all = caches.clone();
    caches.windows_machines.0.map(move |machine| with_gone(&all, machine))
}

/// The WindowsCluster of a deleted machine, if it is ending.
fn with_gone(caches: &Caches, machine: &WindowsMachine) -> Vec<ObjectRef<WindowsCluster>> {
    let namespace = namespace(machine);
    if caches.windows_machines.get(&namespace, &machine.name_any()).is_some() {
        return Vec::new();
    }
    let Some(name) = ClusterRef::of(&machine.metadata) else { return Vec::new() };
    let cluster = caches.target_cluster(name.clone(), None);
    let all = caches.windows_clusters.all(&namespace);
    let is_its =
        |object: &&Arc<WindowsCluster>| ClusterRef::of_windows_cluster(object).as_ref() == Some(&name) && is_ending(object, cluster.as_ref());
    all.iter().filter(is_its).map(|object| ObjectRef::from_obj(&**object)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{holding, read};

    #[test]
    fn the_end_of_a_machine_concerns_a_windows_cluster_that_ends() {
        let deleted = |is: bool| is.then_some("2026-01-01T00:00:00Z");
        let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "win-1", "namespace": "lab", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}}, "spec": {"image": "w"}});
        for (is_there, cluster, object, expected) in [
            (false, Some(true), false, true),
            (false, Some(false), true, true),
            (false, None, true, true),
            (false, Some(false), false, false),
            (true, Some(true), true, false),
        ] {
            let cluster = cluster.map(|is| {
                let metadata = json!({"name": "c1", "namespace": "lab", "deletionTimestamp": deleted(is)});
                json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata, "spec": {}})
            });
            let of = |name: &str, cluster: &str| -> Value {
                let owner = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": cluster, "uid": "c"}]);
                let metadata = json!({"name": name, "namespace": "lab", "deletionTimestamp": deleted(object), "ownerReferences": owner});
                json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": metadata, "spec": {}})
            };
            let caches = Caches {
                clusters: holding(cluster.iter().cloned().collect()),
                windows_clusters: holding(vec![of("w1", "c1"), of("w2", "c2")]),
                windows_machines: holding(if is_there { vec![machine.clone()] } else { vec![] }),
                ..Caches::empty()
            };
            let found: Vec<String> = with_gone(&caches, &read(machine.clone())).into_iter().map(|object| object.name).collect();
            assert_eq!(found, if expected { vec!["w1"] } else { vec![] }, "{is_there} {cluster:?} {object}");
        }
        let standalone = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "win-1", "namespace": "lab", "annotations": {"infrastructure.cluster.x-k8s.io/joins": "secret/there/value"}}, "spec": {"image": "w"}});
        let object = |name: &str, secret: &str| {
            let metadata = json!({"name": name, "namespace": "lab", "deletionTimestamp": deleted(name != "lives")});
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": metadata,
                "spec": {"cluster": {"kubeconfigSecretRef": {"name": secret}}}})
        };
        let all = vec![object("lives", "there"), object("goes", "there"), object("other", "elsewhere")];
        let found = with_gone(&Caches { windows_clusters: holding(all), ..Caches::empty() }, &read(standalone));
        assert_eq!(found.into_iter().map(|object| object.name).collect::<Vec<_>>(), ["goes"], "of a standalone pool");
        let facts = |is: bool| facts(&read(json!({"metadata": {"name": "c1", "deletionTimestamp": deleted(is)}, "spec": {}})));
        assert_ne!(facts(true), facts(false));
    }
}
