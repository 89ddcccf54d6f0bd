//! The virtual hardware, with a real QEMU.

use crate::hypervisor::contract::machine::MANY;
use crate::hypervisor::libvirt::tests::*;

/// The number of a VM's processors does not depend on the host's number.
#[tokio::test]
async fn seventy_processors_a_clock_of_no_zone_and_a_screen_by_choice() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    for console in [Console::None, Console::Vnc] {
        let mut endpoint = LibvirtEndpoint::new(&daemon);
        endpoint.console = console;
        let (driver, machine) = (endpoint.driver(), Machine::new("large", VmSpec { cpus: 70, memory_mib: 128, ..endpoint.spec() }));
        assert!(machine.create(&*driver, MANY).await);
        let name = Volumes::of(&machine.key).vm().to_owned();
        let definition = daemon.virsh(["dumpxml", &name]);
        for part in ["<clock offset='utc'>", "sockets='2'", "cores='35'"] {
            assert!(definition.contains(part), "{part} is not in\n{definition}");
        }
        let display = daemon.try_virsh(["vncdisplay", &name]);
        let display = String::from_utf8(display.stdout).unwrap();
        assert_eq!(display.trim().starts_with("127.0.0.1:"), console == Console::Vnc, "{display}");
        assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows[0].cpus, 70);
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    }
}

#[tokio::test]
async fn more_processors_than_qemu_has_are_refused_before_anything_is_made() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("larger", VmSpec { cpus: 256, ..endpoint.spec() }));
    let error = machine.advance(&*driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("spec.cpus is 256")), "{error}");
    assert_eq!(endpoint.count().await, 0);
}
