//! Behaviour of this driver alone, at the simulator.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use serde_json::json;

use super::rig::VsphereEndpoint;
use super::vcenter::Vcenter;
use crate::api::hypervisor::{CloneMode, Vsphere, WindowsHypervisor, WindowsHypervisorSpec};
use crate::api::name::ObjectKey;
use crate::hypervisor::contract::machine::{Machine, Requests};
use crate::hypervisor::contract::{TestEndpoint, authority::Authority};
use crate::hypervisor::drivers::vsphere::driver::VsphereDriver;
use crate::hypervisor::drivers::vsphere::found::name_of;
use crate::hypervisor::drivers::vsphere::session::Sessions;
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::login::Login;
use crate::hypervisor::wire::{Fate, Wire};
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{GuestReport, MacAddress, Nic, Observed, Power, Present, SeedKind, Seeded, StopMode, Thing, VmDisk, VmSpec};

const STEPS: usize = 10;

fn nic(network: Option<&str>) -> Nic {
    Nic { network: network.map(str::to_owned), mac: MacAddress([2, 0, 0, 0, 0, 1]) }
}

#[tokio::test]
async fn a_vm_is_as_asked_to_an_independent_reader() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let driver = endpoint.driver();
    let disks = vec![VmDisk { name: "data".into(), gib: 20 }];
    let spec =
        VmSpec { cpus: 6, memory_mib: 3072, system_disk_gib: Some(40), disks, nics: vec![nic(None), nic(Some("VM Network"))], ..endpoint.spec() };
    let mut machine = Machine::at(&endpoint, "asked");
    machine.spec = spec;
    assert!(machine.create(&*driver, STEPS).await);
    let made = endpoint.machine(&machine.key).unwrap();
    assert_eq!((made.cpus, made.memory, made.power.as_str()), (6, 3072, "poweredOn"));
    assert_eq!(made.disks, Some(vec![40, 20]), "of the image it is 10");
    let networks = made.networks.unwrap();
    assert!(networks.len() == 2 && networks[0].starts_with("dvportgroup-") && networks[1] == "VM Network", "{networks:?}");
    assert_eq!(made.values["capw.mark"], machine.key.owner_mark());
    assert!(!made.values.keys().any(|key| key.starts_with("guestinfo.") && key.contains("mark")), "its guest could change it");

    let one_network = Vsphere { network: Some("DC0_DVPG0".into()), ..endpoint.settings() };
    let driver = endpoint.with(one_network, Arc::new(|_| Fate::Pass));
    let mut machine = Machine::at(&endpoint, "two");
    machine.spec.nics = vec![nic(None), nic(None)];
    assert!(machine.create(&*driver, STEPS).await);
    let networks = endpoint.machine(&machine.key).unwrap().networks.unwrap();
    assert!(networks.len() == 2 && networks.iter().all(|network| network.starts_with("dvportgroup-")), "{networks:?}");
}

#[tokio::test]
async fn disks_go_where_a_cluster_of_datastores_has_the_most_room() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    vcenter.ask(json!({"do": "storage pod", "name": "gold", "values": {"gold-1": "50", "gold-2": "900", "gold-3": "inMaintenance"}}));
    vcenter.ask(json!({"do": "storage pod", "name": "tin", "values": {"tin-1": "inMaintenance"}}));
    let at = |datastore: &str| endpoint.with(Vsphere { datastore: datastore.into(), ..endpoint.settings() }, Arc::new(|_| Fate::Pass));
    let (driver, machine) = (at("gold"), Machine::at(&endpoint, "stored"));
    assert_eq!(driver.describe().await.unwrap().lacks, Vec::<String>::new());
    assert!(machine.create(&*driver, STEPS).await);
    assert_eq!(endpoint.machine(&machine.key).unwrap().stores, Some(vec!["gold-2".to_owned()]));
    let error = Machine::at(&endpoint, "nowhere").advance(&*at("tin")).await.unwrap_err();
    assert!(matches!(&error, DriverError::Capacity(text) if text.contains("\"tin\"") && text.contains("in maintenance")), "{error}");
}

#[tokio::test]
async fn what_is_missing_or_does_not_fit_is_named_with_the_remedy() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let pass = || Arc::new(|_| Fate::Pass);
    for (settings, field) in [
        (Vsphere { datacenter: "DC9".into(), ..endpoint.settings() }, "datacenter \"DC9\""),
        (Vsphere { folder: Some("none".into()), ..endpoint.settings() }, "folder \"none\""),
        (Vsphere { resource_pool: "DC0_C0".into(), ..endpoint.settings() }, "a ClusterComputeResource, not a ResourcePool"),
        (Vsphere { datastore: "ds9".into(), ..endpoint.settings() }, "datastore \"ds9\""),
    ] {
        let error = endpoint.with(settings, pass()).describe().await.unwrap_err();
        assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if text.contains(field)), "{error}");
    }
    let check = async |settings: Vsphere, spec: VmSpec| endpoint.with(settings, pass()).check(&spec, SeedKind::GuestInfo).await;
    let spec = || endpoint.spec();
    let error = check(endpoint.settings(), VmSpec { nics: vec![nic(Some("vlan9"))], ..spec() }).await.unwrap_err();
    assert!(
        matches!(&error, DriverError::Missing { thing: Thing::Network, text } if text.contains("vlan9") && text.contains("VM Network")),
        "{error}"
    );
    let linked = |image: &str| (Vsphere { clone: CloneMode::Linked, ..endpoint.settings() }, VmSpec { image: image.into(), ..spec() });
    let (settings, of_image) = linked("without-snapshot");
    let grown = VmSpec { system_disk_gib: Some(40), ..linked("windows-server-2022").1 };
    for (settings, spec, word) in [
        (settings.clone(), of_image, "has no snapshot"),
        (settings, grown, "cannot grow"),
        (endpoint.settings(), VmSpec { uefi: false, ..spec() }, "firmware.type"),
        (endpoint.settings(), VmSpec { system_disk_gib: Some(5), ..spec() }, "a system disk of 10 GiB"),
        (endpoint.settings(), VmSpec { image: "DC0_H0_VM0".into(), ..spec() }, "made for BIOS"),
    ] {
        let error = check(settings, spec).await.unwrap_err();
        assert!(matches!(&error, DriverError::Invalid(text) if text.contains(word)), "{word}: {error}");
    }
    vcenter.ask(json!({"do": "withhold", "folder": endpoint.folder, "name": "VirtualMachine.Interact.SetCDMedia"}));
    let error = endpoint.driver().check(&spec(), SeedKind::Drive).await.unwrap_err();
    assert!(matches!(&error, DriverError::Denied(text) if text.contains("SetCDMedia on the folder") && text.contains("GuestInfo")), "{error}");
}

/// The session of a vCenter ends after half an hour without a request, or when an administrator ends it.
#[tokio::test]
async fn a_session_that_expires_before_any_call_is_begun_again() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "expires"));
    let expire = || assert_eq!(vcenter.ask(json!({"do": "expire"})), 1);
    let id = driver.describe().await.unwrap().id;
    expire();
    assert_eq!(driver.describe().await.unwrap().id, id);
    expire();
    driver.check(&machine.spec, SeedKind::GuestInfo).await.unwrap();
    loop {
        expire();
        let step = machine.advance(&*driver).await.unwrap();
        if step == DriverStep::Done {
            break;
        }
    }
    expire();
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows.len(), 1);
    expire();
    assert_eq!(machine.detach(&*driver).await, Ok(DriverStep::Changed));
    loop {
        expire();
        if machine.retire(&*driver, StopMode::Hard).await.unwrap() == DriverStep::Done {
            break;
        }
    }
    assert_eq!(endpoint.count().await, 0);
}

/// The session ends before each request; the driver repeats the request in the next session.
#[tokio::test]
async fn a_session_that_expires_in_the_middle_of_any_call_is_begun_again() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (at, others) = (vcenter.clone(), AtomicUsize::new(0));
    let driver = endpoint.wired(Arc::new(move |request| {
        let is_login = ["RetrieveServiceContent", "Login"].contains(&request.name);
        if !is_login && others.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            at.ask(json!({"do": "expire"}));
        }
        Fate::Pass
    }));
    let machine = Machine::at(&endpoint, "middle");
    assert!(machine.create(&*driver, STEPS).await);
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows.len(), 1);
    assert_eq!(machine.detach(&*driver).await, Ok(DriverStep::Changed));
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!(endpoint.count().await, 0);
}

#[tokio::test]
async fn placements_with_one_login_share_a_session_and_nothing_is_sent_to_a_stranger() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let (one, two) = (VsphereEndpoint::new(&vcenter), VsphereEndpoint::new(&vcenter));
    let (sessions, pass) = (Sessions::default(), || Wire::new(Arc::new(|_| Fate::Pass)));
    let at = |endpoint: &VsphereEndpoint, login: &Login| VsphereDriver::new(endpoint.settings(), login, &sessions, pass()).unwrap();
    vcenter.requests();
    let drivers = [at(&one, &vcenter.login()), at(&two, &vcenter.login())];
    for driver in &drivers {
        driver.describe().await.unwrap();
    }
    assert_eq!(vcenter.requests()["Login"], 1);

    let error = at(&one, &vcenter.login_with("wrong")).describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Auth(text) if text.contains("password") && !text.contains("wrong")), "{error}");
    vcenter.requests();
    let other = Authority::new("other").pem;
    let login = Login::new(
        "lab/x".into(),
        [("username", "capw"), ("password", "secret"), ("ca.crt", &other)].map(|(k, v)| (k.to_owned(), v.as_bytes().to_vec())).into(),
    );
    let error = at(&one, &login).describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Certificate(text) if text.contains("nothing was sent")), "{error}");
    assert!(vcenter.requests().is_empty());
    let error = VsphereDriver::new(one.settings(), &Login::default(), &sessions, pass()).err().unwrap();
    assert!(matches!(&error, DriverError::Auth(text) if text.contains("username")), "{error}");
}

#[tokio::test]
async fn what_guests_say_and_people_do_is_listed() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "told"));
    assert!(machine.create(&*driver, STEPS).await);
    let name = name_of(&machine.key);
    let row = async || driver.list(&Wanted::default()).await.unwrap().rows.remove(0).present;
    let said = GuestReport { sequence: 7, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "<x> & y".into() };
    let values = json!({"guestinfo.capw.report": said.line(), "SET.guest.ipAddress": "10.0.0.9"});
    vcenter.ask(json!({"do": "set", "folder": endpoint.folder, "name": name, "values": values}));
    let told = row().await;
    assert_eq!(told.report, Some(said));
    assert_eq!(told.addresses, ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(machine.present(&*driver).await, told, "a look at one VM says the same");
    let seen = |what: &str| vcenter.ask(json!({"do": what, "folder": endpoint.folder, "name": name}));
    seen("suspend");
    assert!(matches!(row().await, Present { power: Power::On, trouble: Some(why), .. } if why.contains("suspended")));
    seen("off");
    assert!(matches!(row().await, Present { power: Power::Off, trouble: None, .. }));
    // A VM that was moved is not listed any more, and still found.
    seen("move");
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert_eq!(endpoint.driver().observe(&machine.key, &Default::default()).await.unwrap(), machine.see(&*driver).await);
    assert_eq!(machine.present(&*driver).await.power, Power::Off);
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert!(!vcenter.machines("").iter().any(|vm| vm.name == name));
}

/// The alarm's name is read once. An alarm that is not red is ignored.
#[tokio::test]
async fn an_alarm_of_a_vm_that_runs_is_a_warning() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "alarmed"));
    assert!(machine.create(&*driver, STEPS).await);
    let event = |kind: &str| vcenter.ask(json!({"do": "alarm", "folder": endpoint.folder, "name": name_of(&machine.key), "task": kind}));
    let row = async || driver.list(&Wanted::default()).await.unwrap().rows.remove(0).present;
    let quiet = row().await;
    assert_eq!(quiet.warning, None);
    event("failure");
    assert_eq!(row().await, quiet, "it is yellow");
    event("fatal");
    let alarmed = row().await;
    let warning = "the vCenter shows the alarm \"vcsim VM Alarm\": acknowledge it there when that is expected";
    assert_eq!(alarmed, Present { warning: Some(warning.to_owned()), ..quiet.clone() });
    vcenter.requests();
    assert_eq!(machine.present(&*driver).await, alarmed, "a look at one VM says the same");
    assert_eq!(vcenter.requests().values().sum::<u32>(), 1);
    event("success");
    assert_eq!(row().await, quiet);
}

/// A person's copy of our VM has its mark, but another UUID and name.
#[tokio::test]
async fn a_copy_of_our_vm_is_not_ours() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "copied"));
    assert!(machine.create(&*driver, STEPS).await);
    vcenter.ask(json!({"do": "occupy", "folder": endpoint.folder, "name": "copy", "uuid": uuid::Uuid::new_v4()}));
    let values = json!({"capw.mark": machine.key.owner_mark(), "capw.machine": machine.key.name});
    vcenter.ask(json!({"do": "set", "folder": endpoint.folder, "name": "copy", "values": values}));
    let rows = driver.list(&Wanted::default()).await.unwrap().rows;
    assert!(rows.len() == 1 && rows[0].present.power == Power::On, "{rows:?}");
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert_eq!(vcenter.machines(&endpoint.folder).iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["copy"]);
}

#[tokio::test]
async fn a_clone_that_takes_long_is_waited_for_and_can_be_given_up() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "slow"));
    vcenter.ask(json!({"do": "delay", "task": "CloneVm", "millis": 10_000}));
    assert!(matches!(machine.advance(&*driver).await, Ok(DriverStep::Started { .. })));
    assert_eq!(machine.present(&*driver).await.power, Power::Creating);
    vcenter.requests();
    assert!(matches!(machine.advance(&*driver).await, Ok(DriverStep::Wait { .. })));
    assert_eq!(vcenter.requests().values().sum::<u32>(), 1, "one request for each look");
    assert!(matches!(machine.retire(&*driver, StopMode::Hard).await, Ok(DriverStep::Wait { .. })), "its VM is not there yet, and will be");
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!((machine.see(&*driver).await, endpoint.count().await), (Observed::Absent, 0));
}

/// Counts the requests of a whole life at the wire, without the login and without the lookups of image and places that are cached.
#[tokio::test]
async fn a_life_takes_few_requests() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let (driver, requests) = Requests::of(&endpoint);
    assert!(Machine::at(&endpoint, "first").create(&*driver, STEPS).await);
    let machine = Machine::at(&endpoint, "second");
    requests.take();
    assert!(machine.create(&*driver, STEPS).await);
    let create = requests.take();
    while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
    assert_eq!(machine.present(&*driver).await.seeded, Seeded::No);
    let detach = requests.take();
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    let delete = requests.take();
    let text = format!("create {create:?}\ndetach {detach:?}\ndelete {delete:?}");
    let changes: Vec<_> = [&create, &detach, &delete].into_iter().flatten().filter(|name| name.ends_with("_Task")).copied().collect();
    assert_eq!(changes, ["CloneVM_Task", "PowerOnVM_Task", "ReconfigVM_Task", "PowerOffVM_Task", "Destroy_Task"], "{text}");
    // A task may be polled more than once before it is done.
    let once = [create, detach, delete].map(|mut requests| {
        requests.dedup();
        requests.len()
    });
    assert_eq!(once, [6, 3, 9], "{text}");
    driver.list(&Wanted::default()).await.unwrap();
    assert_eq!(requests.take(), ["RetrievePropertiesEx"], "at rest, for all machines");
}

/// The vCenter reports a change at once, through the connections that production uses, and also after the session has ended.
#[tokio::test]
async fn a_change_is_told_without_a_listing() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    let machine = Machine::at(&endpoint, "changes");
    assert!(machine.create(&*endpoint.driver(), STEPS).await);
    let drivers = Drivers::new(DriverSettings::uncounted("/nonexistent".into(), 32, Arc::new(|| jiff::Timestamp::UNIX_EPOCH)));
    let mut object = WindowsHypervisor::new("one", WindowsHypervisorSpec { vsphere: Some(endpoint.settings()), ..WindowsHypervisorSpec::default() });
    object.metadata.namespace = Some("lab".into());
    let driver = drivers.connect(&object, &vcenter.login()).unwrap();
    let (key, mut hints) = (ObjectKey::new("lab", "one"), drivers.hints());
    vcenter.requests();
    drivers.admit(&key, Some(jiff::Timestamp::UNIX_EPOCH));
    // The change may come before the request for updates: then another change follows.
    let mut hinted = async |number: u32| {
        for more in 0..200 {
            let values = json!({"guestinfo.capw.report": format!("{number} {more}")});
            vcenter.ask(json!({"do": "set", "folder": endpoint.folder, "name": name_of(&machine.key), "values": values}));
            if let Ok(hint) = tokio::time::timeout(std::time::Duration::from_millis(100), hints.next()).await {
                return hint;
            }
        }
        None
    };
    assert_eq!(hinted(1).await, Some(key.clone()));
    let told = vcenter.requests();
    assert_eq!((told["CreatePropertyCollector"], told["CreateFilter"]), (1, 2), "{told:?}");
    assert!(driver.list(&Wanted::default()).await.unwrap().rows.len() == 1);
    vcenter.ask(json!({"do": "expire"}));
    assert_eq!(hinted(2).await, Some(key.clone()), "in the session that follows");
    drivers.admit(&key, None);
    drivers.forget(&key);
}
