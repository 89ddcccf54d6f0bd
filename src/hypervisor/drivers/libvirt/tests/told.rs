//! The events of a real daemon.

use std::sync::Arc;
use std::time::Duration;

use capw_libvirtd::Daemon;
use capw_patience::within;
use futures::StreamExt;
use tokio::time::timeout;

use super::rig::LibvirtEndpoint;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{Machine, Requests};
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::{DriverStep, Wanted};
use crate::vm::{Power, StopMode};

/// The time limit for an event.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// While a guest shuts down, the driver sends no request: an event of the daemon reports that the guest is off.
#[tokio::test]
async fn a_guest_that_shuts_down_is_waited_for_without_a_request() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, requests) = Requests::of(&endpoint);
    let machine = Machine::new("deaf", endpoint.spec());
    assert!(machine.create(&*driver, 10).await);
    assert!(matches!(machine.retire(&*driver, StopMode::Graceful).await, Ok(DriverStep::Wait { .. })));
    requests.take();
    for _ in 0..5 {
        assert!(matches!(machine.retire(&*driver, StopMode::Graceful).await, Ok(DriverStep::Wait { .. })));
    }
    assert_eq!(requests.take(), Vec::<&str>::new());
    daemon.virsh(["destroy", Volumes::of(&machine.key).vm()]);
    let off = async { while machine.present(&*driver).await.power != Power::Off {} };
    within("the daemon tells that it is off", DEADLINE, off).await;
    assert!(machine.delete(&*driver, StopMode::Graceful, 10).await);
    assert_eq!(endpoint.count().await, 0);
}

/// A VM that stops on its own triggers a listing at once.
#[tokio::test]
async fn a_stop_that_no_pass_waits_for_is_a_hint() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("stops", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let mut hints = driver.hints().unwrap();
    let name = Volumes::of(&machine.key).vm().to_owned();
    let told = async {
        // While the VM counts as just started, a pass checks it anyway.
        loop {
            daemon.virsh(["suspend", &name]);
            daemon.virsh(["resume", &name]);
            if let Ok(Some(())) = timeout(Duration::from_millis(200), hints.next()).await {
                break;
            }
        }
    };
    within("the daemon tells that it was suspended", DEADLINE, told).await;
}

/// Counts the requests for one machine, without the requests for all machines and for the guest's reports.
#[tokio::test]
async fn a_life_takes_fifteen_requests() {
    const FOR_ALL: [&str; 6] = [
        "ConnectGetAllDomainStats",
        "ConnectGetDomainCapabilities",
        "NodeGetMemoryStats",
        "StoragePoolGetInfo",
        "StoragePoolListAllVolumes",
        "StorageVolGetXmlDesc",
    ];
    const OF_GUESTS: [&str; 2] = ["StorageVolDownload", "DomainInterfaceAddresses"];
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, requests) = Requests::of(&endpoint);
    let machine = Machine::new("life", endpoint.spec());
    driver.describe().await.expect("the endpoint");
    // The first check waits until QEMU reports its capabilities, which may take longer than the second for which an observation is valid.
    driver.check(&machine.spec, machine.seed.kind()).await.expect("what the host has");
    requests.take();
    assert_eq!(machine.advance(&*driver).await, Ok(DriverStep::Changed), "it is made and started");
    assert_eq!(machine.present(&*driver).await.power, Power::On);
    driver.list(&Wanted { awaiting_reports: [machine.key.vm].into() }).await.expect("a listing");
    machine.detach(&*driver).await.expect("its drive goes");
    assert!(matches!(machine.retire(&*driver, StopMode::Graceful).await, Ok(DriverStep::Wait { .. })));
    daemon.virsh(["destroy", Volumes::of(&machine.key).vm()]);
    assert!(machine.delete(&*driver, StopMode::Graceful, 10).await);
    let all = requests.take();
    let own: Vec<&str> = all.iter().copied().filter(|request| !FOR_ALL.contains(request) && !OF_GUESTS.contains(request)).collect();
    assert_eq!((own.len(), all.iter().filter(|request| OF_GUESTS.contains(request)).count()), (15, 2), "{all:?}");
    assert_eq!(endpoint.count().await, 0);
}
