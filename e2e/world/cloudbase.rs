//! cloudbase-init's own Python code, run by `e2e/tools/cloudbase/judge.py` on the data of a machine. It must not judge.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::tools::checkout;

/// The Python program.
pub struct CloudbaseInit {
    python: PathBuf,
}

impl CloudbaseInit {
    /// Installs cloudbase-init once into the cache. `None`, with the missing parts printed: the caller skips its test.
    pub fn ensure() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<CloudbaseInit>> = OnceLock::new();
        let found = FOUND.get_or_init(|| match Self::install() {
            Ok(python) => Some(Self { python }),
            Err(why) => {
                println!("NOT CHECKED: what cloudbase-init reads, because it cannot be installed: {why}");
                None
            }
        });
        found.as_ref()
    }

    fn install() -> Result<PathBuf, String> {
        if Command::new("bsdtar").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Err("the program bsdtar is missing (Debian package libarchive-tools)".to_owned());
        }
        let script = checkout().join("e2e/tools/cloudbase/build.sh");
        let done = Command::new(&script).stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", script.display()))?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
        Ok(PathBuf::from(String::from_utf8_lossy(&done.stdout).trim()))
    }

    /// The result of `judge.py` with that configuration and those arguments.
    pub fn judge(&self, configuration: &Path, arguments: &[&str]) -> Value {
        let script = checkout().join("e2e/tools/cloudbase/judge.py");
        let mut command = Command::new(&self.python);
        let done = command.arg("-B").arg(script).arg(configuration).args(arguments).stdin(Stdio::null()).output().expect("judge.py starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "judge.py {arguments:?}: {said}");
        serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("judge.py {arguments:?}: {e}: {said}"))
    }
}
