//! The identity of a machine: its hypervisor, its VM, its provider ID and its host name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::cluster_ref::{MADE_FOR_ANNOTATION, made_for};
use crate::api::machine::WindowsMachine;
use crate::api::name::{HostName, NameError, ProviderId, VmUuid};
use crate::vm::MachineKey;

/// The API group of WindowsMachine and WindowsNodePool, as in owner references.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// The hypervisor chosen for a machine. It is set together with the finalizer, before the first call, and never changes.
pub const HYPERVISOR_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/windows-hypervisor";

/// The Kubernetes version that a machine of a pool was created for. Cluster API knows it only once the Node exists.
pub const VERSION_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/kubernetes-version";

/// Returns the hypervisor that was chosen for this machine, if it was adopted: from its provider ID, which cannot change, or from the annotation.
pub fn chosen(object: &WindowsMachine) -> Option<String> {
    provider_id(object).map(|id| id.hypervisor).or_else(|| annotated(&object.metadata).map(str::to_owned))
}

/// Returns the annotations that are stored with the finalizer of a machine: its hypervisor and its cluster.
pub fn adoption(machine: &ObjectMeta, hypervisor: &str) -> BTreeMap<String, String> {
    let cluster = made_for(machine).map(|cluster| (MADE_FOR_ANNOTATION.to_owned(), cluster));
    [(HYPERVISOR_ANNOTATION.to_owned(), hypervisor.to_owned())].into_iter().chain(cluster).collect()
}

/// Returns the hypervisor that the annotation of a machine names.
pub fn annotated(machine: &ObjectMeta) -> Option<&str> {
    machine.annotations.as_ref()?.get(HYPERVISOR_ANNOTATION).map(String::as_str)
}

/// Returns the provider ID in the spec, if it is one of ours.
pub fn provider_id(object: &WindowsMachine) -> Option<ProviderId> {
    object.spec.provider_id.as_deref().and_then(|id| ProviderId::parse(id).ok())
}

/// Returns the provider ID that the machine has or will have, once its hypervisor is chosen.
pub fn future_provider_id(object: &WindowsMachine) -> Option<ProviderId> {
    Some(ProviderId { hypervisor: chosen(object)?, vm: vm_uuid(object) })
}

/// Returns the identity of the VM: from the provider ID if that is set (it survives `clusterctl move`), else computed from the UID.
pub fn vm_uuid(object: &WindowsMachine) -> VmUuid {
    provider_id(object).map_or_else(|| own_vm(&object.metadata), |id| id.vm)
}

/// Returns the identity of the VM that belongs to the UID of a machine.
pub fn own_vm(machine: &ObjectMeta) -> VmUuid {
    VmUuid::of(machine.uid.as_deref().unwrap_or_default())
}

/// Whether the machine's VM does not belong to its own UID: the machine was moved or restored, or is a copy of another object.
pub fn is_inherited(object: &WindowsMachine) -> bool {
    vm_uuid(object) != own_vm(&object.metadata)
}

/// Whether `one` is the owner of the VM that both objects name: the object whose UID the VM was computed from, else the older object.
pub fn is_first_of(one: &WindowsMachine, other: &WindowsMachine) -> bool {
    let rank = |object: &WindowsMachine| {
        let created = object.metadata.creation_timestamp.as_ref().map(|created| created.0);
        (is_inherited(object), created, object.metadata.uid.clone())
    };
    rank(one) <= rank(other)
}

/// Returns the host name of the VM, which is the name of its Node.
pub fn host_name(object: &WindowsMachine) -> Result<HostName, NameError> {
    HostName::choose(object.metadata.name.as_deref().unwrap_or_default(), vm_uuid(object), object.spec.host_name)
}

/// The name and provider ID that the Node of a machine must have. The name is in the certificate of its kubelet, which was approved for this
/// machine only; the kubelet reports the provider ID. Either of them alone proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: HostName,
    pub provider_id: ProviderId,
}

impl NodeIdentity {
    /// Returns the identity from the object. Only the caches show whether another object has the same. `None` while the machine has no hypervisor:
    /// then it has no Node either.
    pub fn of(object: &WindowsMachine) -> Option<Self> {
        Some(Self { name: host_name(object).ok()?, provider_id: future_provider_id(object)? })
    }

    /// Whether that Node belongs to the machine.
    pub fn is_of(&self, node: &Node) -> bool {
        let said = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        node.metadata.name.as_deref() == Some(self.name.as_str()) && said == Some(&self.provider_id.to_string())
    }
}

/// Returns the key of the VM that belongs to the object.
pub fn key(object: &WindowsMachine) -> MachineKey {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let cluster = made_for(&object.metadata).unwrap_or_default();
    MachineKey { vm: vm_uuid(object), cluster: format!("{namespace}/{cluster}"), name: object.metadata.name.as_deref().unwrap_or_default().into() }
}

/// Whether Cluster API was notified that the machine is provisioned; this is never revoked.
pub fn is_provisioned(object: &WindowsMachine) -> bool {
    object.status.as_ref().and_then(|s| s.initialization.as_ref()).and_then(|i| i.provisioned) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_a_machines_if_its_name_and_its_whole_provider_id_are() {
        let vm = "3f2504e0-4f89-51d3-9a0c-0305e82c3301";
        let object: WindowsMachine =
            serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "win-1", "namespace": "lab", "uid": "u"}, "spec": {"image": "w", "providerID": format!("windows://lab/{vm}")}}))
            .unwrap();
        let identity = NodeIdentity::of(&object).unwrap();
        for (name, provider_id, expected) in [
            ("win-1", Some(format!("windows://lab/{vm}")), true),
            // A compromised node reports the provider ID of this machine.
            ("win-2", Some(format!("windows://lab/{vm}")), false),
            ("win-1", Some(format!("windows://other/{vm}")), false),
            ("win-1", Some("windows://lab/3f2504e0-4f89-51d3-9a0c-0305e82c3302".to_owned()), false),
            ("win-1", None, false),
        ] {
            let node: Node = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}})).unwrap();
            assert_eq!(identity.is_of(&node), expected, "{name} {provider_id:?}");
        }
        let unplaced = WindowsMachine { spec: Default::default(), ..object };
        assert_eq!(NodeIdentity::of(&unplaced), None, "no hypervisor, no Node");
    }

    /// The owner mark names the cluster: if it changed, the machine's own VM would be treated as another cluster's VM.
    #[test]
    fn a_label_that_comes_later_does_not_change_which_vm_belongs_to_a_machine() {
        let machine = |metadata: serde_json::Value| -> WindowsMachine {
            let mut all = json!({"name": "m", "namespace": "lab", "uid": "u"});
            json_patch::merge(&mut all, &metadata);
            serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
                "metadata": all, "spec": {"image": "w"}}))
            .unwrap()
        };
        let joins = "infrastructure.cluster.x-k8s.io/joins";
        let before = key(&machine(json!({"annotations": {joins: "own/cluster"}})));
        let label = json!({"cluster.x-k8s.io/cluster-name": "c1"});
        assert_eq!(key(&machine(json!({"annotations": {joins: "own/cluster"}, "labels": label}))), before);
        let adopted = json!({"annotations": {"infrastructure.cluster.x-k8s.io/made-for": "own/cluster"}, "labels": label});
        assert_eq!(key(&machine(adopted)), before);
    }

    fn machine(uid: &str, provider_id: Option<String>, annotated: Option<&str>) -> WindowsMachine {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "m", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotated.map(|h| json!({HYPERVISOR_ANNOTATION: h}))},
            "spec": {"image": "w", "providerID": provider_id}}))
        .unwrap()
    }

    #[test]
    fn the_provider_id_says_where_the_vm_is_whatever_the_annotation_says() {
        let id = format!("windows://munich/{}", VmUuid::of("a"));
        for (provider_id, annotated, hypervisor) in [
            (Some(id.clone()), Some("vienna"), Some("munich")),
            (Some(id), None, Some("munich")),
            (Some("vsphere://x".to_owned()), Some("vienna"), Some("vienna")),
            (None, Some("vienna"), Some("vienna")),
            (None, None, None),
        ] {
            assert_eq!(chosen(&machine("a", provider_id.clone(), annotated)).as_deref(), hypervisor, "{provider_id:?} {annotated:?}");
        }
    }

    #[test]
    fn a_vm_belongs_to_the_object_that_it_was_made_for_else_to_the_older_one() {
        let id = Some(format!("windows://munich/{}", VmUuid::of("b")));
        let (original, copy) = (machine("b", id.clone(), None), machine("a", id.clone(), None));
        assert!(!is_inherited(&original) && is_inherited(&copy));
        assert!(is_first_of(&original, &copy) && !is_first_of(&copy, &original));
        let mut later = machine("0", id, None);
        later.metadata.creation_timestamp.as_mut().unwrap().0 += jiff::SignedDuration::from_secs(1);
        assert!(is_first_of(&copy, &later) && !is_first_of(&later, &copy), "both restored");
    }
}
