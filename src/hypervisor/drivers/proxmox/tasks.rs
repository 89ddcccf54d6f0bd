//! The tasks of nodes, which the driver polls.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::TaskState;
use super::driver::ProxmoxDriver;
use super::fault::{Error, Refusal};
use super::journal::TASK;
use crate::hypervisor::DriverError;
use crate::vm::Journal;

/// The time between two polls of a clone, or of a guest that shuts down.
pub const POLL: Duration = Duration::from_secs(3);
/// How long a call waits for a task that is usually short, and when it polls first; later polls are less and less frequent.
const SHORT_TASK: Duration = Duration::from_secs(20);
const FIRST_LOOK: Duration = Duration::from_millis(20);

impl ProxmoxDriver {
    /// Returns the state of the journal's task.
    pub(super) async fn task(&self, journal: &Journal) -> Result<Option<TaskState>, DriverError> {
        match journal.get(TASK) {
            Some(task) => Ok(Some(self.client.task(task).await?)),
            None => Ok(None),
        }
    }

    /// Waits for a short task; `false`: the task still runs. A harmless refusal counts as success.
    pub(super) async fn is_done(&self, task: Result<String, Error>, is_harmless: impl Fn(&Refusal) -> bool) -> Result<bool, DriverError> {
        let task = match task {
            Err(error) if error.is(&is_harmless) => return Ok(true),
            task => task?,
        };
        if task.is_empty() {
            return Ok(true);
        }
        let (start, mut look) = (Instant::now(), FIRST_LOOK);
        loop {
            sleep(look).await;
            match self.client.task(&task).await? {
                TaskState::Succeeded | TaskState::Forgotten => return Ok(true),
                TaskState::Failed(why) if is_harmless(&why) => return Ok(true),
                TaskState::Failed(why) => return Err(why.into()),
                TaskState::Running if start.elapsed() > SHORT_TASK => return Ok(false),
                TaskState::Running => look = (look * 5).min(POLL),
            }
        }
    }
}
