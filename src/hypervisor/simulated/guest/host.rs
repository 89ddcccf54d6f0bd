//! Guests of simulated VMs: each guest reads the config drive of its VM, carries out the plan ([`runner`]) in a model of
//! Windows ([`model`]), and joins the cluster over the network as kubeadm and the kubelet would.
//!
//! A guest knows only the content of its VM's directory: no object of the operator, no struct handed over in memory.
//! A lock on a file in that directory decides which process runs it.

mod certificate;
mod discovery;
mod disk;
mod failure;
mod image;
mod join;
mod journal;
mod kubeadm;
mod kubelet;
mod model;
mod node;
mod programs;
mod runner;
mod server;
mod windows;
mod wine;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod runner_tests;
#[cfg(test)]
mod trace_tests;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use uuid::Uuid;

use super::Clock;
use super::record::{Home, Record, RecordedPower, lock_file};
use crate::api::hypervisor::GuestKind;

/// The time between two scans of the VMs; longer when a scan takes long.
const POLL: Duration = Duration::from_millis(300);
/// A scan may take one part in this many of the time.
const POLL_SHARE: u32 = 50;
/// The longest pause, however long a scan took: a busy machine makes scans slow too, and VMs wait for their start.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The most concurrent requests of all guests to API servers.
const REQUESTS: usize = 64;

/// Why a guest did not join, as text for its console. Never holds the token.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct JoinError(pub String);

/// One guest, from power on until the power goes off.
pub(super) struct Guest {
    home: Home,
    record: Record,
    clock: Clock,
    requests: Arc<Semaphore>,
    wine_programs: Option<PathBuf>,
}

impl Guest {
    /// Runs from power on until the power goes off.
    async fn run(&self, power: &CancellationToken) {
        match self.record.guest {
            GuestKind::Wine => wine::live(self, power).await,
            GuestKind::Model => tokio::select! {
                () = power.cancelled() => {}
                () = self.live() => {}
            },
        }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Waits for a free slot on the network.
    async fn request(&self) -> Option<SemaphorePermit<'_>> {
        self.requests.acquire().await.ok()
    }

    /// Sleeps until that point in time.
    async fn until(&self, at: Timestamp) {
        while let Ok(rest) = Duration::try_from(at.duration_since(self.now()))
            && !rest.is_zero()
        {
            sleep(rest.min(Duration::from_secs(60))).await;
        }
    }

    /// Runs file operations on a thread that may block.
    async fn files<T: Send + 'static>(&self, work: impl FnOnce(&Home) -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let home = self.home.clone();
        tokio::task::spawn_blocking(move || work(&home)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Records that this start of the machine registered its Node.
    async fn registered(&self) {
        let power_ons = self.record.power_ons;
        let noted = self.files(move |home| super::record::replace(&windows::registered(home), power_ons.to_string().as_bytes())).await;
        if let Err(error) = noted {
            debug!(vm = %self.record.vm, %error, "a simulated guest cannot write to its disk");
        }
    }
}

/// The version of a record's file: every write replaces the file.
type Version = Option<(SystemTime, u64)>;

/// A guest that this process runs.
struct Hosted {
    /// The time of power on, which identifies the start of the machine.
    since: Timestamp,
    version: Version,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Held as long as the guest runs.
    _lock: File,
}

/// An action that a scan of the VMs requires.
enum Change {
    Start(Home, Box<Record>, File, Version),
    /// The VM is off, stopping, started again or deleted.
    Stop(PathBuf),
    /// The record was written, but the machine's start is the same.
    Seen(PathBuf, Version),
}

/// The state that all guests of a process share.
#[derive(Clone)]
struct Shared {
    clock: Clock,
    requests: Arc<Semaphore>,
    wine_programs: Option<PathBuf>,
}

/// Runs the guests of all data centres below `state` until `shutdown`. The end is a cut, not a graceful stop: the guests die with the
/// operator, and continue when an operator runs again. `wine_programs` is the folder of the programs for Wine guests.
pub async fn run(state: PathBuf, wine_programs: Option<PathBuf>, clock: Clock, shutdown: CancellationToken) {
    let shared = Shared { clock: clock.clone(), requests: Arc::new(Semaphore::new(REQUESTS)), wine_programs };
    let mut hosted: HashMap<PathBuf, Hosted> = HashMap::new();
    let mut trouble = None;
    loop {
        hosted.retain(|_, guest| !(guest.stop.is_cancelled() && guest.task.is_finished()));
        let known = hosted.iter().map(|(path, guest)| (path.clone(), (guest.since, guest.version))).collect();
        let start = Instant::now();
        let (looked, now) = (state.clone(), clock());
        let looked = tokio::task::spawn_blocking(move || look(&looked, &known, now)).await;
        let error = match looked.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(changes) => {
                changes.into_iter().for_each(|change| apply(change, &mut hosted, &shared));
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error.as_ref().filter(|_| error != trouble) {
            warn!(error, state = %state.display(), "cannot look for simulated VMs: check the directory given with --simulated-state");
        }
        trouble = error;
        let pause = (start.elapsed() * POLL_SHARE).clamp(POLL, LONGEST_PAUSE);
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = sleep(pause) => {}
        }
    }
    hosted.values().for_each(|guest| guest.stop.cancel());
    for (path, guest) in hosted {
        if let Err(error) = guest.task.await {
            warn!(%error, vm = %path.display(), "a simulated guest failed");
        }
    }
}

fn apply(change: Change, hosted: &mut HashMap<PathBuf, Hosted>, shared: &Shared) {
    match change {
        Change::Start(home, record, lock, version) => {
            let (path, since, stop) = (home.0.clone(), record.since, CancellationToken::new());
            let Shared { clock, requests, wine_programs } = shared.clone();
            let guest = Guest { home, record: *record, clock, requests, wine_programs };
            let power = stop.clone();
            let task = tokio::spawn(async move { guest.run(&power).await });
            hosted.insert(path, Hosted { since, version, stop, task, _lock: lock });
        }
        Change::Stop(path) => {
            if let Some(guest) = hosted.get(&path) {
                guest.stop.cancel();
            }
        }
        Change::Seen(path, version) => {
            if let Some(guest) = hosted.get_mut(&path) {
                guest.version = version;
            }
        }
    }
}

type Known = HashMap<PathBuf, (Timestamp, Version)>;

/// Scans all VMs. Reads only the records that changed.
fn look(state: &Path, known: &Known, now: Timestamp) -> io::Result<Vec<Change>> {
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
