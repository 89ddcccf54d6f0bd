//! The behaviour of this driver alone, tested with fakepve.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::rig::{STEPS, endpoint, failure};
use crate::api::hypervisor::{CloneMode, Proxmox, VmIds};
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::authority::Authority;
use crate::hypervisor::contract::machine::{Machine, Requests};
use crate::hypervisor::drivers::proxmox::driver::ProxmoxDriver;
use crate::hypervisor::drivers::proxmox::names::{image_of, name_of};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{GuestReport, MacAddress, Nic, Observed, Power, Present, SeedKind, Seeded, StopMode, Thing, VmDisk, VmSpec};

fn pass() -> WireHook {
    Arc::new(|_| Fate::Pass)
}

fn nic(network: Option<&str>) -> Nic {
    Nic { network: network.map(str::to_owned), mac: MacAddress([2, 0, 0, 0, 0, 1]) }
}

#[tokio::test]
async fn a_vm_is_as_asked_to_an_independent_reader() {
    let Some(endpoint) = endpoint() else { return };
    let driver = endpoint.driver();
    let disks = vec![VmDisk { name: "data".into(), gib: 20 }];
    let nics = vec![nic(None), nic(Some("vmbr1,tag=114"))];
    let spec = VmSpec { cpus: 6, memory_mib: 3072, system_disk_gib: Some(40), disks, nics, nested_virtualization: true, ..endpoint.spec() };
    let mut machine = Machine::at(&endpoint, "asked");
    machine.spec = spec;
    assert!(machine.create(&*driver, STEPS).await);
    let made = endpoint.vm(&machine.key).unwrap();
    assert_eq!(
        (made.status.as_str(), made.pool.as_deref(), made.value("cores"), made.value("memory")),
        ("running", Some("capw"), "6".into(), "3072".into())
    );
    assert!((20_000..=29_999).contains(&made.vmid), "{made:?}");
    assert!(made.value("scsi0").starts_with("ceph:") && made.value("scsi0").ends_with("size=40G"), "of the image it is 32: {made:?}");
    assert_eq!((made.value("scsi1"), made.value("tpmstate0")), ("ceph:20".into(), "ceph:1,version=v2.0".into()));
    assert_eq!(made.value("net0"), "virtio=02:00:00:00:00:01,bridge=vmbr0,firewall=1");
    assert_eq!(made.value("net1"), "virtio=02:00:00:00:00:01,bridge=vmbr1,tag=114");
    assert_eq!((made.value("smbios1"), made.value("tags")), (format!("uuid={}", machine.key.vm), format!("capw-{}", machine.key.vm)));
    assert_eq!((made.value("sata5"), made.value("cpu")), (format!("isos:iso/{},media=cdrom", image_of(machine.key.vm)), "host".into()));
    assert_eq!(made.value("description"), format!("{}\ncapw-name=asked", machine.key.owner_mark()));
    assert_eq!(made.value("boot"), "order=scsi0", "it is the image's");
}

/// Local disks bind a VM to their node; with shared disks the VM is placed on the node with free memory.
#[tokio::test]
async fn a_vm_goes_where_its_disks_and_its_memory_are() {
    let Some(endpoint) = endpoint() else { return };
    let of_image = async |image: &str, name: &str, settings: Proxmox| {
        let mut machine = Machine::at(&endpoint, name);
        machine.spec.image = image.into();
        assert!(machine.create(&*endpoint.with(settings, pass()), STEPS).await);
        let made = endpoint.vm(&machine.key).unwrap();
        (made.node.clone(), made.value("scsi0").split(':').next().unwrap().to_owned())
    };
    let settings = || endpoint.settings();
    endpoint.cluster.tell("pve.add_vm(101, 'theirs', node='pve1', config={'memory': 6000}) and None");
    assert_eq!(of_image("windows-server-2022", "shared", settings()).await, ("pve2".into(), "ceph".into()));
    assert_eq!(of_image("windows-local", "local", settings()).await, ("pve1".into(), "local-lvm".into()));
    assert_eq!(of_image("9001", "by-id", settings()).await, ("pve1".into(), "local-lvm".into()));
    let copied = Proxmox { clone: CloneMode::Full, storage: Some("ceph".into()), ..settings() };
    assert_eq!(of_image("windows-local", "copied", copied).await, ("pve1".into(), "ceph".into()), "the template's own disks are local");
    endpoint.cluster.tell("pve.image(9003, 'windows-local', 'local-lvm', node='pve2')");
    assert_eq!(of_image("windows-local", "near", settings()).await, ("pve2".into(), "local-lvm".into()));
}

#[tokio::test]
async fn what_is_missing_or_does_not_fit_is_named_with_the_remedy() {
    let Some(endpoint) = endpoint() else { return };
    let settings = || endpoint.settings();
    for (settings, word) in [
        (Proxmox { nodes: vec!["pve9".into()], ..settings() }, "spec.proxmox.nodes"),
        (Proxmox { iso_storage: "ceph".into(), ..settings() }, "spec.proxmox.isoStorage"),
        (Proxmox { storage: Some("none".into()), ..settings() }, "spec.proxmox.storage"),
    ] {
        let error = endpoint.with(settings, pass()).describe().await.unwrap_err();
        assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if text.contains(word)), "{error}");
    }
    let check = async |settings: Proxmox, spec: VmSpec| endpoint.with(settings, pass()).check(&spec, SeedKind::Drive).await;
    let spec = || endpoint.spec();
    let error = check(settings(), VmSpec { nics: vec![nic(Some("vmbr9"))], ..spec() }).await.unwrap_err();
    assert!(
        matches!(&error, DriverError::Missing { thing: Thing::Network, text } if text.contains("vmbr9") && text.contains("vmbr0, vmbr1")),
        "{error}"
    );
    for (spec, word) in [
        (VmSpec { uefi: false, secure_boot: false, ..spec() }, "firmware.type"),
        (VmSpec { image: "windows-bios".into(), ..spec() }, "made for BIOS"),
        (VmSpec { system_disk_gib: Some(5), ..spec() }, "a system disk of 32 GiB"),
        (VmSpec { nics: vec![nic(Some("vmbr0,queues=4"))], ..spec() }, "vmbr0,tag=114"),
    ] {
        let error = check(settings(), spec).await.unwrap_err();
        assert!(matches!(&error, DriverError::Invalid(text) if text.contains(word)), "{word}: {error}");
    }
    endpoint.cluster.tell("pve.image(9004, 'no-keys', 'ceph', efidisk0='ceph:base-9004-disk-1')");
    endpoint.cluster.tell("pve.image(9005, 'windows-server-2022', 'ceph')");
    endpoint.cluster.tell("pve.add_vm(9006, 'a-vm') and None");
    let error = check(settings(), VmSpec { image: "no-keys".into(), ..spec() }).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("pre-enrolled-keys=1")), "{error}");
    let error = check(settings(), spec()).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("several templates")), "{error}");
    let error = check(settings(), VmSpec { image: "a-vm".into(), ..spec() }).await.unwrap_err();
    assert!(matches!(&error, DriverError::Missing { thing: Thing::Image, text } if text.contains("qm template 9006")), "{error}");
}

/// The privileges on the page are enough, and the driver names each privilege that is missing.
#[tokio::test]
async fn the_roles_of_the_page_are_enough_and_each_privilege_is_needed() {
    let Some(endpoint) = endpoint() else { return };
    let page = include_str!("../../../../../docs/hypervisors/proxmox.md");
    let role = |name: &str| {
        let (_, rest) = page.split_once(&format!("pveum role add {name} -privs \"")).unwrap();
        rest.split_once('"').unwrap().0.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let grants = [
        ("CapwVM", "/pool/capw"),
        ("CapwImage", "/vms/9000"),
        ("CapwDisks", "/storage/ceph"),
        ("CapwIsos", "/storage/isos"),
        ("CapwNodes", "/nodes"),
        ("CapwNetwork", "/sdn/zones/localnetwork/vmbr0"),
    ];
    let grant = |left_out: &str| {
        endpoint.cluster.tell("setattr(pve, 'acl', {})");
        for (name, path) in grants {
            let privileges =
                role(name).into_iter().filter(|privilege| format!("{name} {privilege}") != left_out).map(|it| format!("'{it}'")).collect::<Vec<_>>();
            endpoint.cluster.tell(&format!("pve.grant('capw@pve', '{path}', {})", privileges.join(", ")));
        }
    };
    let settings = || Proxmox { storage: Some("ceph".into()), ..endpoint.settings() };
    grant("");
    let driver = endpoint.with(settings(), pass());
    assert_eq!(driver.describe().await.unwrap().lacks, Vec::<String>::new());
    let machine = Machine::at(&endpoint, "least");
    assert!(machine.create(&*driver, STEPS).await);
    assert_eq!(driver.list(&Wanted { awaiting_reports: [machine.key.vm].into() }).await.unwrap().rows.len(), 1);
    while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await && endpoint.count().await == 0);
    for (name, _) in grants.iter().filter(|(name, _)| !["CapwImage", "CapwNetwork"].contains(name)) {
        for privilege in role(name).iter().filter(|privilege| *privilege != "VM.GuestAgent.FileRead") {
            grant(&format!("{name} {privilege}"));
            let lacks = endpoint.with(settings(), pass()).describe().await.unwrap().lacks;
            assert!(!lacks.is_empty() && lacks.iter().all(|text| text.starts_with(&format!("{privilege} on /"))), "{name} {privilege}: {lacks:?}");
        }
    }
    grant("CapwImage VM.Clone");
    let error = failure(&Machine::at(&endpoint, "denied"), &*driver).await;
    assert!(
        matches!(&error, DriverError::Denied(text) if text.contains("/vms/9000, VM.Clone") && text.contains("docs/hypervisors/proxmox.md")),
        "{error}"
    );
}

#[tokio::test]
async fn the_next_server_is_asked_and_nothing_is_sent_to_a_stranger() {
    let Some(endpoint) = endpoint() else { return };
    let server = endpoint.cluster.server.clone();
    let driver = endpoint.with(Proxmox { servers: vec!["127.0.0.1:1".into(), server.clone()], ..endpoint.settings() }, pass());
    let machine = Machine::at(&endpoint, "second");
    assert!(machine.create(&*driver, STEPS).await && machine.delete(&*driver, StopMode::Hard, STEPS).await);

    let at = |login| ProxmoxDriver::new(endpoint.settings(), &login, Wire::new(pass())).unwrap();
    let error = at(endpoint.cluster.login_with("canary")).describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Auth(text) if text.contains("password") && !text.contains("canary")), "{error}");
    endpoint.cluster.calls();
    let error = at(super::cluster::login("secret", &Authority::new("other"))).describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Certificate(text) if text.contains("nothing was sent")), "{error}");
    assert!(endpoint.cluster.calls().is_empty());
}

#[tokio::test]
async fn what_guests_say_and_people_do_is_listed() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "told"));
    assert!(machine.create(&*driver, STEPS).await);
    let name = name_of(&machine.key);
    let wanted = Wanted { awaiting_reports: [machine.key.vm].into() };
    let row = async || driver.list(&wanted).await.unwrap().rows.remove(0).present;
    assert_eq!(row().await.report, None, "its agent does not run yet");
    let said = GuestReport { sequence: 7, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "<x> & y".into() };
    endpoint.cluster.tell(&format!("pve.say('{name}', {:?})", format!("noise\r\n{}\r\n", said.line())));
    let told = row().await;
    assert_eq!(told.report, Some(said));
    assert_eq!(machine.present(&*driver).await, told, "a look at one VM says the same");
    endpoint.cluster.calls();
    driver.list(&Wanted::default()).await.unwrap();
    let calls = endpoint.cluster.calls();
    assert_eq!(calls, ["GET /cluster/resources", "GET /nodes/pve1/storage/isos/content"], "one that has said its last word is not asked");
    let vm = |change: &str| endpoint.cluster.tell(&format!("[setattr(pve.named('{name}'), *it) for it in {change}]"));
    vm("[('qmpstatus', 'paused')]");
    assert!(matches!(machine.present(&*driver).await, Present { power: Power::On, trouble: Some(why), .. } if why.contains("qm resume")));
    vm("[('qmpstatus', 'stopped'), ('status', 'stopped')]");
    assert!(matches!(row().await, Present { power: Power::Off, trouble: None, .. }));
    // A VM that was migrated is found, by this process and by a process that has lost the journal.
    vm("[('node', 'pve2' if pve.named('NAME').node == 'pve1' else 'pve1')]".replace("NAME", &name).as_str());
    assert_eq!(machine.present(&*driver).await.power, Power::Off);
    let found = endpoint.driver().observe(&machine.key, &Default::default()).await.unwrap();
    assert!(matches!(&found, Observed::Present(Present { power: Power::Off, vm: true, .. })), "{found:?}");
    row().await;
    endpoint.cluster.tell("pve.set_node_offline(pve.named('NAME').node)".replace("NAME", &name).as_str());
    assert!(matches!(row().await, Present { trouble: Some(why), .. } if why.contains("does not answer")));
    let error = machine.retire(&*driver, StopMode::Hard).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("goes on when it is back")), "{error}");
    endpoint.cluster.tell("pve.set_node_offline(pve.named('NAME').node, False)".replace("NAME", &name).as_str());
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await && endpoint.count().await == 0);
}

/// A person's copy of one of our VMs has its mark and tag, and another UUID and name.
#[tokio::test]
async fn a_copy_of_our_vm_is_not_ours() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "copied"));
    assert!(machine.create(&*driver, STEPS).await);
    let config = "dict(pve.machines()[0]['config'], name='copy', smbios1='uuid=22222222-2222-4222-8222-222222222222')";
    endpoint.cluster.tell(&format!("pve.add_vm(700, 'copy', config={config}) and None"));
    let rows = driver.list(&Wanted::default()).await.unwrap().rows;
    assert!(rows.len() == 1 && rows[0].present.power == Power::On, "{rows:?}");
    machine.lose_journal();
    assert!(machine.delete(&*endpoint.driver(), StopMode::Hard, STEPS).await);
    assert_eq!(machine.see(&*driver).await, Observed::Absent);
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert_eq!(endpoint.cluster.vms().iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["copy"]);
}

#[tokio::test]
async fn an_id_that_is_taken_is_passed_over() {
    let Some(endpoint) = endpoint() else { return };
    let settings = Proxmox { ids: VmIds { first: 300, last: 302 }, ..endpoint.settings() };
    let driver = endpoint.with(settings, pass());
    let [one, two, three, four] = ["one", "two", "three", "four"].map(|name| Machine::at(&endpoint, name));
    // The id is stored, and then given to another VM before it is used.
    assert!(matches!(one.advance(&*driver).await, Ok(DriverStep::Started { .. })));
    let reserved: u32 = one.journal()["vmid"].parse().unwrap();
    endpoint.cluster.tell(&format!("pve.add_vm({reserved}, 'theirs') and None"));
    assert!(one.create(&*driver, STEPS).await && two.create(&*driver, STEPS).await);
    let error = three.advance(&*driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Capacity(text) if text.contains("spec.proxmox.ids") && text.contains("300 to 302")), "{error}");
    endpoint.cluster.tell("pve.remove('theirs')");
    assert!(three.create(&*driver, STEPS).await);
    let ids: BTreeSet<u32> = endpoint.cluster.vms().iter().map(|vm| vm.vmid).collect();
    assert_eq!(ids, [300, 301, 302].into());
    // Another machine gets the id of a VM that a person removed: the first machine's VM is absent, and the second machine's VM is left alone.
    endpoint.remove_behind_its_back(&one.key).await;
    assert!(four.create(&*driver, STEPS).await);
    assert!(matches!(one.see(&*driver).await, Observed::Absent | Observed::Present(Present { vm: false, .. })));
    assert!(one.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!(four.present(&*driver).await.power, Power::On);
}

#[tokio::test]
async fn a_clone_that_takes_long_is_waited_for_and_can_be_given_up() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "slow"));
    endpoint.cluster.tell("[setattr(pve, 'time_scale', 0.01), pve.ceph_slow(100)] and None");
    for _ in 0..2 {
        assert!(matches!(machine.advance(&*driver).await, Ok(DriverStep::Started { .. })));
    }
    endpoint.cluster.calls();
    assert_eq!(machine.present(&*driver).await.power, Power::Creating);
    assert_eq!(endpoint.cluster.calls().len(), 1, "one request for each look");
    assert!(matches!(machine.advance(&*driver).await, Ok(DriverStep::Wait { .. })));
    assert!(matches!(machine.retire(&*driver, StopMode::Hard).await, Ok(DriverStep::Wait { .. })), "its VM is not whole yet, and will be");
    endpoint.cluster.tell("pve.ceph_recover()");
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!((machine.see(&*driver).await, endpoint.count().await), (Observed::Absent, 0));
}

/// Counts the requests of a whole life where they leave the driver, without the requests for image and places, which are cached for a minute.
#[tokio::test]
async fn a_life_takes_few_requests() {
    let Some(endpoint) = endpoint() else { return };
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
    let is_change = |name: &&&str| !["Get", "List", "Read"].iter().any(|start| name.starts_with(start));
    let changes: Vec<_> = [&create, &detach, &delete].into_iter().flatten().filter(is_change).copied().collect();
    assert_eq!(changes, ["Clone", "Upload", "SetConfig", "Start", "SetConfig", "DeleteImage", "Stop", "Destroy"], "{text}");
    let without_polls = |all: &[&str]| all.iter().filter(|name| **name != "GetTask").count();
    assert!(without_polls(&create) <= 18 && without_polls(&detach) <= 14 && without_polls(&delete) <= 19, "{text}");
    driver.list(&Wanted::default()).await.unwrap();
    assert_eq!(requests.take(), ["ListGuests", "GetConfig", "ListImages"], "the first machine was not listed before");
    driver.list(&Wanted::default()).await.unwrap();
    assert_eq!(requests.take(), ["ListGuests", "ListImages"], "at rest, for all machines");
}

/// A guest that ignores the shutdown gets the request repeatedly, and is powered off in the end.
#[tokio::test]
async fn a_guest_that_shuts_down_in_time_keeps_its_power() {
    let Some(endpoint) = endpoint() else { return };
    let (driver, machine) = (endpoint.driver(), Machine::at(&endpoint, "obeys"));
    assert!(machine.create(&*driver, STEPS).await);
    endpoint.cluster.tell(&format!("setattr(pve.named('{}'), 'acpi', False)", name_of(&machine.key)));
    endpoint.cluster.calls();
    for _ in 0..2 {
        assert!(matches!(machine.retire(&*driver, StopMode::Graceful).await, Ok(DriverStep::Wait { .. })));
    }
    assert_eq!(machine.present(&*driver).await.power, Power::On);
    endpoint.cluster.tell(&format!("setattr(pve.named('{}'), 'acpi', True)", name_of(&machine.key)));
    assert!(machine.delete(&*driver, StopMode::Graceful, STEPS).await && endpoint.count().await == 0);
    let calls = endpoint.cluster.calls();
    assert!(!calls.iter().any(|call| call.ends_with("/status/stop")), "{calls:?}");
}

#[tokio::test]
async fn drives_on_local_storage_are_found_on_each_node() {
    let Some(endpoint) = endpoint() else { return };
    let driver = endpoint.with(Proxmox { iso_storage: "local".into(), ..endpoint.settings() }, pass());
    let machine = Machine::at(&endpoint, "local");
    assert!(machine.create(&*driver, STEPS).await);
    assert_eq!(endpoint.cluster.ask::<Vec<String>>("pve.files()"), [format!("local:{}", image_of(machine.key.vm))]);
    assert!(machine.delete(&*driver, StopMode::Hard, STEPS).await);
    assert_eq!(endpoint.cluster.ask::<Value>("pve.files()"), serde_json::json!([]));
}
