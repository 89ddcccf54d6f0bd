//! The faults of VMs: by name, by list and by count.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{fs, io};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::record::replace;
use crate::api::hypervisor::{Fault, SimulatedFault};

/// The result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    NotCarriedOut,
    ReplyLost,
    NeverAnswered,
}

impl Fate {
    /// The fate of call `number`: `failing` calls in a hundred fail, chosen by the number and the time.
    pub fn of(failing: i32, number: u64, now: Timestamp) -> Self {
        let mut hasher = DefaultHasher::new();
        (number, now.as_nanosecond()).hash(&mut hasher);
        let drawn = hasher.finish();
        if drawn % 100 >= u64::try_from(failing).unwrap_or(0) {
            return Self::Answered;
        }
        match drawn / 100 % 3 {
            0 => Self::NotCarriedOut,
            1 => Self::ReplyLost,
            _ => Self::NeverAnswered,
        }
    }
}

/// How often the create call fails for a VM with [`Fault::CreateFails`].
pub const CREATE_FAILURES: u32 = 3;

/// `faults.json`: counts that survive a restart of the operator, read and written under the data centre's lock.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ledger {
    /// The VMs that have a counted fault, by `<names>=<fault>`.
    #[serde(rename = "hit")]
    affected: BTreeMap<String, Vec<Uuid>>,
    /// The number of failed create calls, by VM.
    create_failures: BTreeMap<Uuid, u32>,
}

impl Ledger {
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        replace(path, &serde_json::to_vec_pretty(self)?)
    }

    /// The faults of a VM; `true` if the ledger changed and must be written.
    pub fn faults(&mut self, scripted: &[SimulatedFault], vm: Uuid, name: &str) -> (Vec<Fault>, bool) {
        let mut faults = named(name);
        let mut changed = false;
        for fault in scripted.iter().filter(|fault| matches(&fault.names, name)) {
            if let Some(count) = fault.count {
                let affected = self.affected.entry(format!("{}={:?}", fault.names, fault.fault)).or_default();
                if !affected.contains(&vm) {
                    if affected.len() >= usize::try_from(count).unwrap_or(0) {
                        continue;
                    }
                    affected.push(vm);
                    changed = true;
                }
            }
            if !faults.contains(&fault.fault) {
                faults.push(fault.fault);
            }
        }
        (faults, changed)
    }

    /// Counts a create call; `Some(n)` if the call must fail, for the n-th time.
    pub fn create_fails(&mut self, vm: Uuid) -> Option<u32> {
        let failures = self.create_failures.entry(vm).or_default();
        if *failures >= CREATE_FAILURES {
            return None;
        }
        *failures += 1;
        Some(*failures)
    }
}

/// Faults that follow from the name alone: `*-noboot`, `*-nojoin`, `*-slow`, also followed by `-<suffix>`.
fn named(name: &str) -> Vec<Fault> {
    [("noboot", Fault::NoBoot), ("nojoin", Fault::NoJoin), ("slow", Fault::Slow)]
        .into_iter()
        .filter(|(word, _)| name.split('-').skip(1).any(|part| part == *word))
        .map(|(_, fault)| fault)
        .collect()
}

/// Whether the name matches the pattern: `*` stands for any text, every other character for itself.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn faults_by_name() {
        for (name, faults) in [
            ("win-noboot", vec![Fault::NoBoot]),
            ("win-noboot-x7k2q-abcde", vec![Fault::NoBoot]),
            ("md-nojoin-1", vec![Fault::NoJoin]),
            ("a-slow-nojoin", vec![Fault::NoJoin, Fault::Slow]),
            ("noboot", vec![]),
            ("win-nobootx", vec![]),
            ("win-xnoboot", vec![]),
            ("slow-win", vec![]),
        ] {
            assert_eq!(named(name), faults, "{name}");
        }
    }

    #[test]
    fn globs() {
        for (pattern, name) in
            [("*", ""), ("*", "abc"), ("a*", "a"), ("a*c", "abc"), ("a*b*c", "axxbyyc"), ("*b*", "abc"), ("abc", "abc"), ("a*a", "aa")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("a*c", "abd"), ("a*b*c", "acb"), ("a*a", "a"), ("*b", "abc")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_counted_fault_affects_only_the_first_vms_and_always_the_same() {
        let scripted = [SimulatedFault { names: "w*".into(), fault: Fault::NoJoin, count: Some(2) }];
        let mut ledger = Ledger::default();
        let mut faulty = |vm| ledger.faults(&scripted, Uuid::from_u128(vm), "w").0 == [Fault::NoJoin];
        assert!(faulty(1) && faulty(2) && !faulty(3) && faulty(1) && faulty(2));
    }

    proptest! {
        #[test]
        fn a_pattern_without_star_matches_itself_only(name in "[a-z-]{0,20}", other in "[a-z-]{0,20}") {
            prop_assert!(matches(&name, &name));
            prop_assert_eq!(matches(&name, &other), name == other);
            let starred = format!("*{name}*");
            prop_assert_eq!(matches(&starred, &other), other.contains(&name));
        }
    }

    #[test]
    fn calls_fail_in_every_way_as_often_as_asked() {
        let count = |failing, fate| (0..10_000).filter(|number| Fate::of(failing, *number, Timestamp::UNIX_EPOCH) == fate).count();
        assert_eq!((count(0, Fate::Answered), count(100, Fate::Answered)), (10_000, 0));
        for fate in [Fate::NotCarriedOut, Fate::ReplyLost, Fate::NeverAnswered] {
            assert!((800..1200).contains(&count(30, fate)), "{fate:?}: {}", count(30, fate));
        }
    }
}
