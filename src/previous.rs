//! Objects as the previous release has stored them: this release reads them, loses nothing of them, and accepts them as its own. The
//! story *upgrade* checks the same with both releases; these tests cost nothing and name the place of a fault.

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::OwnKind;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::machine::WindowsMachine;
use crate::api::name::ProviderId;
use crate::api::pool::WindowsNodePool;
use crate::domain::identity::{host_name, vm_uuid};
use crate::kinds::pool::decide::template::Template;

fn objects() -> Vec<Value> {
    serde_json::from_str(include_str!("../e2e/stories/upgrade/objects.json")).unwrap()
}

fn all<K: Resource<DynamicType = ()> + DeserializeOwned>() -> Vec<K> {
    let ours = objects().into_iter().filter(|object| object["kind"] == *K::kind(&()));
    ours.map(|object| serde_json::from_value(object).unwrap()).collect()
}

/// Returns the fields of `stored` that `read` lacks, or holds with another value.
fn lost(stored: &Value, read: &Value, at: &str) -> Vec<String> {
    match (stored, read) {
        (Value::Object(stored), Value::Object(read)) => {
            let of = |(name, value): (&String, &Value)| lost(value, read.get(name).unwrap_or(&Value::Null), &format!("{at}/{name}"));
            stored.iter().flat_map(of).collect()
        }
        (Value::Array(stored), Value::Array(read)) if stored.len() == read.len() => {
            let of = |(index, (stored, read)): (usize, (&Value, &Value))| lost(stored, read, &format!("{at}/{index}"));
            stored.iter().zip(read).enumerate().flat_map(of).collect()
        }
        _ if stored == read || *stored == serde_json::json!({}) => Vec::new(),
        _ => vec![format!("{at}: {stored}, read as {read}")],
    }
}

fn lost_of(kind: &OwnKind, stored: &Value) -> Vec<String> {
    let read = (kind.round_trip)(stored).unwrap();
    ["spec", "status"].iter().flat_map(|part| lost(&stored[*part], &read[*part], part)).collect()
}

#[test]
fn nothing_that_the_release_before_has_stored_is_lost() {
    let mut kinds = std::collections::BTreeSet::new();
    for stored in objects() {
        let kind = stored["kind"].as_str().unwrap().to_owned();
        let lost = lost_of(OwnKind::of_object(&stored).unwrap_or_else(|| panic!("{kind}")), &stored);
        assert!(lost.is_empty(), "{kind} {}: {lost:#?}", stored["metadata"]["name"]);
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}

#[test]
fn machines_of_the_release_before_have_the_same_identity() {
    let machines = all::<WindowsMachine>();
    assert_eq!(machines.len(), 6);
    for machine in machines {
        let id = ProviderId::parse(machine.spec.provider_id.as_deref().unwrap()).unwrap();
        assert_eq!(id.vm, vm_uuid(&machine));
        assert_eq!(Some(host_name(&machine).unwrap().as_str()), machine.metadata.name.as_deref());
    }
}

#[test]
fn machines_of_the_release_before_are_up_to_date() {
    let (machines, configs) = (all::<WindowsMachine>(), all::<WindowsBootstrapConfig>());
    let mut compared = 0;
    for pool in all::<WindowsNodePool>() {
        let name = pool.metadata.name.as_deref().unwrap();
        let of_namespace = |meta: &kube::core::ObjectMeta| meta.namespace == pool.metadata.namespace;
        // The configuration of a MachinePool is a separate object; the machines have its Kubernetes version.
        let own = configs.iter().find(|config| of_namespace(&config.metadata) && config.metadata.name.as_deref() == Some(name));
        let bootstrap = pool.spec.template.bootstrap.clone().or_else(|| own.map(|config| config.spec.clone()));
        let version = pool.spec.version.clone().or_else(|| Some("v1.36.3".to_owned()));
        let machine = pool.spec.template.machine.clone().unwrap();
        let hash = Template { machine, bootstrap, version }.hash();
        let members = machines.iter().filter(|machine| of_namespace(&machine.metadata));
        for machine in members {
            assert_eq!(machine.metadata.labels.as_ref().unwrap()["infrastructure.cluster.x-k8s.io/template-hash"], hash, "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 4);
}
