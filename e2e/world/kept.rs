//! Control planes as they were after their start: certificates, kubeconfigs, and data with all definitions. The first one of a kind is kept for
//! all tests of one run, which copy it, because installing takes most of a start. It must not know the use of a control plane.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::control_plane::Options;

/// The variable with the directory of kept control planes. The `xtask` program sets it to one that lasts for the run; otherwise nothing is kept.
const DIRECTORY: &str = "CAPW_PLANES";
/// The directories that form a control plane, without logs.
const KEPT: [&str; 4] = ["etcd", "kube", "pki", "webhook"];

/// Kinds that this process has taken: a second copy would appear to be the same cluster.
static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The place of the kept control planes of a kind.
pub(super) struct Kept {
    path: PathBuf,
    /// The lock of the test that creates the first one. The other tests wait.
    making: Option<File>,
}

impl Kept {
    /// Takes the kept control plane, or the lock for creating it. `None` if nothing is kept here.
    pub(super) async fn take(options: &Options) -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).filter(|_| options.address == Ipv4Addr::LOCALHOST)?);
        let name = match (options.core, options.capw) {
            (false, false) => "plain",
            (true, false) => "cluster-api",
            (false, true) => "capw",
            (true, true) => "whole",
        };
        let path = directory.join(name);
        if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone()) {
            return None;
        }
        let wait = move || {
            if path.exists() {
                return Self { path, making: None };
            }
            let lock = File::create(path.with_extension("lock")).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            flock(&lock, FlockOperation::LockExclusive).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let making = (!path.exists()).then_some(lock);
            Self { path, making }
        };
        Some(tokio::task::spawn_blocking(wait).await.expect("the control planes that are kept can be locked"))
    }

    /// Whether a kept control plane exists; otherwise the caller creates and keeps it.
    pub(super) fn is_there(&self) -> bool {
        self.making.is_none()
    }

    /// Copies the kept control plane to a directory.
    pub(super) fn restore(&self, to: &Path) {
        copy(&self.path, to);
    }

    /// Keeps the control plane of a directory. Its etcd must not write during this.
    pub(super) fn keep(&self, from: &Path) {
        let part = self.path.with_extension("part");
        // Left over from a test that was interrupted.
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part).unwrap_or_else(|e| panic!("{}: {e}", part.display()));
        copy(from, &part);
        fs::rename(&part, &self.path).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
    }
}

/// Copies the directories of a control plane, with holes where etcd has reserved space. Without core there is no `webhook`.
fn copy(from: &Path, to: &Path) {
    let directories = KEPT.map(|name| from.join(name)).into_iter().filter(|path| path.exists());
    let status = Command::new("cp").args(["-R", "--sparse=always", "--"]).args(directories).arg(to).status().expect("the program cp runs");
    assert!(status.success(), "a control plane was not copied to {}", to.display());
}
