//! Changes that a vCenter pushes: one collector and one open request per session, for all watched folders.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Client, Version};
use super::fault::Error;
use super::soap::Reference;
use super::{CAPS, found};
use crate::hypervisor::DriverError;

/// How long the vCenter keeps a request open if nothing changes; a hanging request may look like a quiet one for this time.
const LONGEST: Duration = CAPS.tick;
/// How much later the answer may arrive.
const LATE: Duration = Duration::from_secs(5);
/// The pause between two requests, so that changes gather.
const BETWEEN: Duration = Duration::from_millis(500);
/// The pause after a failure, during which all state is requested.
const PAUSE: Duration = Duration::from_secs(5);

/// The task that watches the folders of a session, while anything listens.
#[derive(Default)]
pub struct Following(Mutex<Weak<Follower>>);

/// The paths of folders, with the number of listeners of each.
type Folders = BTreeMap<String, usize>;

struct Follower {
    folders: watch::Sender<Folders>,
    _task: AbortOnDropHandle<()>,
}

/// A listener of a folder.
struct Listener {
    follower: Arc<Follower>,
    folder: String,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.follower.folders.send_modify(|folders| {
            if let Some(count) = folders.get_mut(&self.folder) {
                *count -= 1;
            }
            folders.retain(|_, count| *count > 0);
        });
    }
}

impl Following {
    fn listen(&self, client: &Arc<Client>, folder: String) -> Listener {
        let mut current = self.0.lock();
        let follower = current.upgrade().unwrap_or_else(|| {
            let folders = watch::Sender::new(Folders::new());
            let task = AbortOnDropHandle::new(tokio::spawn(follow(client.clone(), folders.subscribe())));
            Arc::new(Follower { folders, _task: task })
        });
        *current = Arc::downgrade(&follower);
        follower.folders.send_modify(|folders| *folders.entry(folder.clone()).or_default() += 1);
        Listener { follower, folder }
    }
}

/// Yields an item whenever VMs in the folder at that path are created, deleted or changed. While the stream is polled, the session's mirror
/// shows the content of the folder.
pub fn updates(client: &Arc<Client>, folder: String) -> BoxStream<'static, ()> {
    let changes = client.mirror().changes();
    let listener = client.session().following.listen(client, folder);
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
