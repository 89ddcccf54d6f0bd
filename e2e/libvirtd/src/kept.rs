//! A daemon's cache of QEMU's capabilities, whose probing takes four seconds of its start. The daemons of one run share it, as a host's daemon finds
//! it after a restart; libvirt itself checks whether it is still valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Mode;

/// The variable with a directory that lasts for the run, where control planes are kept too. The `xtask` program sets it; otherwise nothing is kept.
const DIRECTORY: &str = "CAPW_PLANES";

/// The path of the cache below a daemon's directory.
fn cache(mode: Mode) -> &'static str {
    match mode {
        Mode::Session => "cache/libvirt/qemu/cache/capabilities",
        Mode::System => "var/cache/libvirt/qemu/capabilities",
    }
}

/// Copies the kept cache to a daemon that is about to start below this directory.
pub fn restore(mode: Mode, root: &Path) {
    if let Some(place) = place(mode).filter(|place| place.exists()) {
        copy(&place, &root.join(cache(mode)));
    }
}

/// Keeps the cache of a daemon, unless one is kept already.
pub fn keep(mode: Mode, root: &Path) {
    let found = root.join(cache(mode));
    let Some(place) = place(mode).filter(|place| !place.exists() && found.exists()) else { return };
    let part = tempfile::tempdir_in(place.parent().unwrap()).unwrap();
    let whole = part.path().join("whole");
    copy(&found, &whole);
    // Another daemon may have been faster.
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

/// Copies the first directory to the second, which does not exist yet.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let status = Command::new("cp").args(["-a", "-T", "--"]).arg(from).arg(to).status().unwrap();
    assert!(status.success(), "what libvirt knows of QEMU was not copied to {}", to.display());
}
