//! Processes and temporary files that tests left behind. Each run has its own temporary directory, which is in the environment of its processes,
//! so that a run never confuses the files and processes of another run with its own.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::directory::LOCK;

/// The time for guardians of ended tests to clean up for their test.
const GRACE: Duration = Duration::from_secs(20);

/// Ends the remaining processes of a run, and returns what each test left behind.
pub fn clear(temporary: &Path) -> Vec<String> {
    let begun = Instant::now();
    while begun.elapsed() < GRACE && !processes(temporary).is_empty() {
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut left = Vec::new();
    for (pid, test, command) in processes(temporary) {
        left.push(format!("{test} left the process {} running: {command}", pid.as_raw_nonzero()));
        let _ = kill_process(pid, Signal::KILL);
    }
    let names = fs::read_dir(temporary).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    left.extend(names.filter(|name| name != LOCK).map(|name| format!("{name} was left in the temporary directory")));
    left
}

/// Returns the number, test and command line of each process of the run.
pub fn processes(temporary: &Path) -> Vec<(Pid, String, String)> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).filter(|number| *number != own);
    numbers.filter_map(|number| of_run(number, temporary)).collect()
}

fn of_run(number: u32, temporary: &Path) -> Option<(Pid, String, String)> {
    let environment = fs::read(format!("/proc/{number}/environ")).ok()?;
    let value = |name: &str| {
        let mut variables = environment.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='));
        variables.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    value("TMPDIR").filter(|directory| Path::new(directory).starts_with(temporary))?;
    let test = value("NEXTEST_TEST_NAME").unwrap_or("a test").to_owned();
    let command = fs::read(format!("/proc/{number}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ").chars().take(200).collect();
    Some((Pid::from_raw(i32::try_from(number).ok()?)?, test, command))
}
