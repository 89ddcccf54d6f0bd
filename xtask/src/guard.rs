//! Ends a run whose runner was killed. A second process of this program waits on a pipe that only the runner holds; when the pipe closes
//! before the run is over, the guard ends cargo-nextest, cleans up after the tests, and removes the run's directories.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_process};

use crate::{directory, left};

/// The message that the runner writes when a run is over.
const OVER: &[u8] = b"over";
/// The time for cargo-nextest to end its tests: their grace period and a bit more.
const LIMIT: Duration = Duration::from_secs(60);

/// The guard of a run. When it is dropped, it reports that the run is over.
pub struct Guard(Child);

impl Guard {
    /// Guards a run with these directories; the first is the temporary directory of its tests.
    pub fn start(directories: &[&Path]) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        // The guard has its own process group, so that Ctrl-C in a terminal does not end it first.
        command.arg("guard").args(directories).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        Ok(Self(command.spawn().context("a process that guards the run")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(OVER);
        }
        let _ = self.0.wait();
    }
}

/// Waits until the runner reports that the run is over, or ends.
pub fn guard(directories: &[PathBuf]) -> Result<()> {
    let _held: Vec<_> = directories.iter().filter_map(|directory| directory::hold(directory)).collect();
    let mut said = Vec::new();
    std::io::stdin().read_to_end(&mut said).context("standard input")?;
    if said == OVER { Ok(()) } else { end(directories) }
}

/// Ends the remaining processes of a run, and removes its directories, of which the first is the temporary directory of its tests. An error with
/// one directory does not stop the removal of the others.
pub fn end(directories: &[PathBuf]) -> Result<()> {
    let Some(temporary) = directories.first() else { return Ok(()) };
    let runners = || left::processes(temporary).into_iter().filter(|(.., command)| command.contains(" nextest run "));
    for (pid, ..) in runners() {
        let _ = kill_process(pid, Signal::TERM);
    }
    let begun = Instant::now();
    while begun.elapsed() < LIMIT && runners().next().is_some() {
        std::thread::sleep(Duration::from_millis(200));
    }
    left::clear(temporary);
    let removed: Vec<_> = directories.iter().map(|path| directory::remove(path).with_context(|| path.display().to_string())).collect();
    removed.into_iter().collect()
}
