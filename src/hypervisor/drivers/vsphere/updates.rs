//! Changes that a vCenter pushes: one collector and one open request per session, for all watched folders.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::caps::CAPS;
use super::client::{Client, Version};
use super::fault::Error;
use super::following::Folders;
use super::found;
use super::soap::Reference;
use crate::hypervisor::DriverError;

/// How long the vCenter keeps a request open if nothing changes; until then, a hanging request may pass for a quiet one.
const LONGEST: Duration = CAPS.tick;
/// How much later the answer may arrive.
const LATE: Duration = Duration::from_secs(5);
/// The pause between two requests, so that changes gather.
const BETWEEN: Duration = Duration::from_millis(500);
/// The pause after a failure, during which all state is requested.
const PAUSE: Duration = Duration::from_secs(5);

/// Yields an item whenever VMs in the folder at that path are created, deleted or changed. While the stream is polled, the session's mirror
/// shows the content of the folder.
pub fn updates(client: &Arc<Client>, folder: String) -> BoxStream<'static, ()> {
    let changes = client.mirror().changes();
    let listener = client.session().following.listen(folder, |folders| follow(client.clone(), folders));
    stream::unfold((listener, changes), |(listener, mut changes)| async move {
        changes.changed().await.ok()?;
        Some(((), (listener, changes)))
    })
    .boxed()
}

async fn follow(client: Arc<Client>, mut folders: watch::Receiver<Folders>) {
    let ended = Ended(client);
    let client = &ended.0;
    loop {
        // Several listeners come at the same time when the process starts.
        sleep(BETWEEN).await;
        let wanted: Vec<String> = folders.borrow_and_update().keys().cloned().collect();
        let mut collector = None;
        let failure = tokio::select! {
            failure = tell(client, &wanted, &mut collector) => Some(failure),
            changed = folders.changed() => match changed {
                Ok(()) => None,
                Err(_) => return,
            },
        };
        client.mirror().end();
        match failure {
            // The collectors end with the session, or with the vCenter.
            Some(error) => {
                tracing::debug!(server = client.server(), error = %DriverError::from(error), "the vCenter tells of no changes: it is asked instead");
                sleep(PAUSE).await;
            }
            None => {
                if let Some(collector) = collector {
                    let _ = client.end_collector(&collector).await;
                }
            }
        }
    }
}

/// A guard that empties the mirror when the task ends, for whatever reason.
struct Ended(Arc<Client>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.mirror().end();
    }
}

/// Keeps the mirror equal to the vCenter's state, until an error.
async fn tell(client: &Client, wanted: &[String], made: &mut Option<Reference>) -> Error {
    let work = async {
        let collector = made.insert(client.collector().await?).clone();
        let mut folders = HashMap::new();
        for path in wanted {
            // The description of the endpoint reports a folder that is missing.
            if let Some(folder) = client.find_path(path).await? {
                folders.insert(client.tell_of_folder(&collector, &folder, &found::paths()).await?.id, folder);
            }
        }
        client.tell_of_tasks(&collector).await?;
        client.mirror().begin(folders);
        let mut version = String::new();
        loop {
            let late = |_| DriverError::Unreachable("it did not answer in time".into());
            client.mirror().ask();
            let told = timeout(LONGEST + LATE, client.wait_for_updates(&collector, &version, LONGEST)).await.map_err(late)??;
            let Some(Version { version: newest, is_whole }) = told else {
                client.mirror().settle();
                continue;
            };
            version = newest;
            if is_whole {
                if !client.mirror().is_whole() {
                    return Err(DriverError::Denied("not all VMs in the folder may be read".into()).into());
                }
                sleep(BETWEEN).await;
            }
        }
    };
    let result: Result<std::convert::Infallible, Error> = work.await;
    match result {
        Ok(never) => match never {},
        Err(error) => error,
    }
}
