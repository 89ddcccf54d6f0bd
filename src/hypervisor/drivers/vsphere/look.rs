//! Observes a machine's VM and tasks: from the vCenter's updates where they are current, otherwise by requests.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::caps::CAPS;
use super::client::Client;
use super::driver::{CLONE, POLL, VsphereDriver};
use super::fault::{Error, Fault, NOT_FOUND};
use super::found::{self, Found, Memory, name_of};
use super::selection::{Selection, Through};
use super::soap::Reference;
use super::task::TaskState;
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Journal, MachineKey, Present};

const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How long a call waits for a task that is usually short, and the delay before its first check. Later delays grow.
const SHORT_TASK: Duration = Duration::from_secs(20);
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// The time by which the vCenter has reported a task that it began, or the changes of a task.
const TOLD_BY: Duration = Duration::from_secs(3);

/// The result of a clone.
pub enum Cloned {
    Running,
    Is(Box<Found>),
    /// Only an observation can show the result.
    Unknown,
}

impl VsphereDriver {
    /// Finds the VM with the name or UUID of the machine, ours or not. `None` proves that no such VM exists.
    pub async fn find(&self, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        match self.client.mirror().find(key) {
            Some(found) => {
                self.known.lock().await.note(key.vm, Memory::Is(found.vm.clone()));
                Ok(Some(found))
            }
            None => self.find_by_request(key, true).await,
        }
    }

    /// Finds the VM without the cached VMs: by its UUID in the whole vCenter and by its name in the folder, where it is visible while it is
    /// being cloned. If the cache may be trusted, it can prove that the folder has no such name; for a VM that we destroyed this proves its absence.
    pub async fn find_by_request(&self, key: &MachineKey, believes: bool) -> Result<Option<Found>, DriverError> {
        let memory = self.known.lock().await.get(key.vm);
        if let Some(Memory::Is(vm)) = &memory {
            if let Some(found) = read(&self.client, vm).await? {
                return Ok(Some(found));
            }
            self.known.lock().await.forget(key.vm);
        }
        let (folder, name) = (self.place().await?.folder, name_of(key));
        // The cache may not show a clone that we have just begun.
        let believes = believes && !matches!(memory, Some(Memory::Cloning(_)));
        let named = if believes { self.client.mirror().named(&folder, &name) } else { None };
        if let (Some(Memory::Gone(_)), Some(None)) = (&memory, &named) {
            return Ok(None);
        }
        let by_uuid = match self.client.find_vm(key.vm.0).await? {
            Some(vm) => self.read(key, &vm).await?,
            None => None,
        };
        if by_uuid.as_ref().is_some_and(|found| found.is_ours(key)) {
            return Ok(by_uuid);
        }
        let named = match named {
            Some(named) => named,
            None => self.client.find_child(&folder, &name).await?,
        };
        let by_name = match named {
            Some(vm) => self.read(key, &vm).await?,
            None => None,
        };
        Ok(by_name.or(by_uuid))
    }

    pub async fn find_ours(&self, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        match self.find(key).await? {
            Some(found) if !found.is_unknown() && !found.is_ours(key) => Err(self.conflict(&found.name)),
            found => Ok(found),
        }
    }

    /// Reads a VM that is only cached and compares its mark, before the VM is destroyed; `None`: the VM does not exist any more.
    pub async fn confirmed(&self, key: &MachineKey, found: Found) -> Result<Option<Found>, DriverError> {
        if !found.is_told {
            return Ok(Some(found));
        }
        match read(&self.client, &found.vm).await? {
            Some(found) if found.is_ours(key) => Ok(Some(found)),
            Some(found) => Err(found.unreadable().unwrap_or_else(|| self.conflict(&found.name))),
            None => {
                self.client.mirror().forget(&found.vm);
                self.known.lock().await.forget(key.vm);
                Ok(None)
            }
        }
    }

    /// All VMs in the folder. While guests report (`is_talking`), the VMs are also read from time to time: a guest's report is one key of many,
    /// and not every vCenter may report that one key has changed.
    pub async fn all(&self, is_talking: bool) -> Result<Vec<Found>, DriverError> {
        let folder = self.place().await?.folder;
        let mut listed = self.listed.lock().await;
        let is_recent = listed.is_some_and(|since| since.elapsed() < CAPS.tick);
        if (!is_talking || is_recent)
            && let Some(told) = self.client.mirror().all(&folder)
        {
            return Ok(told);
        }
        let paths = found::paths();
        let through = Some(Through { kind: "Folder", path: "childEntity", deep: false });
        let found = self.client.properties(&Selection { of: &folder, kind: "VirtualMachine", paths: &paths, through }, Found::read).await?;
        *listed = Some(Instant::now());
        Ok(found)
    }

    /// The state of a VM, with the warning about the vCenter's alarms.
    pub async fn present(&self, found: &Found) -> Present {
        Present { warning: self.alarms.warning(&self.client, &found.alarms).await, ..found.present() }
    }

    async fn read(&self, key: &MachineKey, vm: &Reference) -> Result<Option<Found>, DriverError> {
        let found = read(&self.client, vm).await?;
        if found.as_ref().is_some_and(|found| found.is_ours(key)) {
            self.known.lock().await.note(key.vm, Memory::Is(vm.clone()));
            self.client.mirror().read(vm);
        }
        Ok(found)
    }

    /// The state of a task that began at `since`, or at an unknown time.
    pub async fn task(&self, task: &str, since: Option<Instant>) -> Result<TaskState, Error> {
        let mirror = self.client.mirror();
        match mirror.task(task) {
            Some(state) => Ok(state),
            None if mirror.is_live() && since.is_some_and(|since| since.elapsed() < TOLD_BY) => Ok(TaskState::Running),
            None => self.client.task(task).await,
        }
    }

    /// Whether a task that was begun some time ago still runs. The vCenter's updates name all running tasks.
    pub async fn is_running(&self, task: &str) -> Result<bool, Error> {
        let mirror = self.client.mirror();
        let state = if mirror.is_live() { mirror.task(task) } else { Some(self.client.task(task).await?) };
        Ok(state == Some(TaskState::Running))
    }

    /// The state of the clone that the journal names. During the clone this takes at most one request per call.
    pub async fn cloned(&self, key: &MachineKey, journal: &Journal) -> Result<Cloned, DriverError> {
        let Some(task) = journal.get(CLONE) else { return Ok(Cloned::Unknown) };
        let memory = self.known.lock().await.get(key.vm);
        let since = match memory {
            Some(Memory::Is(_) | Memory::Gone(_)) => {
                // A VM may be visible before its task has ended.
                let is_running = self.client.mirror().task(task) == Some(TaskState::Running);
                return Ok(if is_running { Cloned::Running } else { Cloned::Unknown });
            }
            Some(Memory::Cloning(since)) => Some(since),
            None => None,
        };
        Ok(match self.task(task, since).await? {
            TaskState::Running => Cloned::Running,
            TaskState::Succeeded(Some(vm)) => {
                let found = match self.client.mirror().find(key) {
                    Some(found) => Some(found),
                    None => self.read(key, &vm).await?,
                };
                found.map_or(Cloned::Unknown, |found| Cloned::Is(Box::new(found)))
            }
            TaskState::Succeeded(None) | TaskState::Failed(_) | TaskState::Forgotten => Cloned::Unknown,
        })
    }

    /// Whether a clone was begun a moment ago.
    pub async fn has_just_begun(&self, key: &MachineKey) -> bool {
        matches!(self.known.lock().await.get(key.vm), Some(Memory::Cloning(since)) if since.elapsed() < TOLD_BY)
    }

    /// When to poll a clone again: after as long as it has taken so far.
    pub async fn next_poll(&self, key: &MachineKey) -> DriverStep {
        let after = match self.known.lock().await.get(key.vm) {
            Some(Memory::Cloning(since)) => since.elapsed().clamp(SHORTEST_LOOK, LONGEST_LOOK),
            _ => POLL,
        };
        DriverStep::Wait { after }
    }

    /// Waits for a short task of that VM, and until the cache shows the VM as it should be then (`None`: deleted). `false`: the task still runs.
    pub async fn is_done(
        &self,
        vm: &Reference,
        task: Result<String, Error>,
        harmless: &[&str],
        should: impl Fn(Option<&Found>) -> bool,
    ) -> Result<bool, DriverError> {
        let mirror = self.client.mirror();
        let is_harmless = |fault: &Fault| fault.is(harmless) || fault.is(&[NOT_FOUND]);
        let (start, mut look) = (Instant::now(), FIRST_LOOK);
        let task = match task {
            Err(Error::Fault(fault)) if is_harmless(&fault) => {
                mirror.note_error(vm);
                return Ok(true);
            }
            task => task?,
        };
        let mut news = mirror.news();
        loop {
            if mirror.is_live() {
                // The notification may be older than the wait: it is only the time to check.
                let _ = timeout(TOLD_BY, news.changed()).await;
            } else {
                sleep(look).await;
                look = (look * 5).min(POLL);
            }
            match self.task(&task, Some(start)).await? {
                TaskState::Failed(fault) if !is_harmless(&fault) => return Err(fault.into()),
                TaskState::Running if start.elapsed() > SHORT_TASK => return Ok(false),
                TaskState::Running => {}
                TaskState::Succeeded(_) | TaskState::Forgotten | TaskState::Failed(_) => break,
            }
        }
        let done = Instant::now();
        while mirror.is_live() && !should(mirror.vm(vm).as_ref()) {
            if done.elapsed() > TOLD_BY {
                mirror.note_error(vm);
                break;
            }
            let _ = timeout(TOLD_BY, news.changed()).await;
        }
        Ok(true)
    }
}

/// Reads a VM; `None`: the VM does not exist any more.
async fn read(client: &Client, vm: &Reference) -> Result<Option<Found>, Error> {
    client.of_one(vm, "VirtualMachine", &found::paths(), Found::read).await
}
