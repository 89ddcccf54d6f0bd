//! Programs that `e2e/tools/build.sh` builds for the tests of drivers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The program of that name for this checkout; `None`, with the reason, if it is missing. In CI a missing program is an error.
#[allow(clippy::disallowed_methods, reason = "whether CI runs the test")]
pub fn program(name: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/tools/build.sh");
    let answer = Command::new("bash").arg(script).args(["--path", name]).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let path = PathBuf::from(String::from_utf8(answer.stdout).unwrap().trim_end());
    if !path.is_file() {
        assert!(std::env::var_os("CI").is_none(), "{name} is missing: run e2e/tools/build.sh");
        eprintln!("NOT RUN: {name} is missing: run e2e/tools/build.sh");
        return None;
    }
    Some(path)
}

/// Polls until a real program has done its work.
pub async fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let look = || std::future::ready(is_done().then_some(()));
    capw_patience::wait_for(what, Duration::from_secs(120), look).await;
}
