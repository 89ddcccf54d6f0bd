//! The objects that CAPW brings for the pods on Windows nodes of a workload cluster, whatever its network is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;

use super::decide::planned::Asked;
use super::decide::windows_side::{announced, both, contested, kept};
use super::writes::{apply, now, remove};
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::api::components::ComponentsMode;
use crate::api::condition::Desired;
use crate::components::{self, Contested, FOR_PODS, Host, changes, is_among, is_of_kind, wanted_classes};
use crate::engine::caches::Caches;
use crate::kube_api::linux_side::is_unserved;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The report about the objects for pods, and when to check them again.
pub struct Kept {
    /// Kind and name of each object that exists, or is about to be created.
    pub objects: Vec<String>,
    pub said: (Desired, Duration),
}

fn name(object: &Value) -> String {
    components::ObjectRef::of(object).to_string()
}

/// Applies missing and outdated objects, and removes objects that are no longer needed. `objects` are from the workload cluster.
pub async fn bring(workload: &Workload, objects: &[Value], object: &WindowsCluster, asked: &Asked<'_>) -> Result<Kept, WorkloadError> {
    let desired = asked.for_pods();
    let seen = changes(&desired, objects, &asked.owner);
    let objects = now(workload, objects, &[seen.outdated, seen.replaced, seen.unneeded].concat()).await?;
    let changes = changes(&desired, &objects, &asked.owner);
    let mut there: Vec<String> = changes.kept.iter().map(ToString::to_string).collect();
    // An object is recorded in the status before it is created, so that it can be removed later.
    let is_known = |desired: &&Value| FOR_PODS.iter().any(|kind| is_of_kind(desired, kind.kind) && is_among(kind.kind, object.objects()));
    if !changes.outdated.iter().all(is_known) {
        return Ok(Kept { objects: there, said: announced(changes.outdated.len()) });
    }
    for replaced in &changes.replaced {
        remove(workload, replaced).await?;
    }
    let Applied { unserved, fields } = apply_served(workload, &changes.outdated, &objects, asked).await?;
    let used = used(workload, &changes.unneeded).await?;
    for unused in changes.unneeded.iter().filter(|object| !used.contains(object)) {
        remove(workload, unused).await?;
    }
    there.extend(used.into_iter().map(name));
    let said = kept(&changes.taken, &unserved);
    let said = match contested(&fields) {
        Some(contested) => both(contested, said),
        None => said,
    };
    Ok(Kept { objects: there, said })
}

/// The result of applying the objects.
#[derive(Default)]
struct Applied {
    /// The kinds that the API server does not have.
    unserved: BTreeSet<&'static str>,
    /// The fields that others change.
    fields: Vec<Contested>,
}

async fn apply_served(workload: &Workload, desired: &[&Value], objects: &[Value], asked: &Asked<'_>) -> Result<Applied, WorkloadError> {
    let mut found = Applied::default();
    for desired in desired {
        match apply(workload, &[desired], objects, asked.now).await {
            Err(error) if is_unserved(&error) => found.unserved.extend(components::kind_of(desired).map(|kind| kind.kind)),
            applied => found.fields.extend(applied?),
        }
    }
    Ok(found)
}

/// The objects that pods use. Pods are read only if a RuntimeClass is among the objects.
async fn used<'a>(workload: &Workload, objects: &[&'a Value]) -> Result<Vec<&'a Value>, WorkloadError> {
    let name = |class: &Value| components::ObjectRef::of(class).name;
    let mut classes: Vec<&Value> = objects.iter().copied().filter(|object| is_of_kind(object, "RuntimeClass")).collect();
    let names: BTreeSet<String> = classes.iter().map(|class| name(class)).collect();
    if !names.is_empty() {
        let used = workload.used_runtime_classes(&names).await?;
        classes.retain(|class| used.contains(&name(class)));
    }
    Ok(classes)
}

/// The hosts that the machines of a cluster are or may become. `objects` has its Nodes.
pub fn hosts(caches: &Caches, cluster: &ClusterRef, objects: &[Value]) -> BTreeSet<Host> {
    let mut hosts = configured(caches, cluster);
    hosts.extend(Host::joined(objects));
    hosts
}

fn configured(caches: &Caches, cluster: &ClusterRef) -> BTreeSet<Host> {
    let is_its = |meta: &ObjectMeta, of: Option<ClusterRef>| meta.deletion_timestamp.is_none() && of.as_ref() == Some(cluster);
    let (mut configs, mut templates) = (caches.configs.all(&cluster.namespace), caches.config_templates.all(&cluster.namespace));
    configs.retain(|config| is_its(&config.metadata, ClusterRef::of_config(config)));
    templates.retain(|template| is_its(&template.metadata, ClusterRef::of_template(&template.metadata)));
    let of_configs = configs.iter().map(|config| Host::configured(&config.spec));
    let of_templates = templates.iter().map(|template| Host::configured(&template.spec.template.spec));
    of_configs.chain(of_templates).collect()
}

/// The relevant facts in a configuration or a template of this cluster.
pub fn host_facts(cluster: Option<ClusterRef>, spec: &WindowsBootstrapConfigSpec) -> String {
    format!("{:?} {cluster:?}", Host::configured(spec))
}

/// The WindowsCluster that lacks an object that pods on such a host need. Further machines of an existing kind trigger nothing.
pub fn without(caches: &Caches, cluster: Option<ClusterRef>, spec: &WindowsBootstrapConfigSpec) -> Vec<ObjectRef<WindowsCluster>> {
    let lacks = |object: &Arc<WindowsCluster>| {
        if object.components_mode() != ComponentsMode::Auto {
            return false;
        }
        let policies = object.spec.components.as_ref().map(|components| components.policies.clone()).unwrap_or_default();
        wanted_classes(&BTreeSet::from([Host::configured(spec)]), &policies).iter().any(|class| !object.objects().contains(&name(class)))
    };
    let found = cluster.and_then(|cluster| caches.windows_cluster_of(&cluster)).filter(lacks);
    found.iter().map(|object| ObjectRef::from_obj(&**object)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::bootstrap_config::WindowsBootstrapConfig;
    use crate::testing::{holding, read};

    #[test]
    fn a_configuration_concerns_its_cluster_only_while_its_class_is_not_there() {
        let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
            "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsCluster", "name": "w1"}}});
        let labels = json!({"cluster.x-k8s.io/cluster-name": "c1"});
        let isolating = json!({"windows": {"hyperVIsolation": true}});
        let (auto, off) = (json!({"mode": "Auto"}), json!({"mode": "Auto", "policies": {"runtimeClasses": "Off"}}));
        for (components, labels, spec, is_concerned) in [
            (&auto, &labels, json!({"windowsRelease": "2025"}), true),
            (&auto, &labels, json!({"windowsRelease": "2022"}), false),
            (&auto, &labels, isolating, true),
            (&auto, &json!({}), json!({"windowsRelease": "2025"}), false),
            (&auto, &json!({"cluster.x-k8s.io/cluster-name": "c2"}), json!({"windowsRelease": "2025"}), false),
            (&off, &labels, json!({"windowsRelease": "2025"}), false),
            (&json!({"mode": "Report"}), &labels, json!({"windowsRelease": "2025"}), false),
            (&json!(null), &labels, json!({"windowsRelease": "2025"}), false),
        ] {
            let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": {"name": "w1", "namespace": "lab"},
                "spec": {"components": components}, "status": {"components": {"objects": ["RuntimeClass windows-2022"]}}});
            let caches = Caches { clusters: holding(vec![cluster.clone()]), windows_clusters: holding(vec![object]), ..Caches::empty() };
            let config: WindowsBootstrapConfig = read(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
                "metadata": {"name": "win-1", "namespace": "lab", "labels": labels}, "spec": spec}));
            let found = without(&caches, ClusterRef::of(&config.metadata), &config.spec);
            assert_eq!(
                found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(),
                if is_concerned { vec!["w1"] } else { vec![] },
                "{components} {labels} {spec}"
            );
        }
    }
}
