//! The virtual hardware of a VM, except its disks and networks.

use crate::api::hypervisor::{Acceleration, Console, Libvirt};
use crate::hypervisor::DriverError;
use crate::vm::VmSpec;
use crate::xml::{Element, element};

/// The architecture and machine type that QEMU emulates.
pub const ARCHITECTURE: &str = "x86_64";
pub const MACHINE: &str = "q35";
/// The most processors of a VM: QEMU supports more only with an IOMMU that remaps interrupts.
const MOST_CPUS: u32 = 255;
/// The largest number of a processor (its APIC ID) that works without such an IOMMU.
const LAST_APIC_ID: u32 = 254;
/// The most sockets whose processors Windows counts, and the most processors of one socket in one group.
const WINDOWS: u32 = 64;
/// The processor features for virtualization, of Intel and AMD.
const VIRTUALIZATION: [&str; 2] = ["vmx", "svm"];

/// Refuses hardware that libvirt cannot give to a VM on any host.
pub fn check(spec: &VmSpec, settings: &Libvirt) -> Result<(), DriverError> {
    if spec.cpus > MOST_CPUS {
        return Err(DriverError::Invalid(format!(
            "spec.cpus is {}, and a VM of libvirt has at most {MOST_CPUS} processors: lower spec.cpus of the machine",
            spec.cpus
        )));
    }
    if spec.nested_virtualization && settings.acceleration == Acceleration::Tcg {
        return Err(DriverError::Invalid(
            "spec.nestedVirtualization is true, and with spec.libvirt.acceleration TCG of the WindowsHypervisor no guest has virtualization: set acceleration to KVM, or spec.nestedVirtualization of the machine to false".into(),
        ));
    }
    Ok(())
}

/// Returns libvirt's domain type for an acceleration.
pub fn domain_type(acceleration: Acceleration) -> &'static str {
    match acceleration {
        Acceleration::Kvm => "kvm",
        Acceleration::Tcg => "qemu",
    }
}

pub fn firmware(spec: &VmSpec) -> Element {
    let machine = element("type").attribute("arch", ARCHITECTURE).attribute("machine", MACHINE).text("hvm");
    let boot = element("boot").attribute("dev", "hd");
    if !spec.uefi {
        return element("os").with(machine).with(boot);
    }
    let enabled = if spec.secure_boot { "yes" } else { "no" };
    let features = ["secure-boot", "enrolled-keys"].map(|name| element("feature").attribute("enabled", enabled).attribute("name", name));
    element("os").attribute("firmware", "efi").with(machine).with(element("firmware").with_all(features)).with(boot)
}

/// Builds the features by which Windows recognizes that it is a guest.
pub fn features(spec: &VmSpec) -> Element {
    let on = |name: &'static str| element(name).attribute("state", "on");
    let hyperv = element("hyperv").with(on("relaxed")).with(on("vapic")).with(on("spinlocks").attribute("retries", 8191));
    element("features").with(element("acpi")).with(element("apic")).with(hyperv).with_all((spec.uefi && spec.secure_boot).then(|| on("smm")))
}

/// Builds the processor with its topology. libvirt's default is one socket per processor, and Windows ignores sockets from the 65th on.
pub fn processor(spec: &VmSpec, acceleration: Acceleration) -> Element {
    let mode = match acceleration {
        Acceleration::Kvm => "host-passthrough",
        Acceleration::Tcg => "maximum",
    };
    let (sockets, cores) = topology(spec.cpus);
    let topology = element("topology").attribute("sockets", sockets).attribute("cores", cores).attribute("threads", 1);
    // Without KVM the features stay on: with them off, programs of a Linux guest end at their start (seen with QEMU 7.2).
    let hides = acceleration == Acceleration::Kvm && !spec.nested_virtualization;
    let hidden = VIRTUALIZATION.iter().filter(|_| hides);
    let hidden = hidden.map(|name| element("feature").attribute("policy", "disable").attribute("name", name));
    element("cpu").attribute("mode", mode).with(topology).with_all(hidden)
}

/// Returns the sockets, and the cores of each: few sockets, each with at most the cores of one group in Windows, or else one socket.
fn topology(cpus: u32) -> (u32, u32) {
    let fits = |sockets: &u32| {
        let cores = cpus / sockets;
        // In an APIC ID the number of the socket is in the bits above the number of the core.
        let last = (sockets - 1) * cores.next_power_of_two() + cores.saturating_sub(1);
        cpus.is_multiple_of(*sockets) && cores <= WINDOWS && last <= LAST_APIC_ID
    };
    let sockets = (1..=WINDOWS).find(fits).unwrap_or(1);
    (sockets, cpus / sockets)
}

/// Builds the clock: UTC, so that a VM has the same clock on each host, whatever the host's time zone. Windows treats it as local time
/// unless its zone is UTC or its registry sets RealTimeIsUniversal: docs/windows-image.md.
pub fn clock() -> Element {
    element("clock").attribute("offset", "utc").with(element("timer").attribute("name", "hypervclock").attribute("present", "yes"))
}

/// Builds the screen and the input devices. A tablet keeps the guest's pointer at the position of the viewer's pointer.
pub fn console(console: Console) -> Vec<Element> {
    match console {
        Console::None => Vec::new(),
        Console::Vnc => {
            // The VNC server has no password, so only users of the host may reach it.
            let listen = element("listen").attribute("type", "address").attribute("address", "127.0.0.1");
            let tablet = element("input").attribute("type", "tablet").attribute("bus", "usb");
            vec![tablet, element("graphics").attribute("type", "vnc").attribute("autoport", "yes").with(listen)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::contract;

    #[test]
    fn processors_are_divided_so_that_windows_counts_all_and_qemu_can_number_them() {
        for (cpus, wanted) in [(1, (1, 1)), (6, (1, 6)), (64, (1, 64)), (65, (5, 13)), (67, (1, 67)), (96, (2, 48)), (128, (2, 64)), (210, (7, 30))] {
            assert_eq!(topology(cpus), wanted, "{cpus}");
        }
        for cpus in 1..=MOST_CPUS {
            let (sockets, cores) = topology(cpus);
            let bits = (0..).find(|bits| 1 << bits >= cores).unwrap();
            assert_eq!(sockets * cores, cpus);
            assert!(sockets <= 64 && ((sockets - 1) << bits) + cores - 1 <= 254, "{cpus}: {sockets} of {cores}");
        }
    }

    #[test]
    fn a_guest_sees_virtualization_if_it_is_asked_for() {
        let hidden = |nested_virtualization, acceleration| {
            let text = processor(&VmSpec { nested_virtualization, ..contract::spec() }, acceleration).to_string();
            VIRTUALIZATION.map(|name| text.contains(&format!("<feature policy='disable' name='{name}'/>")))
        };
        assert_eq!((hidden(false, Acceleration::Kvm), hidden(true, Acceleration::Kvm)), ([true, true], [false, false]));
        assert_eq!(hidden(false, Acceleration::Tcg), [false, false]);
    }

    #[test]
    fn hardware_that_no_vm_has_is_refused() {
        let check = |cpus, nested_virtualization, acceleration| {
            let (spec, settings) = (VmSpec { cpus, nested_virtualization, ..contract::spec() }, Libvirt { acceleration, ..Libvirt::default() });
            match check(&spec, &settings) {
                Ok(()) => String::new(),
                Err(DriverError::Invalid(text)) => text,
                Err(error) => panic!("{error:?}"),
            }
        };
        assert_eq!((check(255, true, Acceleration::Kvm), check(255, false, Acceleration::Tcg)), (String::new(), String::new()));
        assert_eq!(
            check(256, false, Acceleration::Kvm),
            "spec.cpus is 256, and a VM of libvirt has at most 255 processors: lower spec.cpus of the machine"
        );
        let nested = check(2, true, Acceleration::Tcg);
        assert!(nested.contains("spec.nestedVirtualization is true") && nested.contains("spec.libvirt.acceleration TCG"), "{nested}");
    }

    #[test]
    fn the_clock_is_that_of_no_time_zone() {
        let written = clock().to_string();
        assert!(written.contains("offset='utc'") && written.contains("hypervclock"), "{written}");
    }
}
