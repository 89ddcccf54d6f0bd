//! Runs of cargo-nextest, each with its own temporary directory.

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

/// The program, and the folder for its reports.
pub struct Nextest {
    program: PathBuf,
    /// The folder of the reports.
    pub output: PathBuf,
    interrupted: Arc<AtomicBool>,
}

/// The result of one run.
pub struct Run {
    /// Whether cargo-nextest exited with success.
    pub passed: bool,
    /// The tests that ran. Empty if the tests did not even start.
    pub cases: Vec<Case>,
    /// The processes and files that tests left behind; the run has ended and removed them.
    pub left: Vec<String>,
}

impl Nextest {
    /// Creates the runner. From now on an interrupt ends the running tests, but not this program, which then cleans up.
    pub fn new(program: PathBuf, output: PathBuf) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("a handler of signals")?;
        }
        fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
        Ok(Self { program, output: fs::canonicalize(&output)?, interrupted })
    }

    /// Whether an interrupt forbids any further run.
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
        // The control planes that the tests of this run pass on to each other. They are not among the files that no test may leave.
        let planes = Directory::new(directory::PLANES)?;
        let guard = Guard::start(&[temporary.path(), planes.path()])?;
        // .config/nextest.toml sets this path for the report.
        let report = PathBuf::from("out/nextest").join(profile).join("junit.xml");
        let _ = fs::remove_file(&report);
        let mut command = Command::new(&self.program);
        command.args(["nextest", "run", "--profile", profile]).args(more);
        command.env("TMPDIR", temporary.path()).env("CAPW_FAILED", self.failed()).env("CAPW_PLANES", planes.path());
        // Several tests share the cores: Go programs that use one core each spend less time on handing work over.
        command.env("GOMAXPROCS", "1");
        let status = command.status().with_context(|| self.program.display().to_string())?;
        let cases = match fs::read_to_string(&report) {
            Ok(xml) => junit::cases(&xml)?,
            Err(_) => Vec::new(),
        };
        let left = left::clear(temporary.path());
        // The guard stays active while the directories are removed, and would finish the removal.
        drop((temporary, planes));
        drop(guard);
        Ok(Run { passed: status.success(), cases, left })
    }

    /// Returns the tests that a profile leaves out, as cargo-nextest lists them.
    pub fn list(&self, profile: &str, more: &[String]) -> Result<serde_json::Value> {
        let mut command = Command::new(&self.program);
        command.args(["nextest", "list", "--profile", profile, "--message-format", "json", "--run-ignored", "default"]).args(more);
        let output = command.output().with_context(|| self.program.display().to_string())?;
        serde_json::from_slice(&output.stdout).context("cargo nextest list")
    }

    /// Returns the folder where failed tests leave their files.
    pub fn failed(&self) -> PathBuf {
        self.output.join("failed")
    }
}
