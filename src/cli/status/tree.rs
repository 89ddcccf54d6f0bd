//! Builds the tree of objects, by the labels and references that the controllers use.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::entry::Entry;
use super::groups;
use super::objects::Objects;
use crate::api::capi::{self, DEPLOYMENT_NAME_LABEL, MachineDeployment, Reference};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::api::pool::WindowsNodePool;
use crate::kinds::pool::decide::build::is_of;

/// Returns each Cluster, standalone pool, and WindowsCluster of such pools, or only the one with this name; without a name, also unassigned objects.
pub(super) fn tree(objects: &Objects, name: Option<&str>, now: Timestamp) -> Vec<Entry> {
    let is_asked = |key: &ObjectKey| name.is_none_or(|name| key.name == name);
    let clusters = cluster_keys(objects).into_iter().filter(is_asked);
    let mut roots: Vec<Entry> = clusters.filter_map(|key| cluster(objects, key, now)).collect();
    let is_alone = |object: &WindowsCluster| ClusterRef::of_windows_cluster(object).is_some_and(|cluster| cluster.is_standalone());
    let standalone = objects.windows_clusters.iter().filter(|object| is_alone(object) && is_asked(&ObjectKey::of(&object.metadata)));
    roots.extend(standalone.map(|object| groups::windows_cluster(objects, object, now)));
    let pools = objects.pools.iter().filter(|pool| cluster_of_pool(pool).is_none() && is_asked(&ObjectKey::of(&pool.metadata)));
    roots.extend(pools.map(|pool| alone(objects, pool, now)));
    if name.is_none() {
        let is_lost = |machine: &&WindowsMachine| cluster_of(&machine.metadata).is_none() && !is_of_a_pool(objects, machine);
        let lost: Vec<&WindowsMachine> = objects.windows_machines.iter().filter(is_lost).collect();
        for namespace in lost.iter().filter_map(|machine| machine.namespace()).collect::<BTreeSet<_>>() {
            let here = lost.iter().copied().filter(|machine| machine.namespace().as_ref() == Some(&namespace));
            roots.extend(groups::others(objects, &namespace, here, now));
        }
        let used: BTreeSet<ObjectKey> =
            roots.iter().flat_map(|root| &root.objects).filter(|entry| entry.kind == groups::HYPERVISOR).map(key).collect();
        let unused = objects.hypervisors.iter().filter(|hypervisor| !used.contains(&ObjectKey::of(&hypervisor.metadata)));
        roots.extend(unused.map(|hypervisor| groups::hypervisor(hypervisor, 0, now)));
    }
    roots
}

fn key(entry: &Entry) -> ObjectKey {
    ObjectKey::new(&entry.namespace, &entry.name)
}

/// The Clusters, including Clusters that only other objects name, because the user may lack the permission to read them.
fn cluster_keys(objects: &Objects) -> BTreeSet<ObjectKey> {
    let clusters = objects.clusters.iter().map(|cluster| ObjectKey::of(&cluster.metadata));
    clusters
        .chain(objects.windows_clusters.iter().filter_map(|object| cluster_of(&object.metadata)))
        .chain(objects.control_planes.iter().filter_map(|object| cluster_of(&object.metadata)))
        .chain(objects.machine_deployments.iter().filter(|deployment| is_of_windows(deployment)).map(cluster_of_deployment))
        .chain(objects.pools.iter().filter_map(cluster_of_pool))
        .chain(objects.windows_machines.iter().filter_map(|object| cluster_of(&object.metadata)))
        .collect()
}

/// Returns the Cluster of an object.
fn cluster_of(meta: &ObjectMeta) -> Option<ObjectKey> {
    let ClusterRef { namespace, source } = ClusterRef::of(meta)?;
    match source {
        ClusterSource::ClusterApi(name) => Some(ObjectKey { namespace, name }),
        ClusterSource::Kubeconfig { .. } | ClusterSource::InCluster => None,
    }
}

fn cluster_of_pool(pool: &WindowsNodePool) -> Option<ObjectKey> {
    cluster_of(&pool.metadata).filter(|_| ClusterRef::of_pool(pool).is_none())
}

fn cluster_of_deployment(deployment: &MachineDeployment) -> ObjectKey {
    ObjectKey { name: deployment.spec.cluster_name.clone(), ..ObjectKey::of(&deployment.metadata) }
}

fn is_of_windows(deployment: &MachineDeployment) -> bool {
    deployment.spec.template.spec.infrastructure_ref.kind == groups::TEMPLATE
}

fn is_of_a_pool(objects: &Objects, machine: &WindowsMachine) -> bool {
    objects.pools.iter().any(|pool| is_of(&machine.metadata, &pool.uid().unwrap_or_default()))
}

/// Reports a Cluster. `None`: no object of CAPW belongs to the Cluster.
fn cluster(objects: &Objects, key: ObjectKey, now: Timestamp) -> Option<Entry> {
    let cluster = objects.clusters.iter().find(|cluster| ObjectKey::of(&cluster.metadata) == key);
    let names = |reference: Option<&Reference>, kind: &str, meta: &ObjectMeta| {
        let is_it = |reference: &Reference| reference.kind == kind && ObjectKey::of(meta) == ObjectKey::new(&key.namespace, &reference.name);
        cluster_of(meta).as_ref() == Some(&key) || reference.is_some_and(is_it)
    };
    let spec = cluster.map(|cluster| &cluster.spec);
    let is_control_plane = |meta: &ObjectMeta| names(spec.and_then(|spec| spec.control_plane_ref.as_ref()), groups::CONTROL_PLANE, meta);
    let is_infrastructure = |meta: &ObjectMeta| names(spec.and_then(|spec| spec.infrastructure_ref.as_ref()), groups::CLUSTER, meta);
    let machines: Vec<&WindowsMachine> =
        objects.windows_machines.iter().filter(|machine| cluster_of(&machine.metadata).as_ref() == Some(&key)).collect();
    let windows_cluster = objects.windows_clusters.iter().find(|object| is_infrastructure(&object.metadata));
    let deployments: Vec<&MachineDeployment> =
        objects.machine_deployments.iter().filter(|deployment| is_of_windows(deployment) && cluster_of_deployment(deployment) == key).collect();
    let made_by = |machine: &WindowsMachine, deployment: &MachineDeployment| {
        machine.labels().get(DEPLOYMENT_NAME_LABEL) == Some(&capi::label_value(&deployment.name_any()))
    };

    let mut children = Vec::new();
    children
        .extend(objects.control_planes.iter().filter(|object| is_control_plane(&object.metadata)).map(|object| groups::control_plane(object, now)));
    children.extend(windows_cluster.map(|object| groups::windows_cluster(objects, object, now)));
    children.extend(groups::hypervisors(objects, &key.namespace, windows_cluster, &machines, now));
    for deployment in &deployments {
        let its = machines.iter().copied().filter(|machine| made_by(machine, deployment));
        children.push(groups::deployment(objects, deployment, its, now));
    }
    let pools = objects.pools.iter().filter(|pool| cluster_of_pool(pool).as_ref() == Some(&key));
    children.extend(pools.map(|pool| groups::pool(objects, pool, of_pool(objects, pool), Vec::new(), now)));
    let rest = machines.iter().copied().filter(|machine| !is_of_a_pool(objects, machine) && !deployments.iter().any(|one| made_by(machine, one)));
    children.extend(groups::others(objects, &key.namespace, rest, now));
    if children.is_empty() { None } else { Some(Entry::new("Cluster", key, groups::facts_of_cluster(cluster), Vec::new(), children)) }
}

fn of_pool<'a>(objects: &'a Objects, pool: &WindowsNodePool) -> impl Iterator<Item = &'a WindowsMachine> {
    let uid = pool.uid().unwrap_or_default();
    objects.windows_machines.iter().filter(move |machine| is_of(&machine.metadata, &uid))
}

/// Reports a pool that belongs to no Cluster.
fn alone(objects: &Objects, pool: &WindowsNodePool, now: Timestamp) -> Entry {
    let machines: Vec<&WindowsMachine> = of_pool(objects, pool).collect();
    let hypervisors = groups::hypervisors(objects, &pool.namespace().unwrap_or_default(), None, &machines, now);
    groups::pool(objects, pool, machines.into_iter(), hypervisors, now)
}
