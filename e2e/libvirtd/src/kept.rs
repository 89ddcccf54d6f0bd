//! What a daemon has found out about QEMU, which takes it four seconds of its start. The daemons of one run pass it on, as that of a host finds
//! it again after a restart; libvirt itself looks whether it still holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Mode;

/// Names a directory that lasts for the run, where control planes are kept too. `make test` sets it; otherwise nothing is kept.
const DIRECTORY: &str = "CAPW_PLANES";

/// Where a daemon writes it, below its directory.
fn cache(mode: Mode) -> &'static str {
    match mode {
        Mode::Session => "cache/libvirt/qemu/cache/capabilities",
        Mode::System => "var/cache/libvirt/qemu/capabilities",
    }
}

/// Gives what is kept to a daemon that is to start below this directory.
pub fn restore(mode: Mode, root: &Path) {
    if let Some(place) = place(mode).filter(|place| place.exists()) {
        copy(&place, &root.join(cache(mode)));
    }
}

/// Keeps what a daemon has found, unless it is kept.
pub fn keep(mode: Mode, root: &Path) {
    let found = root.join(cache(mode));
    let Some(place) = place(mode).filter(|place| !place.exists() && found.exists()) else { return };
    let part = tempfile::tempdir_in(place.parent().unwrap()).unwrap();
    let whole = part.path().join("whole");
    copy(&found, &whole);
    // Another daemon may have come first.
    let _ = fs::rename(whole, place);
}

#[allow(clippy::disallowed_methods, reason = "the run says where")]
fn place(mode: Mode) -> Option<PathBuf> {
    let name = match mode {
        Mode::Session => "libvirt-session",
        Mode::System => "libvirt-system",
    };
    Some(PathBuf::from(std::env::var_os(DIRECTORY)?).join(name))
}

/// Makes the second directory, which is not there, a copy of the first one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let status = Command::new("cp").args(["-a", "-T", "--"]).arg(from).arg(to).status().unwrap();
    assert!(status.success(), "what libvirt knows of QEMU was not copied to {}", to.display());
}
