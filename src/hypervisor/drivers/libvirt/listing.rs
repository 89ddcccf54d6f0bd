//! Lists a host: two requests for any number of VMs, one more for each VM that this process has neither created nor seen, and one for each
//! guest that still reports, or three to catch up with a long log; with the guest agent, three. Requests for addresses are few (`addresses.rs`).

use std::collections::{HashMap, HashSet};

use super::addresses::Addresses;
use super::agent;
use super::client::{Domain, DomainState, Volume};
use super::definitions::Definitions;
use super::domain::may_be_ours;
use super::link::Session;
use super::logs::{self, Log, TurnedOver};
use super::volumes::{self, Volumes};
use crate::api::hypervisor::GuestWords;
use crate::api::name::VmUuid;
use crate::hypervisor::{DriverError, Leftover, Listing, Row, Wanted};
use crate::vm::{GuestReport, Power, Present, Seeded};

/// The results of earlier listings about guests.
#[derive(Default)]
pub struct Seen {
    logs: HashMap<VmUuid, Log>,
}

/// The facts that a listing uses.
pub struct Known<'a> {
    pub definitions: &'a Definitions,
    pub turned_over: &'a TurnedOver,
    pub addresses: &'a Addresses,
}

impl Seen {
    /// Returns the newest report of a guest that was read.
    fn report(&self, vm: VmUuid) -> Option<GuestReport> {
        self.logs.get(&vm)?.report().cloned()
    }

    pub async fn list(&mut self, session: &Session, known: &Known<'_>, wanted: &Wanted, channel: GuestWords) -> Result<Listing, DriverError> {
        let definitions = known.definitions;
        let (domains, volumes) = (session.client.domains().await?, session.client.volumes(&session.pool).await?);
        let there: HashSet<VmUuid> = domains.iter().map(|it| VmUuid(it.domain.uuid)).collect();
        definitions.keep(&there);
        self.logs.retain(|vm, _| there.contains(vm));
        let mut ours = Vec::new();
        for it in domains.iter().filter(|it| may_be_ours(&it.domain.name, it.domain.uuid)) {
            let Some(found) = definitions.get(session, &it.domain).await? else { continue };
            let Some((key, _)) = found.owner.clone().filter(|(key, _)| found.is_ours(key) && found.is_in(&session.storage)) else { continue };
            ours.push((it, key, found));
        }
        let talking = ours.iter().filter(|(it, key, _)| power(it).0 == Power::On && wanted.awaiting_reports.contains(&key.vm));
        let mut unread = HashMap::new();
        match channel {
            GuestWords::Serial => {
                for (_, key, _) in talking {
                    let Some(volume) = logs::of(&Volumes::of(key), &volumes) else { continue };
                    match self.logs.entry(key.vm).or_default().read(session, volume).await {
                        Ok(is_whole) => known.turned_over.note(key.vm, is_whole),
                        // One unreadable log must not fail the listing of the other guests.
                        Err(error) => drop(unread.insert(key.vm, logs::unread(error)?)),
                    }
                }
            }
            GuestWords::Agent => {
                let guests: Vec<Domain> = talking.map(|(it, _, _)| it.domain.clone()).collect();
                for (guest, text) in agent::reports(&session.client, guests).await? {
                    self.logs.entry(VmUuid(guest.uuid)).or_default().note(GuestReport::newest([text.as_slice()]));
                }
            }
        }
        let running = ours.iter().filter(|(it, ..)| power(it).0 == Power::On).map(|(it, ..)| it.domain.clone());
        known.addresses.look(&session.client, running.collect(), channel).await?;
        let rows = ours.into_iter().map(|(it, key, found)| {
            let (power, trouble) = power(it);
            let drive = Volumes::of(&key).drive();
            let seeded = Seeded::from_attached(volumes.iter().any(|volume| volume.name == drive));
            let addresses = if power == Power::On { known.addresses.of(key.vm) } else { Vec::new() };
            let present = Present { power, seeded, vm: true, addresses, report: self.report(key.vm), trouble, warning: unread.remove(&key.vm) };
            Row { key, present, cpus: found.cpus, memory_mib: found.memory_mib }
        });
        let mut listing = Listing { rows: rows.collect(), leftovers: leftovers(&domains, &volumes, wanted) };
        listing.rows.sort_by_key(|row| row.key.vm);
        Ok(listing)
    }
}

/// Returns the volumes that are named like our VMs but have no VM, without the volumes of a VM that is being created.
fn leftovers(domains: &[DomainState], volumes: &[Volume], wanted: &Wanted) -> Vec<Leftover> {
    let owned: HashSet<&str> = domains.iter().map(|it| it.domain.name.as_str()).collect();
    let in_the_making: HashSet<String> = wanted.awaiting_reports.iter().map(|vm| vm.0.simple().to_string().chars().take(8).collect()).collect();
    let is_leftover = |vm: &str| !owned.contains(vm) && !volumes::digits(vm).is_some_and(|digits| in_the_making.contains(digits));
    let mut leftovers: Vec<Leftover> = volumes
        .iter()
        .filter(|volume| volumes::vm_of(&volume.name).is_some_and(is_leftover))
        .map(|volume| Leftover { what: format!("volume {}", volume.name) })
        .collect();
    leftovers.sort();
    leftovers
}

/// Translates libvirt's numbers (`virDomainState` and the reasons of `VIR_DOMAIN_PAUSED`).
fn power(it: &DomainState) -> (Power, Option<String>) {
    let paused = |why: &str| (Power::On, Some(why.to_owned()));
    match (it.state, it.reason) {
        (3, 1) => paused("it was paused, but not by CAPW: virsh resume"),
        (3, 5) => paused("its disk failed, or the storage of the host is full: fix the storage, then virsh resume"),
        (3, 6) => paused("its watchdog has stopped it: virsh reset"),
        (3, 10) => paused("its system crashed: virsh reset"),
        (6, _) => (Power::Off, None),
        (4, _) => (Power::Stopping, None),
        (5, _) => (Power::Off, None),
        _ => (Power::On, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_is_paused_says_why() {
        let state = |state, reason| DomainState { domain: Domain { name: String::new(), uuid: uuid::Uuid::nil() }, state, reason };
        assert_eq!(power(&state(1, 1)), (Power::On, None));
        assert_eq!(power(&state(5, 0)), (Power::Off, None));
        assert_eq!(power(&state(3, 2)), (Power::On, None), "it is being migrated");
        assert!(matches!(power(&state(3, 5)), (Power::On, Some(why)) if why.contains("storage")));
    }
}
