//! Builds the objects of one pool machine: its WindowsMachine, its configuration, and their changes in place.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::in_place;
use super::request::PoolRequest;
use super::template::Template;
use crate::api::bootstrap_config::{self, WindowsBootstrapConfig, WindowsBootstrapConfigSpec};
use crate::api::capi::{self, CLUSTER_NAME_LABEL, WATCH_FILTER_LABEL};
use crate::api::cluster_ref::{ClusterRef, JOINS_ANNOTATION, MADE_FOR_ANNOTATION, made_for};
use crate::api::machine::{self, LocalReference, WindowsMachine, WindowsMachineSpec};
use crate::api::name::base36;
use crate::api::pool::{POOL_LABEL, TEMPLATE_LABEL, WindowsNodePool};
use crate::domain::identity::{INFRASTRUCTURE, VERSION_ANNOTATION, adoption, future_provider_id};
use crate::domain::owner::TargetCluster;
use crate::guards::Guard;
use crate::kinds::bootstrap_config::decide::step::may_have_data;
use crate::kinds::machine::decide::placement::{self, Places};
use crate::kinds::machine::decide::step::vm_spec;

/// The most characters of the pool's name in the names of its machines: with the rest, a name is as long as Windows allows.
const PREFIX: usize = 9;
/// The number of characters after the prefix, which distinguish the machines.
const SUFFIX: usize = 5;

/// A new machine, on the hypervisor `place` or the one that the template specifies.
pub fn machine(object: &WindowsNodePool, request: &PoolRequest, template: &Template, name: &str, place: Option<&str>) -> WindowsMachine {
    let metadata = object.spec.template.metadata.clone().unwrap_or_default();
    let mut annotations: BTreeMap<String, String> = in_place::notes(&metadata).into_iter().chain(metadata.annotations).collect();
    annotations.extend(template.version.clone().map(|version| (VERSION_ANNOTATION.to_owned(), version)));
    annotations.extend(request.standalone.as_ref().map(|cluster| (JOINS_ANNOTATION.to_owned(), cluster.to_string())));
    let hypervisor_ref = place.map(|name| LocalReference { name: name.to_owned() }).or_else(|| template.machine.hypervisor_ref.clone());
    WindowsMachine {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: object.namespace(),
            labels: Some(metadata.labels.into_iter().chain(labels(object, request, template)).collect()),
            annotations: Some(annotations),
            owner_references: Some(vec![owner_reference(object, request.is_standalone())]),
            ..ObjectMeta::default()
        },
        spec: WindowsMachineSpec { hypervisor_ref, provider_id: None, ..template.machine.clone() },
        status: None,
    }
}

/// Adds to the machine what its own controller would store first, its finalizer and its hypervisor, if these are certain. That saves one write.
pub fn adopted(mut machine: WindowsMachine, places: &Places<'_>) -> WindowsMachine {
    let Ok(hypervisor) = placement::choose(&machine, places) else { return machine };
    if vm_spec(&machine).is_err() || !Guard::MachineFinalizer.holds() {
        return machine;
    }
    let stored = adoption(&machine.metadata, &hypervisor);
    machine.metadata.annotations.get_or_insert_default().extend(stored);
    machine.metadata.finalizers = Some(vec![machine::FINALIZER.to_owned()]);
    machine
}

/// The labels by which Cluster API and the pool find a machine.
fn labels(object: &WindowsNodePool, request: &PoolRequest, template: &Template) -> BTreeMap<String, String> {
    let of_pool = [(POOL_LABEL, Some(capi::label_value(&object.name_any()))), (TEMPLATE_LABEL, Some(template.hash()))];
    let of_pool = of_pool.into_iter().chain(request.core_labels.clone()).filter_map(|(key, value)| Some((key.to_owned(), value?)));
    of_pool.chain(filter(object)).collect()
}

/// The watch filter's label: objects that a pool creates must be handled by the same process as the pool.
fn filter(object: &WindowsNodePool) -> Option<(String, String)> {
    object.labels().get(WATCH_FILTER_LABEL).map(|value| (WATCH_FILTER_LABEL.to_owned(), value.clone()))
}

/// The owner reference to the pool. The pool is the controller of the machine, unless a Machine is (`docs/design/cluster-api.md#pool-machines`).
pub fn owner_reference(object: &WindowsNodePool, standalone: bool) -> OwnerReference {
    OwnerReference {
        api_version: WindowsNodePool::api_version(&()).into_owned(),
        kind: WindowsNodePool::kind(&()).into_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: standalone.then_some(true),
        block_owner_deletion: standalone.then_some(true),
    }
}

/// The beginning of the pool's name and five characters that depend on `seed`: a host name that Windows accepts.
pub fn name(object: &WindowsNodePool, seed: &str) -> String {
    format!("{}{}", prefix(object), base36(seed.as_bytes(), SUFFIX))
}

/// Whether a pool with that UID owns the machine.
pub fn is_of(machine: &ObjectMeta, pool: &str) -> bool {
    capi::owner(machine.owner_references.as_ref(), INFRASTRUCTURE, "WindowsNodePool").is_some_and(|owner| owner.uid == pool)
}

/// Whether [`name`] could have created that name for a machine of the pool.
pub fn is_name_of(object: &WindowsNodePool, name: &str) -> bool {
    name.strip_prefix(&prefix(object)).is_some_and(|rest| rest.len() == SUFFIX && rest.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()))
}

fn prefix(object: &WindowsNodePool) -> String {
    let start: String = object.name_any().chars().map(|c| if c == '.' { '-' } else { c }).take(PREFIX).collect();
    format!("{}-", start.trim_end_matches('-'))
}

/// The configuration of one machine. It has the machine's name and belongs to the machine, so its token is bound to the machine.
pub fn config(object: &WindowsNodePool, machine: &WindowsMachine, spec: &WindowsBootstrapConfigSpec) -> WindowsBootstrapConfig {
    let cluster = capi::cluster_name(machine.metadata.labels.as_ref()).map(|name| (CLUSTER_NAME_LABEL.to_owned(), name.to_owned()));
    let pool = (POOL_LABEL.to_owned(), capi::label_value(&object.name_any()));
    let joins = ClusterRef::standalone(&machine.metadata).map(|cluster| [(JOINS_ANNOTATION.to_owned(), cluster.to_string())].into());
    WindowsBootstrapConfig {
        metadata: ObjectMeta {
            name: Some(machine.name_any()),
            namespace: machine.namespace(),
            labels: Some(cluster.into_iter().chain([pool]).chain(filter(object)).collect()),
            annotations: joins,
            owner_references: machine.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
        status: None,
    }
}

/// Adds to the configuration what its own controller would store first, its finalizer and its cluster, if its data is created next.
pub fn adopted_config(mut config: WindowsBootstrapConfig, machine: &WindowsMachine, cluster: &TargetCluster) -> WindowsBootstrapConfig {
    if future_provider_id(machine).is_none() || !may_have_data(cluster) || !Guard::ConfigFinalizer.holds() {
        return config;
    }
    let made_for = made_for(&config.metadata).map(|cluster| (MADE_FOR_ANNOTATION.to_owned(), cluster));
    config.metadata.annotations.get_or_insert_default().extend(made_for);
    config.metadata.finalizers = Some(vec![bootstrap_config::FINALIZER.to_owned()]);
    config
}

/// The merge patch that writes the template's changes into an existing machine: labels, annotations and the join deadline.
pub fn change(pool: &WindowsNodePool, template: &Template, machine: &WindowsMachine, up_to_date: bool) -> Option<Value> {
    // Core still edits an object that it has not adopted yet (`docs/design/cluster-api.md#ownership-before-writes`).
    if ClusterRef::of_pool(pool).is_none() {
        capi::machine_owner(machine.metadata.owner_references.as_ref())?;
    }
    let wanted = pool.spec.template.metadata.clone().unwrap_or_default();
    let deadline = template.machine.join_deadline_seconds;
    let same = deadline == machine.spec.join_deadline_seconds || !up_to_date;
    let metadata = in_place::metadata(&wanted, &machine.metadata).map(|changes| ("metadata", changes));
    let spec = (!same).then(|| ("spec", json!({ "joinDeadlineSeconds": deadline })));
    let patch: Map<String, Value> = metadata.into_iter().chain(spec).map(|(field, changes)| (field.to_owned(), changes)).collect();
    (!patch.is_empty()).then(|| patch.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster_ref::ClusterSource;
    use crate::api::name::HostName;
    use crate::domain::identity::HYPERVISOR_ANNOTATION;

    #[test]
    fn names_of_machines_are_host_names() {
        for pool in ["windows", "a", "windows-server-2022-large", "my.pool.example.com", "pool1-.x"] {
            let mut object = WindowsNodePool::new(pool, Default::default());
            object.metadata.namespace = Some("lab".into());
            let name = name(&object, "seed");
            assert!(HostName::parse(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_machine_of_a_standalone_pool_names_its_cluster_and_carries_no_label_of_cluster_api() {
        let mut pool = WindowsNodePool::new("win", Default::default());
        pool.metadata.namespace = Some("lab".into());
        let template = Template { machine: WindowsMachineSpec::default(), bootstrap: None, version: Some("v1.36.3".into()) };
        let cluster = ClusterRef { namespace: "lab".into(), source: ClusterSource::InCluster };
        let request = PoolRequest::standalone(&pool, cluster.clone());
        let made = machine(&pool, &request, &template, "win-x", Some("h1"));
        assert_eq!(ClusterRef::standalone(&made.metadata), Some(cluster));
        assert_eq!(made.labels().keys().collect::<Vec<_>>(), [TEMPLATE_LABEL, POOL_LABEL]);
        assert_eq!(made.spec.hypervisor_ref.map(|h| h.name).as_deref(), Some("h1"));
        assert_eq!(made.metadata.owner_references.unwrap()[0].controller, Some(true));
    }

    /// Their own controllers store the same as soon as they see these objects, and wait where something is missing.
    #[test]
    fn what_a_pool_makes_has_its_finalizer_once_its_hypervisor_and_its_cluster_are_certain() {
        let mut pool = WindowsNodePool::new("win", Default::default());
        pool.metadata.namespace = Some("lab".into());
        let cluster = ClusterRef { namespace: "lab".into(), source: ClusterSource::InCluster };
        let request = PoolRequest::standalone(&pool, cluster.clone());
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (named, memory, there, allowed, expected) in [
            (None, "8Gi", &["h1"][..], &[][..], Some("h1")),
            (Some("h2"), "8Gi", &["h1", "h2"], &[], Some("h2")),
            (None, "8Gi", &["h1", "h2"], &[], None),
            (Some("h2"), "8Gi", &["h1", "h2"], &["h1"], None),
            (Some("h3"), "8Gi", &["h1"], &[], None),
            (None, "much", &["h1"], &[], None),
        ] {
            let spec = WindowsMachineSpec { memory: memory.into(), ..WindowsMachineSpec::default() };
            let template = Template { machine: spec, bootstrap: None, version: None };
            let target = TargetCluster { hypervisors: listed(allowed), ..TargetCluster::standalone(cluster.clone(), None, None) };
            let places = Places { hypervisors: &listed(there), cluster: &target, failure_domain: None };
            let made = adopted(machine(&pool, &request, &template, "win-x", named), &places);
            let annotation = |key: &str| made.annotations().get(key).map(String::as_str);
            assert_eq!(annotation(HYPERVISOR_ANNOTATION), expected, "{named:?} of {there:?}");
            assert_eq!(annotation(MADE_FOR_ANNOTATION), expected.map(|_| "own/cluster"));
            assert_eq!(made.finalizers().len(), expected.iter().len());
            let endpoint = Some(capi::Endpoint { host: "10.0.0.1".into(), port: 6443 });
            for (target, is_known) in [(target.clone(), false), (TargetCluster { endpoint, ..target }, true)] {
                let config = adopted_config(config(&pool, &made, &WindowsBootstrapConfigSpec::default()), &made, &target);
                let is_adopted = is_known && expected.is_some();
                assert_eq!(config.finalizers().contains(&bootstrap_config::FINALIZER.to_owned()), is_adopted, "{named:?} {is_known}");
                assert_eq!(config.annotations().contains_key(MADE_FOR_ANNOTATION), is_adopted);
            }
        }
    }

    #[test]
    fn what_a_pool_makes_is_selected_by_the_watch_filter_that_selects_the_pool() {
        let mut pool = WindowsNodePool::new("win", Default::default());
        pool.metadata.labels = Some([(WATCH_FILTER_LABEL.to_owned(), "a".to_owned())].into());
        let template = Template { machine: WindowsMachineSpec::default(), bootstrap: None, version: None };
        let request = PoolRequest::standalone(&pool, ClusterRef { namespace: "lab".into(), source: ClusterSource::InCluster });
        let made = machine(&pool, &request, &template, "win-x", None);
        let config = config(&pool, &made, &WindowsBootstrapConfigSpec::default());
        assert_eq!((made.labels().get(WATCH_FILTER_LABEL), config.labels().get(WATCH_FILTER_LABEL)), (Some(&"a".to_owned()), Some(&"a".to_owned())));
    }
}
