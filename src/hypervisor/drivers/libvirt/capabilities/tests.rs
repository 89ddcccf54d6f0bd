//! Tests what a host is found to lack.

use super::*;
use crate::hypervisor::contract;

/// Capabilities as libvirt 9.0 writes them, without the parts that are not read.
pub const FULL: &str = "<domainCapabilities><domain>kvm</domain><os supported='yes'><enum name='firmware'><value>efi</value></enum>\
    <loader supported='yes'><enum name='secure'><value>yes</value><value>no</value></enum></loader></os>\
    <cpu><mode name='host-passthrough' supported='yes'/><mode name='host-model' supported='yes'><model>Cascadelake-Server</model>\
    <vendor>Intel</vendor><feature policy='require' name='vmx'/></mode></cpu><devices><tpm supported='yes'>\
    <enum name='model'><value>tpm-tis</value><value>tpm-crb</value></enum>\
    <enum name='backendModel'><value>passthrough</value><value>emulator</value></enum></tpm></devices></domainCapabilities>";

#[test]
fn what_a_host_lacks_is_named_with_the_field_that_asks_for_it() {
    let windows = VmSpec { nested_virtualization: true, ..contract::spec() };
    let lacks = |xml: &str, spec: &VmSpec| Capabilities::read(xml).unwrap().lacks(spec, Acceleration::Kvm).unwrap_or_default();
    assert_eq!(lacks(FULL, &windows), "");
    let plain = VmSpec { uefi: false, secure_boot: false, tpm: false, nested_virtualization: false, ..windows.clone() };
    for (there, gone, field) in [
        ("<value>efi</value>", "", "spec.firmware.type of the machine is UEFI"),
        ("<value>yes</value>", "", "spec.firmware.secureBoot of the machine is true"),
        ("<value>emulator</value>", "", "spec.firmware.tpm of the machine is true"),
        ("<tpm supported='yes'>", "<tpm supported='no'>", "spec.firmware.tpm of the machine is true"),
        ("<feature policy='require' name='vmx'/>", "", "spec.nestedVirtualization of the machine is true"),
        ("<vendor>Intel</vendor>", "<vendor>AMD</vendor><feature policy='disable' name='svm'/>", "spec.nestedVirtualization of the machine is true"),
    ] {
        assert!(FULL.contains(there));
        let xml = FULL.replace(there, gone);
        assert!(lacks(&xml, &windows).contains(field), "{field}: {}", lacks(&xml, &windows));
        assert_eq!(lacks(&xml, &plain), "", "{field}: who does not ask for it needs it not");
    }
    for unknown in
        [FULL.replace("<vendor>Intel</vendor>", "<vendor>AMD</vendor>"), FULL.replace("host-model' supported='yes'", "host-model' supported='no'")]
    {
        assert_eq!(lacks(&unknown, &windows), "");
    }
    assert_eq!((Capabilities::read(""), Capabilities::read("<domainCapabilities/>")), (None, None));
}
