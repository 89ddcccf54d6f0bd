//! Tests that this machine may be unable to run although it has all that packages offer: they need Rust's library for Windows, which only rustup
//! provides. The run then leaves them out and reports it.

use std::path::Path;
use std::process::Command;

/// The tests, by the beginning of their paths, and the reason why they cannot run.
#[derive(Clone, Copy, Debug)]
pub struct Lacking {
    pub tests: &'static str,
    pub why: &'static str,
}

const WINDOWS_NETWORK: Lacking =
    Lacking { tests: "windows_network::", why: "needs Rust's library for Windows: rustup target add x86_64-pc-windows-gnu" };

/// Returns the tests that are left out, if any: the script that builds their program could not build it.
pub fn lacking() -> Option<Lacking> {
    let path = Command::new("bash").args(["e2e/tools/windows/build.sh", "--path", "own"]).output().ok()?;
    let is_built = Path::new(String::from_utf8_lossy(&path.stdout).trim()).join("capw-node.exe").exists();
    (!is_built).then_some(WINDOWS_NETWORK)
}

/// Returns the filter for cargo-nextest that excludes these tests.
pub fn filter(lacking: Option<Lacking>) -> Vec<String> {
    lacking.map(|lacking| ["-E".to_owned(), format!("not test(/^{}/)", lacking.tests)].into()).unwrap_or_default()
}
