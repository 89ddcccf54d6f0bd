//! The listeners of folders, and the task that watches the folders for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The task that watches the folders of a session, while anything listens.
#[derive(Default)]
pub struct Following(Mutex<Weak<Follower>>);

/// The paths of folders, with the number of listeners of each.
pub type Folders = BTreeMap<String, usize>;

struct Follower {
    folders: watch::Sender<Folders>,
    _task: AbortOnDropHandle<()>,
}

/// A listener of a folder.
pub struct Listener {
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
    /// Adds a listener; the first listener begins the task, which watches these folders.
    pub fn listen<T>(&self, folder: String, task: impl FnOnce(watch::Receiver<Folders>) -> T) -> Listener
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let mut current = self.0.lock();
        let follower = current.upgrade().unwrap_or_else(|| {
            let folders = watch::Sender::new(Folders::new());
            let task = AbortOnDropHandle::new(tokio::spawn(task(folders.subscribe())));
            Arc::new(Follower { folders, _task: task })
        });
        *current = Arc::downgrade(&follower);
        follower.folders.send_modify(|folders| *folders.entry(folder.clone()).or_default() += 1);
        Listener { follower, folder }
    }
}
