//! Tests that this machine may be unable to run though it has all that packages offer: they need Rust's library for Windows, which comes from rustup
//! alone. They are left out then, and that is said.

use std::path::Path;
use std::process::Command;

/// The tests, by how their paths begin, and what they need.
#[derive(Clone, Copy, Debug)]
pub struct Lacking {
    pub tests: &'static str,
    pub why: &'static str,
}

const WINDOWS_NETWORK: Lacking =
    Lacking { tests: "windows_network::", why: "needs Rust's library for Windows: rustup target add x86_64-pc-windows-gnu" };

/// What is left out, if anything is: the script that builds what the tests need could not.
pub fn lacking() -> Option<Lacking> {
    let path = Command::new("bash").args(["e2e/tools/windows/build.sh", "--path", "own"]).output().ok()?;
    let is_built = Path::new(String::from_utf8_lossy(&path.stdout).trim()).join("capw-node.exe").exists();
    (!is_built).then_some(WINDOWS_NETWORK)
}

/// What cargo-nextest is told of them.
pub fn filter(lacking: Option<Lacking>) -> Vec<String> {
    lacking.map(|lacking| ["-E".to_owned(), format!("not test(/^{}/)", lacking.tests)].into()).unwrap_or_default()
}
