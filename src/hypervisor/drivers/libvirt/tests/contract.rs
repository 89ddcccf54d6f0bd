//! The contract of every driver, and its proof.

use std::sync::Arc;

use capw_libvirtd::Daemon;

use super::rig::LibvirtEndpoint;
use crate::hypervisor::contract;

#[tokio::test]
async fn it_keeps_the_contract() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    contract::all(|| LibvirtEndpoint::new(&daemon)).await;
}

/// Runs in system mode, as on a user's host, if the tests run as root.
#[tokio::test]
async fn it_is_proven() {
    let Some(daemon) = Daemon::start_system().or_else(Daemon::start).map(Arc::new) else { return };
    contract::proof::is_proven(&LibvirtEndpoint::new(&daemon)).await;
}

/// System mode is like a user's host: root, QEMU's own user, a network with DHCP, the daemon for logs, and file owners that libvirt sets.
#[tokio::test]
async fn it_keeps_the_contract_in_system_mode() {
    let Some(daemon) = Daemon::start_system().map(Arc::new) else { return };
    contract::all(|| LibvirtEndpoint::new(&daemon)).await;
}

/// A hundred lives of real VMs take minutes: the Makefile's target `test-libvirt` runs them.
#[tokio::test]
#[ignore = "it takes minutes"]
async fn any_request_may_be_lost() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| LibvirtEndpoint::new(&daemon)).await;
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn it_keeps_the_contract_with_full_clones() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    contract::all(|| LibvirtEndpoint::with_copies(&daemon)).await;
}
