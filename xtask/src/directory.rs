//! Directories of a run. The runner and its guard hold a lock on a file in each directory. If neither holds it, the run was ended
//! together with its guard, by `kill -9` or with the whole machine; the next run ends its remaining processes and removes its directories.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The prefixes of the directories' names: for temporary files, and for control planes that tests pass on to each other. They are short, because
/// sockets of daemons lie below the first, and their paths have at most 107 characters.
pub const TEMPORARY: &str = "ct";
pub const PLANES: &str = "cp";
/// The name of the locked file.
pub const LOCK: &str = ".capw-run";
/// The time for other processes to stop writing into a directory.
const LIMIT: Duration = Duration::from_secs(5);

/// A directory of a run. It is removed when it is dropped.
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates a directory below the directory for temporary files.
    pub fn new(prefix: &str) -> Result<Self> {
        let path = tempfile::Builder::new().prefix(prefix).rand_bytes(4).tempdir().context("a directory of the run")?.keep();
        // The lock file gets its name only after it is locked: another run that begins now must not treat the directory as left behind.
        let unnamed = path.join(".new");
        let lock = File::create(&unnamed).and_then(|file| file.lock_shared().map(|()| file)).context("a lock on a directory of the run")?;
        fs::rename(unnamed, path.join(LOCK)).context("a lock on a directory of the run")?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            println!("{} was not removed: {error}", self.path.display());
        }
    }
}

/// Returns a lock on a directory of another process, held until it is dropped; `None` if the directory has no such file.
pub fn hold(directory: &Path) -> Option<File> {
    File::open(directory.join(LOCK)).ok().filter(|file| file.lock_shared().is_ok())
}

/// Returns the directories of earlier runs that no process holds, temporary ones first.
pub fn left() -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let of = |prefix: &'static str| {
        let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().filter_map(Result::ok);
        let named = entries.filter(move |entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
        // Directories of other users, and the targets of their links, are excluded.
        let owned = named.filter(move |entry| entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own));
        owned.map(|entry| entry.path()).filter(|path| File::open(path.join(LOCK)).is_ok_and(|file| file.try_lock().is_ok()))
    };
    of(TEMPORARY).chain(of(PLANES)).collect()
}

/// Removes a directory, even while another process removes it or still writes into it.
pub fn remove(directory: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound && !directory.exists() => return Ok(()),
            Err(_) if begun.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(100)),
            result => return result,
        }
    }
}
