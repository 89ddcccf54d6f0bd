//! Runs the guests of all VMs that are on, and stops them with the power.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::powered::Guest;
use super::scan::{Change, Version, look};
#[cfg(feature = "wine-guests")]
use super::wine;
#[cfg(not(feature = "wine-guests"))]
use super::wineless as wine;
use crate::api::hypervisor::GuestKind;
use crate::hypervisor::drivers::simulated::driver::Clock;

/// The time between two scans of the VMs; longer when a scan takes long.
const POLL: Duration = Duration::from_millis(300);
/// A scan may take one part in this many of the time.
const POLL_SHARE: u32 = 50;
/// The longest pause, however long a scan took: a busy machine slows scans down too, and VMs wait for their start.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The most concurrent requests of all guests to API servers.
const REQUESTS: usize = 64;

impl Guest {
    /// Runs from power on until the power goes off.
    async fn run(&self, wine_programs: Option<&Path>, power: &CancellationToken) {
        match self.record.guest {
            GuestKind::Wine => wine::live(self, wine_programs, power).await,
            GuestKind::Model => tokio::select! {
                () = power.cancelled() => {}
                () = self.live() => {}
            },
        }
    }
}

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
            let guest = Guest { home, record: *record, clock, requests };
            let power = stop.clone();
            let task = tokio::spawn(async move { guest.run(wine_programs.as_deref(), &power).await });
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
