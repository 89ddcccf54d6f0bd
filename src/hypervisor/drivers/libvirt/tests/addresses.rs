//! The addresses of guests. libvirt's networks need rights that this daemon does not have, and the guest is a boot sector: the leases of a
//! network and the answers of an agent are simulated.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use capw_libvirtd::Daemon;
use capw_patience::within;
use parking_lot::Mutex;
use serde_json::json;

use super::between::{Answer, Between};
use super::rig::LibvirtEndpoint;
use super::told::DEADLINE;
use crate::api::hypervisor::GuestWords;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine, Requests};
use crate::hypervisor::drivers::libvirt::rpc::QEMU;
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::drivers::libvirt::xdr::{Decoder, Encoder};
use crate::hypervisor::wire::Fate;
use crate::hypervisor::{Driver, Wanted};
use crate::vm::MacAddress;

const INTERFACE_ADDRESSES: u32 = 353;
const LEASES: u32 = 0;

/// Builds the daemon's answer about one interface.
fn interface(addresses: &[&str]) -> Encoder {
    let start = Encoder::default().u32(1).text("vnet0").optional_text(Some("02:00:00:00:00:01")).u32(u32::try_from(addresses.len()).unwrap());
    addresses.iter().fold(start, |answer, address| answer.u32(0).text(address).u32(24))
}

async fn addresses(driver: &dyn Driver) -> Vec<String> {
    let addresses = driver.list(&Wanted::default()).await.unwrap().rows.remove(0).present.addresses;
    addresses.iter().map(IpAddr::to_string).collect()
}

#[tokio::test]
async fn what_a_network_has_leased_is_listed_and_seen() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let between = Between::new(&daemon.socket(), move |_, procedure, arguments| {
        if procedure != INTERFACE_ADDRESSES {
            return Answer::Real;
        }
        let mut decoder = Decoder(arguments);
        let (_name, _uuid, _id) = (decoder.text().unwrap(), decoder.uuid().unwrap(), decoder.u32().unwrap());
        assert_eq!((decoder.u32().unwrap(), decoder.u32().unwrap()), (LEASES, 0));
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Played(interface(&["192.168.122.30", "fe80::1", "10.0.0.9"]))
    });
    let (driver, machine) = (endpoint.at(between.socket(), Arc::new(|_| Fate::Pass)), Machine::new("leased", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    for _ in 0..3 {
        assert_eq!(addresses(&*driver).await, ["10.0.0.9", "192.168.122.30"]);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "who has an address is not asked for again");
    assert_eq!(machine.present(&*driver).await.addresses.len(), 2, "a look at the machine shows them too");
    let name = Volumes::of(&machine.key).vm().to_owned();
    daemon.virsh(["reset", &name]);
    let again = async {
        while asked.load(Ordering::Relaxed) < 2 {
            addresses(&*driver).await;
        }
    };
    within("a guest that restarts is asked for again", DEADLINE, again).await;
}

/// The real daemon has no network, so no lease, and no agent.
#[tokio::test]
async fn a_guest_without_a_lease_has_no_address_and_costs_one_question() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    for words in [GuestWords::Serial, GuestWords::Agent] {
        let mut endpoint = LibvirtEndpoint::new(&daemon);
        endpoint.words = words;
        let (driver, requests) = Requests::of(&endpoint);
        let machine = Machine::new("unreached", endpoint.spec());
        assert!(machine.create(&*driver, MANY).await);
        requests.take();
        for _ in 0..3 {
            assert_eq!(addresses(&*driver).await, Vec::<String>::new());
        }
        let asked = requests.take();
        let of = |name| asked.iter().filter(|request| **request == name).count();
        assert_eq!((of("DomainInterfaceAddresses"), of("QemuDomainAgentCommand")), (1, usize::from(words == GuestWords::Agent)), "{asked:?}");
    }
}

#[tokio::test]
async fn an_agent_is_asked_where_no_network_has_leased_anything() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let mut endpoint = LibvirtEndpoint::new(&daemon);
    endpoint.words = GuestWords::Agent;
    let machine = Machine::new("agent", endpoint.spec());
    let own = MacAddress::of(machine.key.vm, 0).to_string();
    let commands = Arc::new(Mutex::new(Vec::new()));
    let noted = commands.clone();
    let between = Between::new(&daemon.socket(), move |program, procedure, arguments| {
        if (program, procedure) != (QEMU, 3) {
            return Answer::Real;
        }
        let mut decoder = Decoder(arguments);
        let (_name, _uuid, _id, command) = (decoder.text().unwrap(), decoder.uuid().unwrap(), decoder.u32().unwrap(), decoder.text().unwrap());
        noted.lock().push(command);
        let interfaces = json!([
            {"name": "Ethernet", "hardware-address": own, "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "10.0.0.9", "prefix": 24}]},
            {"name": "vEthernet (nat)", "hardware-address": "00:15:5d:01:02:03", "ip-addresses": [{"ip-address": "172.20.0.1"}]},
        ]);
        Answer::Played(Encoder::default().optional_text(Some(&json!({"return": interfaces}).to_string())))
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    assert!(machine.create(&*driver, MANY).await);
    assert_eq!(addresses(&*driver).await, ["10.0.0.9"]);
    let commands = commands.lock().clone();
    assert!(matches!(&commands[..], [only] if only.contains("guest-network-get-interfaces")), "{commands:?}");
}
