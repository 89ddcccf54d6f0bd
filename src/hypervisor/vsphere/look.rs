//! Looking at a machine's VM and at tasks: what the vCenter has told is believed where it can be, and asked for where not.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::client::{Selection, TaskState, Through};
use super::fault::{Error, Fault, NOT_FOUND};
use super::found::{self, Found, Memory, name_of};
use super::soap::Reference;
use super::{CAPS, CLONE, POLL, VsphereDriver};
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Journal, MachineKey, Present};

const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How long a call waits for a task that is usually short, and when it looks first; then less and less often.
const SHORT_TASK: Duration = Duration::from_secs(20);
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// By when the vCenter has told of a task that it began, or of what a task has changed.
const TOLD_BY: Duration = Duration::from_secs(3);

/// What has become of a clone.
pub enum Cloned {
    Running,
    Is(Box<Found>),
    /// Only a look can say.
    Unknown,
}

impl VsphereDriver {
    /// What has the name or UUID of a machine's VM, ours or not. `None` proves that there is none.
    pub async fn find(&self, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        match self.client.mirror().find(key) {
            Some(found) => {
                self.known.lock().await.note(key.vm, Memory::Is(found.vm.clone()));
                Ok(Some(found))
            }
            None => self.find_by_request(key, true).await,
        }
    }

    /// Without what was told: a VM is neither with its UUID in the whole vCenter, nor with its name in the folder, where it is seen while it
    /// is being cloned. That nothing in the folder has the name may have been told (`believes`); and all, of one that we have destroyed.
    pub async fn find_by_request(&self, key: &MachineKey, believes: bool) -> Result<Option<Found>, DriverError> {
        let memory = self.known.lock().await.get(key.vm);
        if let Some(Memory::Is(vm)) = &memory {
            if let Some(found) = found::read(&self.client, vm).await? {
                return Ok(Some(found));
            }
            self.known.lock().await.forget(key.vm);
        }
        let (folder, name) = (self.place().await?.folder, name_of(key));
        // Of a clone that we have just begun it may not have been told yet.
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

    /// A VM of which was only told is read, and its mark compared, before it is destroyed; `None`: it is not there any more.
    pub async fn confirmed(&self, key: &MachineKey, found: Found) -> Result<Option<Found>, DriverError> {
        if !found.is_told {
            return Ok(Some(found));
        }
        match found::read(&self.client, &found.vm).await? {
            Some(found) if found.is_ours(key) => Ok(Some(found)),
            Some(found) => Err(found.unreadable().unwrap_or_else(|| self.conflict(&found.name))),
            None => {
                self.client.mirror().forget(&found.vm);
                self.known.lock().await.forget(key.vm);
                Ok(None)
            }
        }
    }

    /// All VMs in the folder. They are read once in a while as long as guests talk (`is_talking`): a guest's words are one key of many, and
    /// not every vCenter may tell when one key has changed.
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

    /// How a VM is, with what the vCenter warns of.
    pub async fn present(&self, found: &Found) -> Present {
        Present { warning: self.alarms.warning(&self.client, &found.alarms).await, ..found.present() }
    }

    async fn read(&self, key: &MachineKey, vm: &Reference) -> Result<Option<Found>, DriverError> {
        let found = found::read(&self.client, vm).await?;
        if found.as_ref().is_some_and(|found| found.is_ours(key)) {
            self.known.lock().await.note(key.vm, Memory::Is(vm.clone()));
            self.client.mirror().read(vm);
        }
        Ok(found)
    }

    /// How a task is that was begun then, or at some time.
    pub async fn task(&self, task: &str, since: Option<Instant>) -> Result<TaskState, Error> {
        let mirror = self.client.mirror();
        match mirror.task(task) {
            Some(state) => Ok(state),
            None if mirror.is_live() && since.is_some_and(|since| since.elapsed() < TOLD_BY) => Ok(TaskState::Running),
            None => self.client.task(task).await,
        }
    }

    /// Whether a task that was begun some time ago goes on. Of all that do is told.
    pub async fn is_running(&self, task: &str) -> Result<bool, Error> {
        let mirror = self.client.mirror();
        let state = if mirror.is_live() { mirror.task(task) } else { Some(self.client.task(task).await?) };
        Ok(state == Some(TaskState::Running))
    }

    /// What has become of the clone that the journal names. While it is made, that is at most one request for each look.
    pub async fn cloned(&self, key: &MachineKey, journal: &Journal) -> Result<Cloned, DriverError> {
        let Some(task) = journal.get(CLONE) else { return Ok(Cloned::Unknown) };
        let memory = self.known.lock().await.get(key.vm);
        let since = match memory {
            Some(Memory::Is(_) | Memory::Gone(_)) => {
                // A VM may be seen before its task has ended.
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

    /// When to look at a clone again: after as long as it has taken so far.
    pub async fn next_poll(&self, key: &MachineKey) -> DriverStep {
        let after = match self.known.lock().await.get(key.vm) {
            Some(Memory::Cloning(since)) => since.elapsed().clamp(SHORTEST_LOOK, LONGEST_LOOK),
            _ => POLL,
        };
        DriverStep::Wait { after }
    }

    /// Waits for a short task of that VM, and until it is told that the VM is as it should be then (`None`: gone). `false`: it goes on.
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
                // The news may be older than the wait: it is only the time to look.
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
