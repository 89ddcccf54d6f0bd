//! The state that an upgrade must preserve, and the writes since then.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::installed::PARTS;
use crate::workers::REMOTE_USER;
use crate::world::{AuditEvent, AuditMark, ControlPlane, Kind, simulated_vms, text};

/// Namespaces in which nothing is in progress.
const SETTLED: [&str; 3] = ["deployed", "pooled", "alone"];
const KINDS: [Kind; 8] = [
    Kind::MACHINE,
    Kind::WINDOWS_CLUSTER,
    Kind::WINDOWS_HYPERVISOR,
    Kind::WINDOWS_MACHINE,
    Kind::WINDOWS_NODE_POOL,
    Kind::WINDOWS_BOOTSTRAP_CONFIG,
    Kind::EXTERNAL_CONTROL_PLANE,
    Kind::SECRET,
];

/// The content of the settled namespaces, by place.
pub struct State {
    all: BTreeMap<String, Value>,
    warnings: Vec<String>,
}

impl State {
    pub async fn of(cp: &ControlPlane, vms: &Path) -> Self {
        let (mut all, mut warnings) = (BTreeMap::new(), Vec::new());
        let machines = cp.list(Kind::WINDOWS_MACHINE, None).await;
        for namespace in SETTLED {
            for kind in KINDS {
                for object in cp.list(kind, Some(namespace)).await {
                    all.insert(format!("{} {namespace}/{}", kind.plural, text(&object, "/metadata/name")), lasting(&object));
                }
            }
            let events = cp.list(Kind::EVENT, Some(namespace)).await;
            let bad = events.iter().filter(|event| event["type"] == "Warning" && text(event, "/reportingComponent").contains("capw"));
            warnings.extend(bad.map(|event| format!("{}: {}", text(event, "/involvedObject/name"), text(event, "/message"))));
        }
        for node in cp.list(Kind::NODE, None).await {
            let name = text(&node, "/metadata/name");
            let is_settled = |machine: &&Value| SETTLED.contains(&text(machine, "/metadata/namespace"));
            if machines.iter().filter(is_settled).any(|machine| text(machine, "/metadata/name") == name) {
                let of = |pointer: &str| node.pointer(pointer).cloned();
                all.insert(format!("node {name}"), json!([of("/metadata/uid"), of("/metadata/labels"), of("/spec/taints"), of("/spec/providerID")]));
            }
        }
        for vm in simulated_vms(vms) {
            if SETTLED.iter().any(|namespace| vm.datacenter.split('.').next() == Some(namespace)) {
                let record = std::fs::read(vms.join(&vm.datacenter).join(&vm.directory).join("vm.json")).unwrap_or_default();
                all.insert(format!("VM {}/{}", vm.datacenter, vm.directory), serde_json::from_slice(&record).unwrap_or_default());
            }
        }
        assert!(all.len() > 30, "too little is compared: {:?}", all.keys());
        Self { all, warnings }
    }

    /// Panics unless the state is as before, with at most one write by ours for each object, none refused, and no new warning.
    pub fn assert_as(&self, before: &Self, cp: &ControlPlane, since: AuditMark) {
        let mut places: Vec<&String> = before.all.keys().chain(self.all.keys()).collect();
        places.sort();
        places.dedup();
        let differ = places.into_iter().filter(|place| before.all.get(*place) != self.all.get(*place));
        let differ: Vec<String> = differ
            .map(|place| format!("{place}:\n  {:?}\n  {:?}", before.all.get(place).map(Value::to_string), self.all.get(place).map(Value::to_string)))
            .collect();
        assert!(differ.is_empty(), "these have changed:\n{}", differ.join("\n"));

        let ours: Vec<AuditEvent> = cp.audit_since(since).into_iter().filter(by_ours).collect();
        let refused: Vec<&AuditEvent> = ours.iter().filter(|event| event.code == 403).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let mut writes: BTreeMap<String, Vec<&AuditEvent>> = BTreeMap::new();
        let changed = |event: &&AuditEvent| event.is_write() && event.code < 300 && SETTLED.contains(&event.namespace.as_str());
        for event in ours.iter().filter(changed) {
            writes.entry(format!("{} {}/{}", event.resource, event.namespace, event.name)).or_default().push(event);
        }
        writes.retain(|_, writes| writes.len() > 1);
        assert!(writes.is_empty(), "these were written more than once: {writes:#?}");
        let new: Vec<&String> = self.warnings.iter().filter(|warning| !before.warnings.contains(warning)).collect();
        assert!(new.is_empty(), "{new:#?}");
    }
}

/// Writes our objects as stored, without Secrets.
pub async fn keep(cp: &ControlPlane, file: &Path) {
    let mut kept = Vec::new();
    for kind in KINDS.into_iter().chain([Kind::WINDOWS_MACHINE_TEMPLATE, Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE]) {
        for namespace in SETTLED {
            kept.extend(
                cp.list(kind, Some(namespace))
                    .await
                    .into_iter()
                    .filter(|object| text(object, "/kind").starts_with("Windows") || text(object, "/kind") == "ExternalControlPlane"),
            );
        }
    }
    for object in &mut kept {
        object["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    }
    let text = serde_json::to_string_pretty(&kept).expect("JSON");
    std::fs::write(file, text + "\n").unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// Whether one of our components sent the request, in the management cluster or in the workload cluster.
pub fn by_ours(event: &AuditEvent) -> bool {
    let is_part = PARTS.iter().any(|(_, namespace)| event.user == format!("system:serviceaccount:{namespace}:capw-controller-manager"));
    let is_remote = event.user == REMOTE_USER && !event.user_agent.contains("cluster-api") && !event.user_agent.starts_with("capi-core");
    (is_part || is_remote) && !["leases", "events"].contains(&event.resource.as_str())
}

/// The lasting fields of an object. Values of a Secret are shown by their digest.
fn lasting(object: &Value) -> Value {
    let data = object.get("data").filter(|_| object.get("spec").is_none());
    let digest: String = data.map(|data| Sha256::digest(data.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()).unwrap_or_default();
    let of = |field: &str| object["metadata"][field].clone();
    json!({
        "uid": of("uid"), "labels": of("labels"), "annotations": of("annotations"), "owners": of("ownerReferences"), "finalizers": of("finalizers"),
        "spec": object["spec"], "data": digest, "conditions": statuses(object),
    })
}

/// The statuses of conditions by type, without messages.
fn statuses(object: &Value) -> BTreeMap<String, String> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().map(|it| (text(it, "/type").to_owned(), text(it, "/status").to_owned())).collect()
}
