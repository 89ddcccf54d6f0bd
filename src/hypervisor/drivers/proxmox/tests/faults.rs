//! Faults in a cluster, tested with fakepve: the driver reports each fault with the remedy, changes nothing, and continues when the cause ends.

use super::rig::{STEPS, endpoint, failure};
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::Machine;
use crate::hypervisor::drivers::proxmox::driver::ProxmoxDriver;
use crate::hypervisor::wire::{Fate, Wire};
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Power, SeedKind, StopMode};

#[tokio::test]
async fn what_keeps_the_cluster_from_working_is_told_and_passes() {
    let Some(endpoint) = endpoint() else { return };
    let full = "pve.storages['ceph'].update(avail=1)";
    let room = "pve.storages['ceph'].pop('avail')";
    let backup = ("pve.snapshot_lock(pve.machines()[0]['vmid'], 'backup')", "pve.unlock(pve.machines()[0]['vmid'])");
    for (cause, remedy, name, label, word) in [
        ("pve.lose_quorum()", "pve.regain_quorum()", "quorum", "invalid", "pvecm status"),
        (full, room, "full", "capacity", "No space left on device"),
        ("pve.set_node_offline('pve1')", "pve.set_node_offline('pve1', False)", "offline", "invalid", "goes on when it is back"),
        ("pve.ceph_down()", "pve.ceph_recover()", "ceph", "invalid", "cannot be cloned"),
    ] {
        endpoint.cluster.tell("pve.reset()");
        let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, name));
        driver.check(&machine.spec, SeedKind::Drive).await.unwrap();
        endpoint.cluster.tell(cause);
        let error = failure(&machine, &*driver).await;
        assert!(error.label() == label && error.to_string().contains(word), "{name}: {error:?}");
        endpoint.cluster.tell(remedy);
        assert!(machine.create(&*driver, STEPS).await, "{name}");
        assert_eq!(endpoint.cluster.vms().len(), 1, "{name}");
        assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await, "{name}");
    }
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "locked"));
    assert!(machine.create(&*driver, STEPS).await);
    endpoint.cluster.tell(backup.0);
    let error = machine.retire(&*driver, StopMode::Hard).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("(backup)") && text.contains("qm unlock")), "{error}");
    assert_eq!(machine.present(&*driver).await.power, Power::On);
    endpoint.cluster.tell(backup.1);
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await && endpoint.count().await == 0);
}

#[tokio::test]
async fn another_cluster_at_the_address_is_not_believed() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "elsewhere"));
    let id = driver.describe().await.unwrap().id;
    endpoint.cluster.tell("setattr(pve, 'authority', 'CC:' * 31 + 'CC')");
    let other = endpoint.driver();
    assert_ne!(other.describe().await.unwrap().id, id, "the controller compares it with status.endpointID");
    tokio::time::pause();
    tokio::time::advance(crate::hypervisor::fresh::FRESH).await;
    tokio::time::resume();
    let error = machine.retire(&*driver, StopMode::Hard).await.unwrap_err();
    assert!(matches!(&error, DriverError::EndpointChanged(text) if text.contains("AA:AA") && text.contains("CC:CC")), "{error}");
}

/// Before each pass of a life the nodes forget all tasks, as after a reinstallation.
#[tokio::test]
async fn tasks_that_are_forgotten_are_not_missed() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "forgotten"));
    let forget = || endpoint.cluster.tell("pve.tasks.clear()");
    for _ in 0..STEPS {
        forget();
        if machine.advance(&*driver).await.unwrap() == DriverStep::Done {
            break;
        }
    }
    assert_eq!((machine.present(&*driver).await.power, endpoint.cluster.vms().len()), (Power::On, 1));
    for _ in 0..STEPS {
        forget();
        if machine.retire(&*endpoint.driver(), StopMode::Hard).await.unwrap() == DriverStep::Done {
            break;
        }
    }
    assert_eq!(endpoint.count().await, 0);
}

/// The old token is revoked before any pass of a life: the driver reports it and touches no VM, and the new token continues the work.
#[tokio::test]
async fn a_token_that_is_revoked_is_told_and_the_next_one_goes_on() {
    let Some(endpoint) = endpoint() else { return };
    let machine = Machine::at(&endpoint, "rotated");
    let renewed = |secret: &str| {
        endpoint.cluster.tell(&format!("pve.apitokens.update({{'capw@pve!capw': '{secret}'}})"));
        ProxmoxDriver::new(endpoint.settings(), &endpoint.cluster.login_with(secret), Wire::new(std::sync::Arc::new(|_| Fate::Pass))).unwrap()
    };
    let mut driver = renewed("0");
    for pass in 1..STEPS {
        let next = renewed(&pass.to_string());
        let before = endpoint.cluster.vms().len();
        for error in [machine.advance(&driver).await.unwrap_err(), machine.retire(&driver, StopMode::Hard).await.unwrap_err()] {
            assert!(matches!(&error, DriverError::Auth(text) if text.contains("spec.credentialsRef")), "{error}");
        }
        assert_eq!(endpoint.cluster.vms().len(), before);
        driver = next;
        if machine.advance(&driver).await.unwrap() == DriverStep::Done {
            break;
        }
    }
    assert_eq!((machine.present(&driver).await.power, endpoint.cluster.vms().len()), (Power::On, 1));
}

/// The driver does not configure high availability: a VM that a person has put under it is stopped through it, and removed from it.
#[tokio::test]
async fn a_vm_that_is_highly_available_is_removed_all_the_same() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "ha"));
    assert!(machine.create(&*driver, STEPS).await);
    endpoint.cluster.tell("[setattr(vm, 'ha_state', 'started') for vm in pve.vms if not vm.template]");
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await && endpoint.count().await == 0);
}
