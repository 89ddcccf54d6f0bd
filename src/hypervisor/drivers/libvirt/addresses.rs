//! The addresses of guests: the leases of libvirt's networks and, where guests report through the agent, the addresses that the agent
//! knows. The driver never reads the host's ARP table: it holds claims of other machines.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::agent;
use super::client::{Client, Domain};
use super::refusal::Error;
use crate::api::hypervisor::GuestWords;
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::vm::{MacAddress, usable};

/// The most guests that are queried in one listing, and at the same time: an agent that hangs costs the time limit of a query.
const MOST: usize = 16;
const AT_ONCE: usize = 4;
/// The time between two queries about a guest that has just started and has no address.
const SOONEST: Duration = Duration::from_secs(10);
/// The time between two queries about a guest that has an address, or has had none for long.
const LATEST: Duration = Duration::from_secs(3600);
/// The most interfaces of a machine.
const INTERFACES: usize = 16;

/// The known addresses of each guest.
#[derive(Default)]
pub struct Addresses(Mutex<HashMap<VmUuid, Known>>);

struct Known {
    found: Vec<IpAddr>,
    /// The time of the first query since the guest started.
    first: Instant,
    last: Instant,
    /// Whether the guest has restarted since the last query.
    restarted: bool,
}

impl Known {
    fn is_due(&self, now: Instant) -> bool {
        // The longer a guest has no address, the rarer the queries: a bridge of the host leases nothing.
        let wait = if self.found.is_empty() { (self.last - self.first).clamp(SOONEST, LATEST) } else { LATEST };
        self.restarted || now - self.last >= wait
    }
}

impl Addresses {
    /// Returns the addresses that were found last, sorted.
    pub fn of(&self, vm: VmUuid) -> Vec<IpAddr> {
        self.0.lock().get(&vm).map(|known| known.found.clone()).unwrap_or_default()
    }

    /// Notes that a guest has restarted and may get other addresses. The known addresses stay until the next query.
    pub fn restarted(&self, vm: VmUuid) {
        if let Some(known) = self.0.lock().get_mut(&vm) {
            known.restarted = true;
        }
    }

    /// Queries the addresses of the running guests that are due, and forgets the guests that do not run.
    pub async fn look(&self, client: &Client, running: Vec<Domain>, words: GuestWords) -> Result<(), DriverError> {
        let now = Instant::now();
        let due: Vec<Domain> = {
            let mut all = self.0.lock();
            all.retain(|vm, _| running.iter().any(|guest| guest.uuid == vm.0));
            let is_due = |guest: &Domain| all.get(&VmUuid(guest.uuid)).is_none_or(|known| known.is_due(now));
            running.into_iter().filter(is_due).take(MOST).collect()
        };
        let asked = stream::iter(due).map(|guest| async move {
            let found = ask(client, &guest, words).await;
            (VmUuid(guest.uuid), found)
        });
        let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
        for (vm, found) in answers {
            self.note(vm, found?, now);
        }
        Ok(())
    }

    fn note(&self, vm: VmUuid, found: Vec<IpAddr>, now: Instant) {
        let mut all = self.0.lock();
        let first = all.get(&vm).filter(|known| known.found.is_empty() && !known.restarted).map_or(now, |known| known.first);
        all.insert(vm, Known { found, first, last: now, restarted: false });
    }
}

/// Queries the addresses of one guest. A refusal of the daemon is only logged: a machine runs without known addresses.
async fn ask(client: &Client, guest: &Domain, words: GuestWords) -> Result<Vec<IpAddr>, DriverError> {
    let leased = match client.leases(guest).await {
        Ok(leased) => usable(leased.iter().filter_map(|address| address.parse().ok())),
        Err(Error::Refused { code, text }) => {
            tracing::debug!(guest = guest.name, code, text, "libvirt says nothing about leases");
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    if !leased.is_empty() || words != GuestWords::Agent {
        return Ok(leased);
    }
    // libvirt's own request for the agent's addresses has no time limit.
    let told = agent::ask(client, guest, "guest-network-get-interfaces", json!({})).await?;
    Ok(told.map(|told| of_agent(VmUuid(guest.uuid), &told)).unwrap_or_default())
}

/// Returns the addresses of the VM's own interfaces; a guest creates other interfaces for its containers.
fn of_agent(vm: VmUuid, told: &Value) -> Vec<IpAddr> {
    let ours: Vec<String> = (0..INTERFACES).map(|index| MacAddress::of(vm, index).to_string()).collect();
    let is_ours = |interface: &&Value| {
        let mac = interface["hardware-address"].as_str().unwrap_or_default().to_lowercase().replace('-', ":");
        ours.contains(&mac)
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let addresses = list(told).iter().filter(is_ours).flat_map(|interface| list(&interface["ip-addresses"])).collect::<Vec<_>>();
    usable(addresses.iter().filter_map(|address| address["ip-address"].as_str()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_without_an_address_is_asked_for_less_and_less_and_one_that_has_one_hardly_ever() {
        let (addresses, vm) = (Addresses::default(), VmUuid::of("a"));
        let is_due = || addresses.0.lock().get(&vm).is_none_or(|known| known.is_due(Instant::now()));
        let begun = Instant::now();
        let mut asked = Vec::new();
        // The listings of six hours.
        for _ in 0..6 * 360 {
            if is_due() {
                asked.push(begun.elapsed().as_secs());
                addresses.note(vm, Vec::new(), Instant::now());
            }
            tokio::time::advance(SOONEST).await;
        }
        assert_eq!(asked[..6], [0, 10, 20, 40, 80, 160]);
        assert!(asked.len() < 20, "{asked:?}");
        addresses.note(vm, vec![ip("10.0.0.9")], Instant::now());
        tokio::time::advance(LATEST - SOONEST).await;
        assert!(!is_due());
        tokio::time::advance(SOONEST).await;
        assert!(is_due());
        addresses.note(vm, vec![ip("10.0.0.9")], Instant::now());
        addresses.restarted(vm);
        assert_eq!((is_due(), addresses.of(vm)), (true, vec![ip("10.0.0.9")]), "its address stays until it is asked for");
        addresses.note(vm, Vec::new(), Instant::now());
        tokio::time::advance(SOONEST).await;
        assert_eq!((is_due(), addresses.of(vm)), (true, Vec::new()));
    }

    #[test]
    fn an_agent_tells_those_of_the_machines_own_interfaces() {
        let vm = VmUuid::of("a");
        let interface = |mac: String, addresses: &[&str]| {
            let addresses: Vec<Value> =
                addresses.iter().map(|address| json!({"ip-address-type": "x", "ip-address": address, "prefix": 24})).collect();
            json!({"name": "Ethernet", "hardware-address": mac, "ip-addresses": addresses})
        };
        let own = MacAddress::of(vm, 0).to_string();
        let told = json!([
            interface(own.to_uppercase().replace(':', "-"), &["fe80::1", "192.168.122.9"]),
            interface(MacAddress::of(vm, 1).to_string(), &["2001:db8::9", "10.1.0.9"]),
            interface("00:15:5d:00:00:01".into(), &["172.20.0.1"]),
            {"name": "Loopback", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
            {"hardware-address": own},
        ]);
        assert_eq!(of_agent(vm, &told), [ip("10.1.0.9"), ip("192.168.122.9"), ip("2001:db8::9")]);
        assert_eq!(of_agent(vm, &json!({"error": 1})), Vec::<IpAddr>::new());
    }
}
