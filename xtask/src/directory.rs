//! Directories of a run. The runner and its guard hold a file in each of them locked. A directory that neither holds is of a run that was ended
//! together with its guard, by `kill -9` or with the whole machine; the next run ends what is left of it, and removes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How their names begin: that of temporary files, and that of control planes which tests pass on to each other. Short, because sockets of
/// daemons lie below the first, and their paths have at most 107 characters.
pub const TEMPORARY: &str = "ct";
pub const PLANES: &str = "cp";
/// The file that is locked.
pub const LOCK: &str = ".capw-run";
/// For what still writes into a directory to end.
const LIMIT: Duration = Duration::from_secs(5);

/// One of them. Dropped, it is removed.
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// A new one below the directory for temporary files.
    pub fn new(prefix: &str) -> Result<Self> {
        let path = tempfile::Builder::new().prefix(prefix).rand_bytes(4).tempdir().context("a directory of the run")?.keep();
        // The file has its name only when it is locked: another run that begins now must not take the directory for a left one.
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

/// A lock on a directory of another process, which holds it until it is dropped; `None` if it has no such file.
pub fn hold(directory: &Path) -> Option<File> {
    File::open(directory.join(LOCK)).ok().filter(|file| file.lock_shared().is_ok())
}

/// Those of earlier runs which no process holds, temporary ones first.
pub fn left() -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let of = |prefix: &'static str| {
        let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().filter_map(Result::ok);
        let named = entries.filter(move |entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
        // Not those of another user, nor what a link of theirs leads to.
        let owned = named.filter(move |entry| entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own));
        owned.map(|entry| entry.path()).filter(|path| File::open(path.join(LOCK)).is_ok_and(|file| file.try_lock().is_ok()))
    };
    of(TEMPORARY).chain(of(PLANES)).collect()
}

/// Removes a directory, also while something else removes it or still writes into it.
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
