//! Disks that share the image, disks that are copies of it, and added disks.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use capw_libvirtd::Daemon;

use super::rig::{IMAGE, LibvirtEndpoint};
use crate::hypervisor::DriverStep;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::contract::program::until;
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::vm::{Observed, StopMode, VmDisk, VmSpec};

/// Returns virsh's definition of a volume.
fn volume(endpoint: &LibvirtEndpoint, name: &str) -> String {
    endpoint.daemon.virsh(["vol-dumpxml", "--pool", &endpoint.pool, name])
}

#[tokio::test]
async fn a_full_clone_needs_its_image_no_more() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    for (endpoint, shares) in [(LibvirtEndpoint::new(&daemon), true), (LibvirtEndpoint::with_copies(&daemon), false)] {
        let driver = endpoint.driver();
        let disks = vec![VmDisk { name: "data".into(), gib: 3 }];
        let machine = Machine::new("disks", VmSpec { system_disk_gib: Some(2), disks, ..endpoint.spec() });
        assert!(machine.create(&*driver, MANY).await);
        let names = Volumes::of(&machine.key);
        let (system, data) = (volume(&endpoint, &names.system()), volume(&endpoint, &names.disk("data")));
        assert_eq!((system.contains("<backingStore>"), data.contains("<backingStore>")), (shares, false), "{system}");
        for (text, gib) in [(&system, 2_u64), (&data, 3)] {
            assert!(text.contains(&format!("<capacity unit='bytes'>{}</capacity>", gib << 30)) && text.contains("<format type='qcow2'/>"), "{text}");
        }
        daemon.virsh(["destroy", names.vm()]);
        fs::remove_file(endpoint.file(IMAGE)).unwrap();
        fs::write(endpoint.file(&names.log()), "").unwrap();
        assert_eq!(daemon.try_virsh(["start", names.vm()]).status.success(), !shares);
        until("the guest says hello", || shares || fs::read_to_string(endpoint.file(&names.log())).unwrap().contains("hello")).await;
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
        assert!(endpoint.files().is_empty(), "{:?}", endpoint.files());
    }
}

/// A torn copy looks like a complete copy: if its process has ended, the copy is recreated after a time without progress.
#[tokio::test]
async fn a_copy_whose_process_has_ended_is_recreated() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::with_copies(&daemon);
    let machine = Machine::new("torn", endpoint.spec());
    let system = endpoint.file(&Volumes::of(&machine.key).system());
    endpoint.half_made(&machine.key).await;
    let torn = fs::read(&system).unwrap();
    let driver = endpoint.driver();
    assert_eq!(machine.advance(&*driver).await, Ok(DriverStep::Wait { after: super::super::copies::POLL }));
    assert!(fs::read(&system).unwrap() == torn, "it may be on its way");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert!(machine.create(&*driver, MANY).await);
    assert!(fs::read(&system).unwrap().windows(5).any(|bytes| bytes == b"hello"), "the boot sector is in it");
    assert_eq!(endpoint.count().await, 1);
}

#[tokio::test]
async fn a_machine_that_goes_while_its_image_is_copied_leaves_nothing() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::with_copies(&daemon);
    // The image is so large that the copy takes a while.
    let content: Vec<u8> = (0..64_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(endpoint.file(IMAGE), content).unwrap();
    daemon.virsh(["pool-refresh", &endpoint.pool]);
    let (driver, other) = (endpoint.driver(), endpoint.driver());
    let machine = Machine::new("hurry", endpoint.spec());
    assert!(matches!(machine.advance(&*driver).await, Ok(DriverStep::Wait { .. })));
    let name = Volumes::of(&machine.key).system();
    until("the copy has begun", || endpoint.files().contains(&name)).await;
    // Another process sees that the copy is incomplete, and leaves it alone.
    assert!(matches!(machine.advance(&*other).await, Ok(DriverStep::Wait { .. })));
    assert!(daemon.domains().is_empty());
    let retired = machine.retire(&*driver, StopMode::Hard).await;
    assert!(matches!(retired, Ok(DriverStep::Wait { .. } | DriverStep::Changed)), "{retired:?}");
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!((machine.see(&*other).await, endpoint.count().await), (Observed::Absent, 0));
}
