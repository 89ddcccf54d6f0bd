//! Runs of cargo-nextest, each with a temporary directory of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::directory::{self, Directory};
use crate::guard::{self, Guard};
use crate::junit::{self, Case};
use crate::left;

/// The program, and where reports go.
pub struct Nextest {
    program: PathBuf,
    /// Folder of the reports.
    pub output: PathBuf,
    interrupted: Arc<AtomicBool>,
}

/// What came of one run.
pub struct Run {
    /// It ended well.
    pub passed: bool,
    /// What ran. Empty if the tests did not even start.
    pub cases: Vec<Case>,
    /// Processes and files that tests left behind, by then ended and removed.
    pub left: Vec<String>,
}

impl Nextest {
    /// From now on an interrupt ends the tests that run, not this program, which then clears up.
    pub fn new(program: PathBuf, output: PathBuf) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("a handler of signals")?;
        }
        fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
        Ok(Self { program, output: fs::canonicalize(&output)?, interrupted })
    }

    /// Whether no further run should begin.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Runs the tests of a profile.
    pub fn run(&self, profile: &str, more: &[String]) -> Result<Run> {
        for directory in directory::left() {
            let ended = guard::end(std::slice::from_ref(&directory));
            println!(
                "{}, which an earlier run left: {}",
                directory.display(),
                ended.map_or_else(|error| format!("{error:#}"), |()| "removed".to_owned())
            );
        }
        let temporary = Directory::new(directory::TEMPORARY)?;
        let like_tmp = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(temporary.path(), like_tmp).context("a directory for temporary files of every user")?;
        // Control planes that the tests of this run pass on to each other: not among the files that no test may leave.
        let planes = Directory::new(directory::PLANES)?;
        let guard = Guard::start(&[temporary.path(), planes.path()])?;
        // Where .config/nextest.toml has the report written.
        let report = PathBuf::from("out/nextest").join(profile).join("junit.xml");
        let _ = fs::remove_file(&report);
        let mut command = Command::new(&self.program);
        command.args(["nextest", "run", "--profile", profile]).args(more);
        command.env("TMPDIR", temporary.path()).env("CAPW_FAILED", self.failed()).env("CAPW_PLANES", planes.path());
        // Several tests share the cores: programs in Go that take one each hand less work over.
        command.env("GOMAXPROCS", "1");
        let status = command.status().with_context(|| self.program.display().to_string())?;
        let cases = match fs::read_to_string(&report) {
            Ok(xml) => junit::cases(&xml)?,
            Err(_) => Vec::new(),
        };
        let left = left::clear(temporary.path());
        // While they are removed, the guard would still do it.
        drop((temporary, planes));
        drop(guard);
        Ok(Run { passed: status.success(), cases, left })
    }

    /// The tests that a profile leaves out, as cargo-nextest lists them.
    pub fn list(&self, profile: &str, more: &[String]) -> Result<serde_json::Value> {
        let mut command = Command::new(&self.program);
        command.args(["nextest", "list", "--profile", profile, "--message-format", "json", "--run-ignored", "default"]).args(more);
        let output = command.output().with_context(|| self.program.display().to_string())?;
        serde_json::from_slice(&output.stdout).context("cargo nextest list")
    }

    /// Where tests that fail leave their files.
    pub fn failed(&self) -> PathBuf {
        self.output.join("failed")
    }
}
