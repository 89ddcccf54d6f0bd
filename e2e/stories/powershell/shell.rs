//! Finds a PowerShell. Our tests install none: the package registries have none that may be used.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::world::wine;

/// The variable that names a `pwsh` of this host, or a folder with `pwsh.exe` (win-x64), which Wine runs; both with a `:` between them.
const VARIABLE: &str = "CAPW_PWSH";

fn named() -> Vec<PathBuf> {
    std::env::var_os(VARIABLE).iter().flat_map(std::env::split_paths).collect()
}

/// A PowerShell of this host.
pub fn host() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let named = named().into_iter().map(|path| if path.is_dir() { path.join("pwsh") } else { path });
        let candidates = named.chain([PathBuf::from("pwsh")]);
        candidates.into_iter().find(|path| {
            let mut command = Command::new(path);
            command.args(["-NoLogo", "-NoProfile", "-Command", "exit 0"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    };
    FOUND.get_or_init(find).as_deref()
}

/// The folder of a PowerShell for Windows.
pub fn windows() -> Option<PathBuf> {
    named().into_iter().find(|path| path.join("pwsh.exe").is_file())
}

/// What is missing for machines with PowerShell; `None` if nothing is.
pub fn lacks_windows() -> Option<String> {
    if windows().is_none() {
        return Some(format!("a PowerShell 7 for Windows: name its folder in {VARIABLE}"));
    }
    wine::lacks(&[])
}

/// Fails a test that was requested and cannot run.
pub fn skip(test: &str, lacks: &str) {
    panic!("{test}: this machine lacks {lacks}");
}

/// Whether to test all machines, every call, and every fault at every item: more than an hour and a half. By default a part of each runs.
pub fn is_thorough() -> bool {
    std::env::var("CAPW_POWERSHELL").is_ok_and(|wanted| wanted == "all")
}
