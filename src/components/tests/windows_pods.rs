//! Tests of the objects for Windows pods, and of their changes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::windows_side::is_ours;
use crate::api::bootstrap_config::WindowsRelease::{self, Server2019, Server2022, Server2025};
use crate::api::components::{Policies, RuntimeClassesMode, ValidationMode};
use crate::components::{Host, ObjectRef, changes, owned, removed, wanted_for_pods, windows_pods};

const OWNER: &str = "lab/c1";

fn host((release, hyper_v): (WindowsRelease, bool)) -> Host {
    Host { release, hyper_v }
}

fn rendered(hosts: &[(WindowsRelease, bool)]) -> Vec<Value> {
    windows_pods(&hosts.iter().copied().map(host).collect(), &Policies { validation: ValidationMode::Off, ..Policies::default() })
}

/// Whether an object is removed with the others.
fn is_removed(object: &Value, all: &[Value]) -> bool {
    let there: Vec<String> = all.iter().map(|object| ObjectRef::of(object).to_string()).collect();
    removed(&wanted_for_pods(&Policies::OFF, &there)).iter().any(|(_, of)| *of == ObjectRef::of(object))
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn each_release_has_a_class_and_another_where_pods_may_have_virtual_machines() {
    for (hosts, expected) in [
        (vec![], vec![]),
        (vec![(Server2019, false)], vec!["windows-2019"]),
        (vec![(Server2025, false), (Server2022, false)], vec!["windows-2022", "windows-2025"]),
        (vec![(Server2022, true)], vec!["windows-2022", "windows-2022-hyperv"]),
        (vec![(Server2022, false), (Server2022, true), (Server2019, false)], vec!["windows-2019", "windows-2022", "windows-2022-hyperv"]),
    ] {
        let objects = rendered(&hosts);
        assert_eq!(names(&objects), expected, "{hosts:?}");
        assert!(objects.iter().all(is_ours), "{objects:#?}");
        // `Off` finds every installed object.
        assert!(objects.iter().all(|object| is_removed(object, &objects)));
    }
    assert!(windows_pods(&BTreeSet::from([host((Server2022, true))]), &Policies::OFF).is_empty());
}

/// Users who do not want CAPW to manage the classes apply the sample.
#[test]
fn the_sample_has_what_capw_makes() {
    let sample: Vec<Value> = serde_saphyr::from_multiple(include_str!("../../../config/samples/runtime-classes.yaml")).unwrap();
    let mut made = rendered(&[(Server2022, false), (Server2025, true)]);
    for class in &mut made {
        class["metadata"].as_object_mut().unwrap().remove("labels");
    }
    assert_eq!(made, sample);
}

#[test]
fn nodes_tell_which_hosts_have_joined() {
    let node = |labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": labels.to_string(), "labels": labels}});
    let windows = |build: &str| json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build});
    let mut isolating = windows("10.0.26100");
    isolating["infrastructure.cluster.x-k8s.io/hyper-v-isolation"] = json!("true");
    let mut not_isolating = windows("10.0.17763");
    not_isolating["infrastructure.cluster.x-k8s.io/hyper-v-isolation"] = json!("false");
    for (labels, expected) in [
        (windows("10.0.20348"), Some((Server2022, false))),
        (isolating, Some((Server2025, true))),
        (not_isolating, Some((Server2019, false))),
        // Releases out of support.
        (windows("10.0.25398"), None),
        (windows("10.0.19042"), None),
        (json!({"kubernetes.io/os": "windows"}), None),
        (json!({"kubernetes.io/os": "linux", "node.kubernetes.io/windows-build": "10.0.20348"}), None),
        (json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": 20348}), None),
    ] {
        assert_eq!(Host::joined(&[node(labels.clone())]), expected.map(host).into_iter().collect::<BTreeSet<_>>(), "{labels}");
    }
}

#[test]
fn only_what_is_not_as_it_shall_be_changes() {
    let desired = owned(rendered(&[(Server2022, false)]), OWNER);
    let class = |hosts: &[(WindowsRelease, bool)], owner: &str| owned(rendered(hosts), owner).remove(0);
    let with = |pointer: &str, value: Value| {
        let mut class = desired[0].clone();
        *class.pointer_mut(pointer).unwrap() = value;
        class
    };
    let mut more = desired[0].clone();
    more["metadata"]["annotations"]["a"] = json!("b");
    let of_pools = "/scheduling/nodeSelector/node.kubernetes.io~1windows-build";
    // The numbers for each existing object: outdated, replaced, unneeded, taken.
    for (live, expected) in [
        (None, [1, 0, 0, 0]),
        (Some(desired[0].clone()), [0, 0, 0, 0]),
        (Some(more), [0, 0, 0, 0]),
        (Some(with(of_pools, json!("10.0.1"))), [1, 0, 0, 0]),
        (Some(with("/handler", json!("runc"))), [1, 1, 0, 0]),
        (Some(with("/metadata/labels", json!({}))), [0, 0, 0, 1]),
        (Some(class(&[(Server2022, false)], "lab/c2")), [0, 0, 0, 1]),
        (Some(class(&[(Server2019, false)], OWNER)), [1, 0, 1, 0]),
        (Some(class(&[(Server2019, false)], "lab/c2")), [1, 0, 0, 0]),
        // An object that a person applied with CAPW's label.
        (Some(json!({"kind": "RuntimeClass", "metadata": {"name": "gvisor", "labels": {"app.kubernetes.io/managed-by": "capw"}}})), [1, 0, 0, 0]),
        (Some(json!({"kind": "RuntimeClass", "metadata": {"name": "windows-2019"}})), [1, 0, 0, 0]),
    ] {
        let objects: Vec<Value> = live.into_iter().collect();
        let found = changes(&desired, &objects, OWNER);
        let counts = [found.outdated.len(), found.replaced.len(), found.unneeded.len(), found.taken.len()];
        assert_eq!(counts, expected, "{objects:#?}");
        assert_eq!(found.kept.len() + found.taken.len(), 1, "what is taken is not kept");
    }
}

/// A policy that is switched off removes only its own objects.
#[test]
fn policies_come_go_and_change_by_themselves() {
    let objects =
        |validation| owned(windows_pods(&BTreeSet::from([host((Server2022, false))]), &Policies { validation, ..Policies::default() }), OWNER);
    let [off, warn, deny] = [ValidationMode::Off, ValidationMode::Warn, ValidationMode::Deny].map(objects);
    assert!(warn.iter().all(is_ours), "{warn:#?}");
    assert!(warn.iter().all(|object| is_removed(object, &warn)));
    assert!(!is_removed(&warn[0], &[]), "who never asked for policies need not allow CAPW to read them");
    let mut foreign = warn.clone();
    foreign[1]["metadata"]["labels"] = json!({});
    // The desired objects, the existing objects, and the numbers: outdated, replaced, unneeded, taken.
    for (desired, live, expected) in [
        (&warn, &off, [6, 0, 0, 0]),
        (&warn, &warn, [0, 0, 0, 0]),
        (&deny, &warn, [1, 0, 0, 0]),
        (&warn, &deny, [1, 0, 0, 0]),
        (&off, &deny, [0, 0, 6, 0]),
        (&warn, &foreign, [0, 0, 0, 1]),
        (&off, &foreign, [0, 0, 5, 0]),
    ] {
        let found = changes(desired, live, OWNER);
        assert_eq!([found.outdated.len(), found.replaced.len(), found.unneeded.len(), found.taken.len()], expected);
    }
}

/// A user who switches a policy off need not grant the permissions for it.
#[test]
fn only_the_kinds_of_what_is_asked_for_or_there_are_read() {
    use RuntimeClassesMode::Auto;
    const CLASSES: &str = "runtimeclasses";
    const POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    for (runtime_classes, validation, there, expected) in [
        (Auto, ValidationMode::Warn, vec![], [&[CLASSES][..], &POLICIES[..]].concat()),
        (Auto, ValidationMode::Off, vec![], vec![CLASSES]),
        (RuntimeClassesMode::Off, ValidationMode::Deny, vec![], POLICIES.to_vec()),
        (RuntimeClassesMode::Off, ValidationMode::Off, vec![], vec![]),
        (RuntimeClassesMode::Off, ValidationMode::Off, vec!["RuntimeClass windows-2022"], vec![CLASSES]),
        (RuntimeClassesMode::Off, ValidationMode::Off, vec!["ValidatingAdmissionPolicy capw-windows-pods"], vec![POLICIES[0]]),
    ] {
        let there: Vec<String> = there.into_iter().map(str::to_owned).collect();
        let found: Vec<&str> = wanted_for_pods(&Policies { runtime_classes, validation }, &there).iter().map(|kind| kind.plural).collect();
        assert_eq!(found, expected, "{runtime_classes:?} {validation:?} {there:?}");
    }
}
