//! Scans the directories of all VMs for guests to start and to stop.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use uuid::Uuid;

use crate::hypervisor::drivers::simulated::record::{Home, Record, RecordedPower, lock_file};

/// The version of a record's file: every write replaces the file.
pub type Version = Option<(SystemTime, u64)>;

/// An action that a scan of the VMs requires.
pub enum Change {
    Start(Home, Box<Record>, File, Version),
    /// The VM is off, stopping, started again or deleted.
    Stop(PathBuf),
    /// The record was written, but the machine's start is the same.
    Seen(PathBuf, Version),
}

/// The guests that run: the time of power on and the version of the record, by the directory of the VM.
pub type Known = HashMap<PathBuf, (Timestamp, Version)>;

/// Scans all VMs. Reads only the records that changed.
pub fn look(state: &Path, known: &Known, now: Timestamp) -> io::Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut seen = 0;
    for datacenter in directories(state)? {
        for path in directories(&datacenter)? {
            if path.file_name().and_then(|name| name.to_str()).is_none_or(|name| Uuid::try_parse(name).is_err()) {
                continue;
            }
            let home = Home(path);
            let version = fs::metadata(home.record()).and_then(|file| Ok((file.modified()?, file.ino()))).ok();
            match known.get(&home.0) {
                Some((_, before)) if *before == version => seen += 1,
                Some((since, _)) => {
                    seen += 1;
                    let same = runs(&home, now).is_some_and(|record| record.since == *since);
                    changes.push(if same { Change::Seen(home.0, version) } else { Change::Stop(home.0) });
                }
                None => {
                    let Some(record) = runs(&home, now) else { continue };
                    let Ok(lock) = lock_file(&home.guest_lock()) else { continue };
                    if lock.try_lock().is_ok() {
                        changes.push(Change::Start(home, Box::new(record), lock, version));
                    }
                }
            }
        }
    }
    if seen < known.len() {
        changes.extend(known.keys().filter(|path| !path.exists()).map(|path| Change::Stop(path.clone())));
    }
    Ok(changes)
}

/// The record of a VM that is on.
fn runs(home: &Home, now: Timestamp) -> Option<Record> {
    let record = home.read().ok()??;
    (record.power == RecordedPower::On && now >= record.exists_from).then_some(record)
}

/// The directories in a directory; none if it does not exist.
fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::name::VmUuid;
    use crate::hypervisor::contract::spec;
    use crate::vm::MachineKey;

    fn vm(state: &Path) -> (Home, Record) {
        let key = MachineKey { vm: VmUuid::of("x"), cluster: "lab/one".into(), name: "win-1".into() };
        let home = Home(state.join("lab").join(key.vm.to_string()));
        fs::create_dir_all(home.disk()).unwrap();
        let record = Record { power: RecordedPower::On, power_ons: 1, ..Record::new(&key, &spec(), vec![], 0, Timestamp::UNIX_EPOCH) };
        home.write(&record).unwrap();
        (home, record)
    }

    fn starts(changes: Vec<Change>) -> Vec<(Timestamp, Version, File)> {
        changes
            .into_iter()
            .filter_map(|change| if let Change::Start(_, record, lock, version) = change { Some((record.since, version, lock)) } else { None })
            .collect()
    }

    #[test]
    fn one_process_runs_a_guest_until_it_lets_go() {
        let state = tempfile::tempdir().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(starts(look(&state.path().join("none"), &Known::new(), now).unwrap()).len(), 0);
        vm(state.path());
        let first = starts(look(state.path(), &Known::new(), now).unwrap());
        assert_eq!(first.len(), 1);
        assert_eq!(starts(look(state.path(), &Known::new(), now).unwrap()).len(), 0, "another process does not");
        drop(first);
        assert_eq!(starts(look(state.path(), &Known::new(), now).unwrap()).len(), 1, "until the first one is gone");
    }

    #[test]
    fn power_that_goes_stops_the_guest() {
        let state = tempfile::tempdir().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let (home, record) = vm(state.path());
        let [(since, version, _lock)] = starts(look(state.path(), &Known::new(), now).unwrap()).try_into().unwrap();
        let known = Known::from([(home.0.clone(), (since, version))]);
        let stops = || look(state.path(), &known, now).unwrap().iter().any(|change| matches!(change, Change::Stop(_)));
        assert!(look(state.path(), &known, now).unwrap().is_empty(), "nothing changed");
        home.write(&record).unwrap();
        assert!(matches!(look(state.path(), &known, now).unwrap()[..], [Change::Seen(..)]), "written again, still on");
        home.write(&Record { since: record.since + Duration::from_millis(1), ..record.clone() }).unwrap();
        assert!(stops(), "off and on again");
        home.write(&Record { power: RecordedPower::Stopping, ..record }).unwrap();
        assert!(stops(), "off");
        fs::remove_dir_all(&home.0).unwrap();
        assert!(stops(), "gone");
    }
}
