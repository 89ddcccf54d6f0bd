//! Events of the daemon reveal the changes of a VM: these tests list only after a hint.

use std::sync::Arc;
use std::time::Duration;

use capw_libvirtd::Daemon;
use capw_patience::within;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::timeout;

use super::rig::LibvirtEndpoint;
use super::told::DEADLINE;
use crate::hypervisor::Wanted;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::vm::Power;

/// Waits for a hint that comes after `act`; earlier hints do not count.
async fn hinted(hints: &mut BoxStream<'static, ()>, act: impl FnOnce()) {
    while let Ok(Some(())) = timeout(Duration::from_millis(200), hints.next()).await {}
    act();
    within("the daemon tells of it", DEADLINE, hints.next()).await.expect("a hint");
}

#[tokio::test]
async fn a_removal_and_a_restart_are_hints_however_young_the_vm_is() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("watched", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    let mut hints = driver.hints().unwrap();
    let name = Volumes::of(&machine.key).vm().to_owned();
    let power = async || driver.list(&Wanted::default()).await.unwrap().rows.first().map(|row| row.present.power);
    assert_eq!(power().await, Some(Power::On));
    hinted(&mut hints, || drop(daemon.virsh(["reset", &name]))).await;
    assert_eq!(power().await, Some(Power::On));
    hinted(&mut hints, || drop(daemon.virsh(["destroy", &name]))).await;
    assert_eq!(power().await, Some(Power::Off));
    hinted(&mut hints, || drop(daemon.virsh(["undefine", &name]))).await;
    assert_eq!(power().await, None, "the listing that follows shows that it is gone");
}
