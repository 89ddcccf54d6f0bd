//! The choices of a user: images of content libraries, VM groups, and CDs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rig::VsphereEndpoint;
use super::vcenter::Vcenter;
use crate::api::hypervisor::Vsphere;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{Machine, Requests};
use crate::hypervisor::drivers::vsphere::found::name_of;
use crate::hypervisor::wire::Fate;
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Power, SeedKind, Seeded, StopMode, Thing, VmSpec};

const STEPS: usize = 12;

#[tokio::test]
async fn images_come_from_content_libraries() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    vcenter.ask(json!({"do": "library", "name": "gold", "values": {"ws2022": "vm-template", "ws2019": "ovf"}}));
    let driver = endpoint.driver();
    let of = |image: &str| VmSpec { image: image.into(), ..endpoint.spec() };
    let mut machine = Machine::at(&endpoint, "from-library");
    machine.spec = of("library:gold/ws2022");
    assert!(machine.create(&*driver, STEPS).await);
    assert_eq!(endpoint.machine(&machine.key).unwrap().power, "poweredOn");
    let check = async |image: &str| driver.check(&of(image), SeedKind::GuestInfo).await.unwrap_err();
    for (image, words) in [("library:tin/ws2022", "no content library \"tin\""), ("library:gold/ws2025", "no item \"ws2025\"")] {
        let error = check(image).await;
        assert!(matches!(&error, DriverError::Missing { thing: Thing::Image, text } if text.contains(words)), "{error}");
    }
    let there = check("library:gold/ws2025").await.to_string();
    assert!(there.contains("ws2019, ws2022"), "{there}");
    assert!(check("library:tin/x").await.to_string().contains("may see: gold"));
    for (image, words) in [("library:gold/ws2019", "type \"ovf\""), ("library:gold", "library:LIBRARY/ITEM")] {
        let error = check(image).await;
        assert!(matches!(&error, DriverError::Invalid(text) if text.contains(words)), "{error}");
    }
}

#[tokio::test]
async fn machines_are_in_their_vm_group_before_they_start() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::new(&vcenter);
    for name in ["licensed", "others"] {
        vcenter.ask(json!({"do": "group", "name": name}));
    }
    let at = |group: &str| endpoint.with(Vsphere { vm_group: Some(group.into()), ..endpoint.settings() }, Arc::new(|_| Fate::Pass));
    let (driver, other) = (at("licensed"), at("licensed"));
    assert_eq!(driver.describe().await.unwrap().lacks, Vec::<String>::new());
    let [one, two, three] = ["one", "two", "three"].map(|name| Machine::at(&endpoint, name));
    assert!(matches!(one.advance(&*driver).await, Ok(DriverStep::Started { .. })));
    while one.present(&*driver).await.power == Power::Creating {}
    assert_eq!(one.present(&*driver).await.power, Power::Off, "a clone would start outside of the group");
    let made = tokio::join!(one.create(&*driver, STEPS), two.create(&*other, STEPS), three.create(&*driver, STEPS));
    assert_eq!(made, (true, true, true));
    let members = |group: &str| {
        let Value::Array(names) = vcenter.ask(json!({"do": "members", "name": group})) else { panic!("no list") };
        let mut names: Vec<String> = names.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let mut all = [&one, &two, &three].map(|machine| name_of(&machine.key));
    all.sort();
    assert_eq!((members("licensed"), members("others")), (all.to_vec(), vec![]));
    let error = at("none").describe().await.unwrap_err();
    let says = |text: &str| text.contains("vmGroup \"none\"") && text.contains("it has licensed, others");
    assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if says(text)), "{error}");
}

#[tokio::test]
async fn the_file_of_a_cd_goes_before_its_vm() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    let endpoint = VsphereEndpoint::with_drive(&vcenter);
    let (driver, requests) = Requests::of(&endpoint);
    let machine = Machine::at(&endpoint, "on-cd");
    assert!(machine.create(&*driver, STEPS).await);
    let made = endpoint.machine(&machine.key).unwrap();
    let drives = made.drives.unwrap();
    assert!(drives.len() == 1 && drives[0].starts_with("[LocalDS_0] ") && drives[0].ends_with("/capw-seed.iso"), "{drives:?}");
    assert!(vcenter.file(&drives[0]).map(SeedImage::Drive) == Some(SeedImage::from(&machine.seed)));
    assert!(!made.values.keys().any(|key| key.starts_with("guestinfo.")), "nothing goes two ways");
    requests.take();
    while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
    let detach = requests.take();
    assert_eq!((vcenter.file(&drives[0]), endpoint.machine(&machine.key).unwrap().drives), (None, None), "{detach:?}");
    assert_eq!(machine.present(&*driver).await.seeded, Seeded::No);
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert!(!requests.take().contains(&"DeleteDatastoreFile_Task"), "it was deleted before");

    let unread = Machine::at(&endpoint, "unread");
    assert!(unread.create(&*driver, STEPS).await);
    requests.take();
    assert!(unread.delete(&*driver, StopMode::Hard, STEPS).await);
    let delete = requests.take();
    let position = |name: &str| delete.iter().position(|request| *request == name).unwrap_or_else(|| panic!("no {name}: {delete:?}"));
    assert!(position("DeleteDatastoreFile_Task") < position("Destroy_Task"), "{delete:?}");
}
