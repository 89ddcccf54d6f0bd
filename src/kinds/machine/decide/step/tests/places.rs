//! The choice of a hypervisor for a machine, and the spec of its VM there.

use serde_json::json;

use super::world::{World, at, windows_machine};
use crate::api::condition::Reason;
use crate::api::machine::FINALIZER;
use crate::api::name::VmUuid;
use crate::kinds::machine::decide::step::{MachineStep, Reach, vm_spec};

#[test]
fn a_new_machine_goes_to_a_hypervisor_that_its_cluster_may_use() {
    let mut w = World::new();
    w.hypervisors.push("other".into());
    w.usable = vec!["other".into()];
    assert_eq!(w.pass().unwrap().0, MachineStep::Adopt { hypervisor: "other".into() }, "the only one that is left");
    w.usable = vec!["lab".into()];
    assert!(matches!(w.pass().unwrap().0, MachineStep::Run(target) if target.hypervisor == "other"), "the choice stays");

    let mut w = World::new();
    w.usable = vec!["other".into()];
    w.owner.spec.failure_domain = Some("lab".into());
    let (step, said) = w.pass().unwrap();
    assert_eq!((step, said[0].reason), (MachineStep::Wait, Reason::InvalidSpec));
    assert!(said[0].message.contains("Machine spec.failureDomain") && said[0].message.contains("other"), "{}", said[0].message);
}

#[test]
fn secure_boot_stays_on_with_a_tpm() {
    for (firmware, secure_boot, tpm) in [
        (json!({"tpm": true}), true, true),
        (json!({}), true, false),
        (json!({"secureBoot": false}), false, false),
        (json!({"type": "BIOS"}), false, false),
    ] {
        let mut object = windows_machine();
        object.spec.firmware = Some(serde_json::from_value(firmware.clone()).unwrap());
        let spec = vm_spec(&object).unwrap();
        assert_eq!((spec.secure_boot, spec.tpm), (secure_boot, tpm), "{firmware}");
    }
}

/// No hypervisor can have that name, so no VM can exist there.
#[test]
fn a_provider_id_that_cannot_be_does_not_hold_a_machine() {
    let mut w = World::new();
    let object = w.object.as_mut().unwrap();
    object.spec.provider_id = Some(format!("windows://a..b/{}", VmUuid::of("x")));
    object.metadata.finalizers = Some(vec![FINALIZER.into()]);
    object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(20)));
    w.reach = Reach::Missing;
    assert_eq!(w.pass().unwrap().0, MachineStep::Release);
}

#[test]
fn a_failure_domain_decides_the_hypervisor_once() {
    let mut w = World::new();
    w.hypervisors.push("other".into());
    w.owner.spec.failure_domain = Some("other".into());
    w.settle();
    w.owner.spec.failure_domain = Some("lab".into());
    w.settle();
    let object = w.object.unwrap();
    assert_eq!(object.status.unwrap().failure_domain.as_deref(), Some("other"));
    assert!(object.spec.provider_id.unwrap().starts_with("windows://other/"));
}
