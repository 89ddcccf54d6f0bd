//! Guests of simulated VMs: each reads the config drive that is attached to its VM, carries out the plan in a model of Windows
//! ([`disk`]), and joins the cluster over the network as kubeadm and the kubelet would.
//!
//! A guest knows what is in its VM's directory and nothing else: no object of the operator, no struct handed over in memory.
//! A lock on a file in that directory decides which process runs it.

mod certificate;
mod discovery;
mod disk;
mod join;
mod kubeadm;
mod kubelet;
mod node;
mod server;
mod windows;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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

/// Between two looks at the VMs; longer when a look takes long.
const LOOK: Duration = Duration::from_millis(300);
/// A look may take this part of the time.
const LOOK_SHARE: u32 = 50;
/// Requests of all guests to API servers at a time.
const REQUESTS: usize = 64;

/// Why a guest did not join, in words for its console. Never holds the token.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct JoinError(pub String);

/// One guest, from power on until the power goes.
pub(super) struct Guest {
    home: Home,
    record: Record,
    clock: Clock,
    requests: Arc<Semaphore>,
}

impl Guest {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Waits for its turn to use the network.
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

    /// Runs file operations where they may block. `None` when they were cut off with the process.
    async fn files<T: Send + 'static>(&self, work: impl FnOnce(&Home) -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let home = self.home.clone();
        tokio::task::spawn_blocking(move || work(&home)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Notes that this start of the machine registered its Node.
    async fn registered(&self) {
        let power_ons = self.record.power_ons;
        let noted = self.files(move |home| super::record::replace(&windows::registered(home), power_ons.to_string().as_bytes())).await;
        if let Err(error) = noted {
            debug!(vm = %self.record.vm, %error, "a simulated guest cannot write to its disk");
        }
    }
}

/// A guest that this process runs.
struct Hosted {
    /// Which start of the machine it is.
    power_ons: u32,
    modified: Option<std::time::SystemTime>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Goes with the guest.
    _lock: File,
}

/// What one look at a VM says must be done.
enum Change {
    Start(Home, Box<Record>, File, Option<std::time::SystemTime>),
    /// Off, stopping, started anew or gone.
    Stop(PathBuf),
    /// Written to, but the same start of the machine.
    Seen(PathBuf, Option<std::time::SystemTime>),
}

/// Runs the guests of all data centres below `state` until `shutdown`. A cut, not a graceful stop: as the operator dies, so do
/// they, and go on where they were when one runs again.
pub async fn run(state: PathBuf, clock: Clock, shutdown: CancellationToken) {
    let requests = Arc::new(Semaphore::new(REQUESTS));
    let mut hosted: HashMap<PathBuf, Hosted> = HashMap::new();
    loop {
        hosted.retain(|_, guest| !(guest.stop.is_cancelled() && guest.task.is_finished()));
        let known = hosted.iter().map(|(path, guest)| (path.clone(), (guest.power_ons, guest.modified))).collect();
        let start = Instant::now();
        let (looked, now) = (state.clone(), clock());
        match tokio::task::spawn_blocking(move || look(&looked, &known, now)).await {
            Ok(Ok(changes)) => {
                for change in changes {
                    apply(change, &mut hosted, &clock, &requests);
                }
            }
            Ok(Err(error)) => {
                warn!(%error, state = %state.display(), "cannot look for simulated VMs: check the directory given with --simulated-state")
            }
            Err(error) => warn!(%error, "the look for simulated VMs was cut off"),
        }
        let pause = LOOK.max(start.elapsed() * LOOK_SHARE);
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = sleep(pause) => {}
        }
    }
    for (_, guest) in hosted {
        guest.stop.cancel();
    }
}

fn apply(change: Change, hosted: &mut HashMap<PathBuf, Hosted>, clock: &Clock, requests: &Arc<Semaphore>) {
    match change {
        Change::Start(home, record, lock, modified) => {
            let (path, power_ons, stop) = (home.0.clone(), record.power_ons, CancellationToken::new());
            let guest = Guest { home, record: *record, clock: clock.clone(), requests: requests.clone() };
            let power = stop.clone();
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = power.cancelled() => {}
                    () = guest.live() => {}
                }
            });
            hosted.insert(path, Hosted { power_ons, modified, stop, task, _lock: lock });
        }
        Change::Stop(path) => {
            if let Some(guest) = hosted.get(&path) {
                guest.stop.cancel();
            }
        }
        Change::Seen(path, modified) => {
            if let Some(guest) = hosted.get_mut(&path) {
                guest.modified = modified;
            }
        }
    }
}

type Known = HashMap<PathBuf, (u32, Option<std::time::SystemTime>)>;

/// One look at all VMs. Reads the records of those that changed only.
fn look(state: &Path, known: &Known, now: Timestamp) -> io::Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut seen = 0;
    for datacenter in directories(state)? {
        for path in directories(&datacenter)? {
            if path.file_name().and_then(|name| name.to_str()).is_none_or(|name| Uuid::try_parse(name).is_err()) {
                continue;
            }
            let home = Home(path);
            let modified = fs::metadata(home.record()).and_then(|file| file.modified()).ok();
            match known.get(&home.0) {
                Some((_, before)) if *before == modified => seen += 1,
                Some((power_ons, _)) => {
                    seen += 1;
                    let same = runs(&home, now).is_some_and(|record| record.power_ons == *power_ons);
                    changes.push(if same { Change::Seen(home.0, modified) } else { Change::Stop(home.0) });
                }
                None => {
                    let Some(record) = runs(&home, now) else { continue };
                    let Ok(lock) = lock_file(&home.guest_lock()) else { continue };
                    if lock.try_lock().is_ok() {
                        changes.push(Change::Start(home, Box::new(record), lock, modified));
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

/// Directories in a directory; none when it does not exist.
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
