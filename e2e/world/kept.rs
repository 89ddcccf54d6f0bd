//! Control planes as they were after their start: certificates, kubeconfigs, and data with all definitions. The tests of one run pass them on
//! to each other, because installing takes most of a start. It must not know what a control plane is used for.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use super::control_plane::Options;
use super::ports::of_kept_plane;

/// Names the directory where they are kept. `make test` sets it to one that lasts for the run; otherwise nothing is kept.
const DIRECTORY: &str = "CAPW_PLANES";
/// Of each kind. Far more than run at the same time.
const PLACES: u16 = 20;
/// What makes one, and does not tell what it did.
const KEPT: [&str; 4] = ["etcd", "kube", "pki", "webhook"];

/// A place for one control plane, which nothing else uses as long as this lives. Its ports are always the same, because what is kept names them.
pub(super) struct Place {
    path: PathBuf,
    /// Whether a control plane is kept here.
    pub(super) is_kept: bool,
    /// Of the API server.
    pub(super) port: u16,
    /// Of Cluster API core's webhooks.
    pub(super) webhooks: u16,
    _lock: File,
}

impl Place {
    /// A free one, with a control plane of that kind if one is kept. `None` if nothing is kept here.
    pub(super) fn take(options: &Options) -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).filter(|_| options.address == Ipv4Addr::LOCALHOST)?);
        let kind = u16::from(options.core) + 2 * u16::from(options.capw);
        let places = (0..PLACES).map(|number| (kind * PLACES + number, directory.join(format!("{kind}-{number}"))));
        let (kept, empty): (Vec<_>, Vec<_>) = places.partition(|(_, path)| path.exists());
        kept.into_iter().chain(empty).find_map(|(number, path)| {
            let lock = File::create(path.with_extension("lock")).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
            let [port, webhooks] = [2 * number, 2 * number + 1].map(of_kept_plane);
            Some(Self { is_kept: path.exists(), path, port, webhooks, _lock: lock })
        })
    }

    /// Copies what is kept to a directory.
    pub(super) fn restore(&self, to: &Path) {
        copy(&self.path, to);
    }

    /// Keeps the control plane of a directory. Its etcd must not write meanwhile.
    pub(super) fn keep(&self, from: &Path) {
        let part = self.path.with_extension("part");
        // Of a test that was ended in the middle.
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part).unwrap_or_else(|e| panic!("{}: {e}", part.display()));
        copy(from, &part);
        fs::rename(&part, &self.path).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
    }
}

/// Copies what makes a control plane, with holes where etcd has reserved space. One without core has no `webhook`.
fn copy(from: &Path, to: &Path) {
    let directories = KEPT.map(|name| from.join(name)).into_iter().filter(|path| path.exists());
    let status = Command::new("cp").args(["-R", "--sparse=always", "--"]).args(directories).arg(to).status().expect("the program cp runs");
    assert!(status.success(), "a control plane was not copied to {}", to.display());
}
