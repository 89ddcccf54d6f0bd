//! The requests in the life of a VM, and the driver's reports about a host that others change.

use std::sync::Arc;

use capw_libvirtd::Daemon;

use super::rig::{IMAGE, LibvirtEndpoint};
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{Machine, Requests};
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::{DriverError, DriverStep, Wanted};
use crate::vm::{Journal, Power, Present, StopMode, Thing};

/// Counts the requests of a whole life where they leave the driver, without the requests that connect.
#[tokio::test]
async fn a_life_takes_few_requests() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, requests) = Requests::of(&endpoint);
    let first = Machine::new("first", endpoint.spec());
    assert!(first.create(&*driver, 10).await, "the connection is open, image and networks are known");
    let machine = Machine::new("second", endpoint.spec());
    requests.take();
    assert!(machine.create(&*driver, 10).await);
    let create = requests.take();
    while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
    let detach = requests.take();
    // The listing follows the VM's log, as for every machine, so that the removal needs no refresh of the pool.
    driver.list(&Wanted { awaiting_reports: [machine.key.vm].into() }).await.unwrap();
    requests.take();
    assert!(machine.delete(&*driver, StopMode::Hard, 10).await);
    let delete = requests.take();
    let text = format!("create {create:?}\ndetach {detach:?}\ndelete {delete:?}");
    assert!(create.len() <= 10 && detach.len() <= 5 && delete.len() <= 8, "{text}");
    driver.list(&Wanted::default()).await.unwrap();
    requests.take();
    driver.list(&Wanted::default()).await.unwrap();
    assert_eq!(requests.take(), ["ConnectGetAllDomainStats", "StoragePoolListAllVolumes"], "at rest");
}

/// The next listing shows what a person does on the host.
#[tokio::test]
async fn what_happens_on_the_host_is_told() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("told", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let row = async || driver.list(&Wanted::default()).await.unwrap().rows.remove(0).present;
    let name = Volumes::of(&machine.key).vm().to_owned();
    daemon.virsh(["suspend", &name]);
    assert!(matches!(row().await, Present { power: Power::On, trouble: Some(why), .. } if why.contains("virsh resume")));
    daemon.virsh(["resume", &name]);
    assert_eq!((row().await.power, row().await.trouble), (Power::On, None));
    daemon.virsh(["destroy", &name]);
    assert_eq!(row().await.power, Power::Off);
    daemon.virsh(["undefine", &name]);
    let listing = driver.list(&Wanted::default()).await.unwrap();
    assert!(listing.rows.is_empty() && listing.leftovers.len() == 3, "{listing:?}");
}

/// The daemon restarts: VMs run on, and the driver continues. It refuses another daemon with a pool of that name.
#[tokio::test]
async fn a_daemon_that_restarts_is_the_same_and_another_one_is_not() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("stays", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let id = driver.describe().await.unwrap().id;
    daemon.stop();
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(error, DriverError::Unreachable(_)), "{error}");
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    assert_eq!((driver.describe().await.unwrap().id, machine.present(&*driver).await.power), (id, Power::On));
    daemon.virsh(["pool-destroy", &endpoint.pool]);
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if text.contains("pool-start")), "{error}");
    daemon.virsh(["pool-undefine", &endpoint.pool]);
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if text.contains("define the pool")), "{error}");
    daemon.pool(&endpoint.pool, IMAGE);
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::EndpointChanged(text) if text.contains("status.endpointID")), "{error}");
    daemon.stop();
    // The first call sees that the connection has ended.
    assert!(driver.describe().await.is_err());
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    for error in [driver.describe().await.err(), driver.observe(&machine.key, &Journal::new()).await.err()] {
        assert!(matches!(&error, Some(DriverError::EndpointChanged(text)) if text.contains("another host")), "{error:?}");
    }
}
