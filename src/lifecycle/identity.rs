//! What identifies a machine: its hypervisor, its VM, its provider ID and its host name.

use crate::api::cluster_ref::made_for;
use crate::api::machine::WindowsMachine;
use crate::api::name::{HostName, NameError, ProviderId, VmUuid};
use crate::vm::MachineKey;

/// Group of WindowsMachine and WindowsNodePool, as in owner references.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// The hypervisor chosen for a machine; set together with the finalizer, before the first call, and never changed.
pub const HYPERVISOR_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/windows-hypervisor";

/// Version of Kubernetes that a machine of a pool was made for. Cluster API knows it only once the Node is there.
pub const VERSION_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/kubernetes-version";

/// The hypervisor that was chosen for this machine, if it was adopted: what its provider ID says, which cannot change, or the annotation.
pub fn chosen(object: &WindowsMachine) -> Option<String> {
    let annotated = || object.metadata.annotations.as_ref().and_then(|a| a.get(HYPERVISOR_ANNOTATION)).cloned();
    provider_id(object).map(|id| id.hypervisor).or_else(annotated)
}

/// The provider ID in the spec, if it is one of ours.
pub fn provider_id(object: &WindowsMachine) -> Option<ProviderId> {
    object.spec.provider_id.as_deref().and_then(|id| ProviderId::parse(id).ok())
}

/// The provider ID that the machine has or will have, once its hypervisor is chosen.
pub fn future_provider_id(object: &WindowsMachine) -> Option<ProviderId> {
    Some(ProviderId { hypervisor: chosen(object)?, vm: vm_uuid(object) })
}

/// Identity of the VM: from the provider ID once there is one (it survives `clusterctl move`), else computed from the UID.
pub fn vm_uuid(object: &WindowsMachine) -> VmUuid {
    provider_id(object).map_or_else(|| VmUuid::of(object.metadata.uid.as_deref().unwrap_or_default()), |id| id.vm)
}

/// Whether its VM is not the one that its own UID stands for: it was moved or restored, or it is a copy of another object.
pub fn is_inherited(object: &WindowsMachine) -> bool {
    vm_uuid(object) != VmUuid::of(object.metadata.uid.as_deref().unwrap_or_default())
}

/// Of two objects that name the same VM, whether it is the first one's: that of the one whose UID it was computed from, else of the older one.
pub fn is_first_of(one: &WindowsMachine, other: &WindowsMachine) -> bool {
    let rank = |object: &WindowsMachine| {
        let created = object.metadata.creation_timestamp.as_ref().map(|created| created.0);
        (is_inherited(object), created, object.metadata.uid.clone())
    };
    rank(one) <= rank(other)
}

/// Host name of the VM and name of its Node.
pub fn host_name(object: &WindowsMachine) -> Result<HostName, NameError> {
    HostName::choose(object.metadata.name.as_deref().unwrap_or_default(), vm_uuid(object), object.spec.host_name)
}

/// Which VM belongs to the object.
pub fn key(object: &WindowsMachine) -> MachineKey {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let cluster = made_for(&object.metadata).unwrap_or_default();
    MachineKey { vm: vm_uuid(object), cluster: format!("{namespace}/{cluster}"), name: object.metadata.name.as_deref().unwrap_or_default().into() }
}

/// True once Cluster API was told so; it is never taken back.
pub fn is_provisioned(object: &WindowsMachine) -> bool {
    object.status.as_ref().and_then(|s| s.initialization.as_ref()).and_then(|i| i.provisioned) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
