//! Changes that the vCenter pushes: the requests that they save, and the safety that they must not cost.

use std::sync::Arc;

use serde_json::json;

use super::rig::VsphereEndpoint;
use super::vcenter::Vcenter;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{Machine, Requests};
use crate::hypervisor::drivers::vsphere::found::name_of;
use crate::hypervisor::{DriverStep, Wanted};
use crate::vm::{Power, Seeded, StopMode};

const STEPS: usize = 10;

/// The requests of a whole life, beside the request that waits for updates. A vCenter starts a clone automatically; the simulator does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_life_takes_seven_requests_and_rest_takes_none() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::told(&vcenter);
    let (driver, requests) = Requests::of(&endpoint);
    // Lookups that serve all machines: the places, the image, its network.
    assert!(Machine::at(&endpoint, "first").create(&*driver, STEPS).await);
    for (name, how, of_delete) in [
        ("hard", StopMode::Hard, ["RetrievePropertiesEx", "PowerOffVM_Task", "Destroy_Task"]),
        ("graceful", StopMode::Graceful, ["ShutdownGuest", "RetrievePropertiesEx", "Destroy_Task"]),
    ] {
        let machine = Machine::at(&endpoint, name);
        requests.take();
        assert!(machine.create(&*driver, STEPS).await);
        assert_eq!(requests.take(), ["FindByUuid", "CloneVM_Task", "PowerOnVM_Task"]);
        while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
        assert_eq!(machine.present(&*driver).await.seeded, Seeded::No);
        assert_eq!(requests.take(), ["ReconfigVM_Task"]);
        assert!(driver.list(&Wanted::default()).await.unwrap().rows.iter().any(|row| row.key == machine.key));
        assert_eq!(requests.take(), [""; 0], "at rest");
        assert!(machine.delete(&*driver, how, STEPS).await);
        assert_eq!(requests.take(), of_delete);
    }
}

/// The cache is behind: a VM whose mark was changed, or that was replaced, is not destroyed because of old cached state.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_is_read_again_before_anything_is_destroyed() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::told(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "marked"));
    assert!(machine.create(&*driver, STEPS).await);
    endpoint.until(|mirror| mirror.find(&machine.key).is_some()).await;
    let told = driver.observe(&machine.key, &machine.journal()).await.unwrap();
    let values = json!({"capw.mark": "capw-machine=x;capw-cluster=other/one"});
    vcenter.ask(json!({"do": "set", "folder": endpoint.folder, "name": name_of(&machine.key), "values": values}));
    let error = driver.retire(&machine.key, StopMode::Hard, &machine.journal(), &told).await.unwrap_err();
    assert_eq!(error.label(), "conflict", "{error}");
    assert_eq!(endpoint.machine(&machine.key).unwrap().power, "poweredOn");
}

/// Changes by people are pushed, and observed without a request.
#[tokio::test(flavor = "multi_thread")]
async fn what_people_do_is_told() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::told(&vcenter);
    let (driver, requests) = Requests::of(&endpoint);
    let machine = Machine::at(&endpoint, "people");
    assert!(machine.create(&*driver, STEPS).await);
    let name = name_of(&machine.key);
    vcenter.ask(json!({"do": "off", "folder": endpoint.folder, "name": name}));
    endpoint.until(|mirror| mirror.find(&machine.key).is_some_and(|vm| vm.is_off())).await;
    requests.take();
    assert_eq!(machine.present(&*driver).await.power, Power::Off);
    assert_eq!(requests.take(), [""; 0]);
    endpoint.remove_behind_its_back(&machine.key).await;
    endpoint.until(|mirror| mirror.find(&machine.key).is_none()).await;
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert_eq!(machine.see(&*driver).await, crate::vm::Observed::Absent);
    assert!(requests.take().contains(&"FindByUuid"), "that it is gone is proven, not told");
}

/// After the session has ended no updates arrive until a new session begins, and all state is requested until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_takes_what_was_told_with_it() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::told(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "session"));
    assert!(machine.create(&*driver, STEPS).await);
    assert_eq!(vcenter.ask(json!({"do": "expire"})), 1);
    // The open request ends with the next change.
    let set = |value: &str| {
        let values = json!({"guestinfo.capw.report": value});
        vcenter.ask(json!({"do": "set", "folder": endpoint.folder, "name": name_of(&machine.key), "values": values}));
    };
    set("one");
    endpoint.until(|mirror| !mirror.is_live()).await;
    assert_eq!(machine.present(&*driver).await.power, Power::On);
    endpoint.until(|mirror| mirror.find(&machine.key).is_some()).await;
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!(endpoint.count().await, 0);
}
