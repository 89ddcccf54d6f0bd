//! The listing of a host: two requests however many VMs it has, one more for each VM that this process has neither made nor seen, and one for
//! each guest that still talks; with the guest agent, three.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::agent;
use super::client::{Domain, DomainState, Volume};
use super::domain::{Found, may_be_ours};
use super::link::Session;
use super::refusal::{code, unless};
use super::volumes::{self, Volumes};
use crate::api::hypervisor::GuestWords;
use crate::api::name::VmUuid;
use crate::hypervisor::{DriverError, Listing, Row, Stray, Wanted};
use crate::vm::{GuestReport, Power, Present, Seeded};

/// Most that is kept of what a guest said last: a line may come in two parts.
const TAIL: usize = 4096;

/// Definitions that were made or read, by UUID: identity, processors and memory of a VM do not change.
#[derive(Default)]
pub struct Definitions(Mutex<HashMap<VmUuid, Found>>);

impl Definitions {
    fn lock(&self) -> MutexGuard<'_, HashMap<VmUuid, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the definition of a VM, in libvirt's XML.
    pub fn note(&self, vm: VmUuid, xml: &str) -> Option<Found> {
        let found = Found::read(xml)?;
        self.lock().insert(vm, found.clone());
        Some(found)
    }

    /// The definition of a domain; `None`: it has gone meanwhile, or is not of our making.
    async fn get(&self, session: &Session, domain: &Domain) -> Result<Option<Found>, DriverError> {
        let vm = VmUuid(domain.uuid);
        let known = self.lock().get(&vm).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let xml = unless(session.client.domain_xml(domain).await, code::NO_DOMAIN)?;
        Ok(xml.and_then(|xml| self.note(vm, &xml)))
    }
}

/// What earlier listings have shown of guests.
#[derive(Default)]
pub struct Seen {
    words: HashMap<VmUuid, Words>,
}

/// What was read of a guest's words.
#[derive(Default)]
struct Words {
    offset: u64,
    tail: Vec<u8>,
    newest: Option<GuestReport>,
}

impl Words {
    fn add(&mut self, bytes: &[u8]) {
        self.offset += u64::try_from(bytes.len()).unwrap_or_default();
        self.tail.extend(bytes);
        let found = GuestReport::newest([self.tail.as_slice()]);
        self.note(found);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    fn note(&mut self, found: Option<GuestReport>) {
        self.newest = match (found, self.newest.take()) {
            (Some(new), Some(old)) if old.sequence > new.sequence => Some(old),
            (new, old) => new.or(old),
        };
    }
}

impl Seen {
    /// The newest report that was read of a guest.
    fn report(&self, vm: VmUuid) -> Option<GuestReport> {
        self.words.get(&vm)?.newest.clone()
    }

    pub async fn list(&mut self, session: &Session, definitions: &Definitions, wanted: &Wanted, channel: GuestWords) -> Result<Listing, DriverError> {
        let (domains, volumes) = (session.client.domains().await?, session.client.volumes(&session.pool).await?);
        let there: HashSet<VmUuid> = domains.iter().map(|it| VmUuid(it.domain.uuid)).collect();
        definitions.lock().retain(|vm, _| there.contains(vm));
        self.words.retain(|vm, _| there.contains(vm));
        let mut ours = Vec::new();
        for it in domains.iter().filter(|it| may_be_ours(&it.domain.name, it.domain.uuid)) {
            let Some(found) = definitions.get(session, &it.domain).await? else { continue };
            let Some((key, _)) = found.owner.clone().filter(|(key, _)| found.is_ours(key) && found.is_in(&session.pool.name)) else { continue };
            ours.push((it, key, found));
        }
        let talking = ours.iter().filter(|(it, key, _)| power(it).0 == Power::On && wanted.words_of.contains(&key.vm));
        match channel {
            GuestWords::Serial => {
                for (_, key, _) in talking {
                    self.listen(session, &key.vm, &Volumes::of(key), &volumes).await?;
                }
            }
            GuestWords::Agent => {
                let guests: Vec<Domain> = talking.map(|(it, _, _)| it.domain.clone()).collect();
                for (guest, text) in agent::reports(&session.client, guests).await? {
                    self.words.entry(VmUuid(guest.uuid)).or_default().note(GuestReport::newest([text.as_slice()]));
                }
            }
        }
        let rows = ours.into_iter().map(|(it, key, found)| {
            let (power, trouble) = power(it);
            let drive = Volumes::of(&key).drive();
            let seeded = Seeded::from_attached(volumes.iter().any(|volume| volume.name == drive));
            let present = Present { power, seeded, vm: true, addresses: Vec::new(), report: self.report(key.vm), trouble, warning: None };
            Row { key, present, cpus: found.cpus, memory_mib: found.memory_mib }
        });
        let mut listing = Listing { rows: rows.collect(), strays: strays(&domains, &volumes, wanted) };
        listing.rows.sort_by_key(|row| row.key.vm);
        Ok(listing)
    }

    async fn listen(&mut self, session: &Session, vm: &VmUuid, names: &Volumes, volumes: &[Volume]) -> Result<(), DriverError> {
        let Some(log) = volumes.iter().find(|volume| volume.name == names.log()) else { return Ok(()) };
        let words = self.words.entry(*vm).or_default();
        // From the last byte that is known: if that is not there, the daemon has begun a new file, as it does when one is full.
        let read = session.client.download(&session.pool, log, words.offset.saturating_sub(1)).await?;
        match (words.offset, read.split_first()) {
            (0, _) => words.add(&read),
            (_, Some((_, new))) => words.add(new),
            (_, None) => words.offset = 0,
        }
        Ok(())
    }
}

/// Volumes that have the name of a VM of ours, and no VM. Those of a VM that is being made are none.
fn strays(domains: &[DomainState], volumes: &[Volume], wanted: &Wanted) -> Vec<Stray> {
    let owned: HashSet<&str> = domains.iter().map(|it| it.domain.name.as_str()).collect();
    let in_the_making: HashSet<String> = wanted.words_of.iter().map(|vm| vm.0.simple().to_string().chars().take(8).collect()).collect();
    let is_stray = |vm: &str| !owned.contains(vm) && !volumes::digits(vm).is_some_and(|digits| in_the_making.contains(digits));
    let mut strays: Vec<Stray> = volumes
        .iter()
        .filter(|volume| volumes::vm_of(&volume.name).is_some_and(is_stray))
        .map(|volume| Stray { what: format!("volume {}", volume.name) })
        .collect();
    strays.sort();
    strays
}

/// What libvirt's numbers mean (`virDomainState` and the reasons of `VIR_DOMAIN_PAUSED`).
fn power(it: &DomainState) -> (Power, Option<String>) {
    let paused = |why: &str| (Power::On, Some(why.to_owned()));
    match (it.state, it.reason) {
        (3, 1) => paused("it was paused, but not by CAPW: virsh resume"),
        (3, 5) => paused("its disk failed, or the storage of the host is full: mend the storage, then virsh resume"),
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
    fn words_come_in_parts_and_the_newest_counts() {
        let report = |sequence| GuestReport { sequence, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "x".into() };
        let mut words = Words::default();
        words.add(b"BdsDxe: starting Boot0001\r\n");
        assert_eq!(words.newest, None);
        let line = report(7).line() + "\n";
        let (start, end) = line.split_at(9);
        words.add(start.as_bytes());
        words.add(end.as_bytes());
        assert_eq!((words.newest.clone(), words.offset), (Some(report(7)), 27 + u64::try_from(line.len()).unwrap()));
        words.add(&vec![b'#'; 32 << 10]);
        words.add((report(3).line() + "\n").as_bytes());
        assert_eq!((words.newest.clone(), words.tail.len()), (Some(report(7)), TAIL), "an old line that is repeated is no news");
    }

    #[test]
    fn a_vm_that_is_paused_says_why() {
        let state = |state, reason| DomainState { domain: Domain { name: String::new(), uuid: uuid::Uuid::nil() }, state, reason };
        assert_eq!(power(&state(1, 1)), (Power::On, None));
        assert_eq!(power(&state(5, 0)), (Power::Off, None));
        assert_eq!(power(&state(3, 2)), (Power::On, None), "it is being migrated");
        assert!(matches!(power(&state(3, 5)), (Power::On, Some(why)) if why.contains("storage")));
    }
}
