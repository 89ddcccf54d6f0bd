//! The part of the story about the end: a Cluster is deleted and its workload cluster stays. Only CAPW's components go, with the last machine;
//! a workload cluster that is unreachable does not block the deletion for long.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::policies::{POLICIES, POLICY_BINDINGS};
use super::runtime_classes::RUNTIME_CLASSES;
use super::{BROUGHT, COMPONENTS, DAEMON_SETS, LIMIT, run, says};
use crate::workers::{REMOTE_USER, Workers};
use crate::world::{AuditEvent, Capw, ControlPlane, Forward, Kind, free_port, step, text, wait_for};

const CLUSTER_ROLE_BINDINGS: Kind = Kind::new("rbac.authorization.k8s.io/v1", "clusterrolebindings");
/// The kinds of components that are cluster-scoped.
const ONCE: [Kind; 6] = [Kind::NAMESPACE, Kind::CLUSTER_ROLE, CLUSTER_ROLE_BINDINGS, RUNTIME_CLASSES, POLICIES, POLICY_BINDINGS];
/// How long CAPW tries to remove its components before it gives up.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// The remaining components of this WindowsCluster, each with its UID. A namespace is deleted when the namespace controller has emptied it.
pub async fn left(cp: &ControlPlane, name: &str) -> Vec<String> {
    let mut left = Vec::new();
    for kind in ONCE {
        let mut found = cp.list(kind, None).await;
        found.retain(|object| is_brought(object, name));
        left.extend(found.iter().map(|object| format!("{} {} {}", kind.plural, text(object, "/metadata/name"), text(object, "/metadata/uid"))));
    }
    left
}

fn is_brought(object: &Value, name: &str) -> bool {
    text(object, "/metadata/labels/app.kubernetes.io~1part-of") == "capw"
        && text(object, "/metadata/annotations/infrastructure.cluster.x-k8s.io~1windows-cluster") == name
}

/// Waits until no component of this WindowsCluster remains.
pub async fn wait_gone(cp: &ControlPlane, name: &str) {
    wait_for("what was brought is gone", LIMIT, || async {
        let left = left(cp, name).await;
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
}

/// The full content of every object that is no component, for the kinds that have components.
async fn others(cp: &ControlPlane, name: &str) -> BTreeMap<String, String> {
    let mut others = BTreeMap::new();
    for kind in ONCE.into_iter().chain([DAEMON_SETS, Kind::CONFIG_MAP]) {
        for object in cp.list(kind, None).await {
            let namespace = text(&object, "/metadata/namespace");
            if namespace != BROUGHT && !is_brought(&object, name) {
                others.insert(format!("{} {namespace}/{}", kind.plural, text(&object, "/metadata/name")), object.to_string());
            }
        }
    }
    others
}

async fn bring(cp: &ControlPlane, name: &str) {
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
}

pub async fn it_goes_with_its_cluster(cp: &ControlPlane) {
    let workers = Workers { replicas: 1, ..Workers::new("gone", cp).await };
    let name = workers.name(&workers.cluster);
    workers.apply(cp).await;
    workers.wait_settled(cp, cp, LIMIT).await;
    let foreign = |name: &str| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc"});
    // One of them has a name that CAPW gives to such objects.
    cp.apply_objects(&[foreign("windows-own"), foreign("windows-2025")]).await;
    let before = others(cp, &name).await;
    bring(cp, &name).await;
    says(cp, &name, COMPONENTS, "PartNotReady", &["flannel: 0 of 1", "kube-proxy: 0 of 1"]).await;
    let brought = left(cp, &name).await;
    assert_eq!(brought.len(), 11, "{brought:?}");

    let mark = cp.audit_mark();
    cp.delete(Kind::CLUSTER, &name).await;
    workers.wait_gone(cp, LIMIT).await;
    wait_gone(cp, &name).await;
    assert_eq!(others(cp, &name).await, before, "what is not CAPW's is as it was");
    let events = cp.audit_since(mark);
    let last = |is: &dyn Fn(&AuditEvent) -> bool| events.iter().rposition(is).expect("such a request");
    let machine =
        last(&|event| event.user == Capw::USER && event.verb == "patch" && event.resource == "windowsmachines" && event.subresource.is_empty());
    let namespace = last(&|event| event.user == REMOTE_USER && event.verb == "delete" && event.name == BROUGHT);
    assert!(machine < namespace, "it went before the last machine: {:?} {:?}", events[machine], events[namespace]);
    let control_plane = last(&|event| event.user == Capw::USER && event.verb == "patch" && event.resource == "externalcontrolplanes");
    assert!(namespace < control_plane, "the kubeconfig went first: {:?} {:?}", events[namespace], events[control_plane]);
    cp.kubectl(&["delete", "runtimeclasses", "windows-own", "windows-2025"]).await;
    step("what was brought went with its Cluster, after the last machine, and nothing else");
}

pub async fn it_is_told_where_the_cluster_cannot_be_reached(cp: &ControlPlane) {
    let (port, server) = (free_port(), cp.server());
    let way = Forward::start(port, server.trim_start_matches("https://")).await;
    let mut workers = Workers { replicas: 0, ..Workers::new("cut", cp).await };
    assert!(workers.kubeconfig.contains(&server), "{server}");
    workers.kubeconfig = workers.kubeconfig.replace(&server, &format!("https://127.0.0.1:{port}"));
    let name = workers.name(&workers.cluster);
    workers.apply(cp).await;
    bring(cp, &name).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, COMPONENTS, "True", LIMIT).await;

    drop(way);
    let brought = left(cp, &name).await;
    cp.delete(Kind::CLUSTER, &name).await;
    says(cp, &name, COMPONENTS, "WorkloadClusterUnreachable", &["is not removed yet"]).await;
    let held = cp.wait_condition(Kind::EXTERNAL_CONTROL_PLANE, &name, "Deleting", "True", LIMIT).await;
    assert!(text(&held, "/message").contains("WindowsCluster c1 removes"), "{held}");
    workers.wait_gone(cp, GIVEN_UP + LIMIT).await;
    let events = cp.events(&workers.namespace, &workers.cluster).await;
    let told = events.iter().find(|event| event.starts_with("Warning LeftBehind: ")).unwrap_or_else(|| panic!("{events:#?}"));
    for part in ["Cluster c1", &format!("https://127.0.0.1:{port}"), "does not answer", "namespace/capw-windows"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(left(cp, &name).await, brought, "nothing was removed");
    step("a workload cluster that does not answer held the Cluster for a while, and what stays is told");

    let command = told.split('`').nth(1).expect("a command");
    run(cp, command).await;
    assert_eq!(left(cp, &name).await, [""; 0], "{command}");
    step("the command of the event removes it");
}
