//! Runs of real processes of this program, with a stand-in for cargo-nextest.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// A checkout with a stand-in, a script, for cargo-nextest.
struct Checkout(TempDir);

impl Checkout {
    fn new(script: &str) -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        fs::write(checkout.path("nextest"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(checkout.path("nextest"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(checkout.path("tmp")).unwrap();
        checkout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("--nextest").arg(self.path("nextest")).args(arguments).current_dir(&self.0).env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

#[test]
fn a_run_removes_what_earlier_ones_left_and_nothing_else() {
    const LOCK: &str = ".capw-run";
    let checkout = Checkout::new("ls -A \"$TMPDIR\" > seen");
    let directory = |name: &str, is_ours: bool| {
        let path = checkout.path("tmp").join(name);
        fs::create_dir_all(path.join("data")).unwrap();
        if is_ours {
            fs::write(path.join(LOCK), "").unwrap();
        }
        path
    };
    let left = ["ctleft", "cpleft"].map(|name| directory(name, true));
    let kept = [directory("ctheld", true), directory("cpheld", true), directory("ctother", false), directory("other", true)];
    let held = ["ctheld", "cpheld"].map(|name| File::open(checkout.path("tmp").join(name).join(LOCK)).unwrap());
    held.iter().for_each(|file| file.lock_shared().unwrap());

    let output = checkout.xtask(&["test", "--", "--run-ignored", "all"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(left.iter().all(|path| !path.exists() && said.contains(&format!("{}, which an earlier run left: removed", path.display()))), "{said}");
    assert!(kept.iter().all(|path| path.join("data").exists()), "{said}");
    assert!(said.ends_with("0 failed; 0 things left behind\n"), "{said}");
    // The run saw only the lock file in its own directory, and the directory is also removed.
    assert_eq!(fs::read_to_string(checkout.path("seen")).unwrap().trim(), LOCK);
    assert_eq!(names(&checkout.path("tmp")), ["cpheld", "ctheld", "ctother", "other"]);
}

/// The first turn succeeds, the second turn is interrupted as by Ctrl-C in a terminal: there must be no third turn.
#[test]
fn an_interrupt_ends_a_soak_with_its_table() {
    let report = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/junit.xml");
    let checkout = Checkout::new(&format!(
        "echo turn >> turns
if [ $(wc -l < turns) = 2 ]; then exec sleep 600; fi
cp {report} out/nextest/gate/"
    ));
    fs::create_dir_all(checkout.path("out/nextest/gate")).unwrap();
    let said = interrupted(&checkout, &["soak", "--count", "4"]);
    assert!(said.contains("interrupted in run 2"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("  0 of   1 ") && line.contains("drain::a_machine_leaves")), "{said}");
}

#[test]
fn an_interrupt_ends_the_judge_with_its_table() {
    let checkout = Checkout::new("exit 1");
    let makefile = ".PHONY: unit test\nunit:\n\t@echo turn >> turns\ntest:\n\t@echo turn >> turns; sleep 600\n.DEFAULT:\n\t@echo turn >> turns\n";
    fs::write(checkout.path("Makefile"), makefile).unwrap();
    let said = interrupted(&checkout, &["judge"]);
    let rows: Vec<_> = said.lines().filter_map(|line| line.split_once(" min  ")).map(|(_, row)| row.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(rows, [["unit", "passed"], ["tests", "interrupted"]], "{said}");
}

/// Returns the output of a program that is interrupted in its second turn. It fails then, and leaves nothing behind.
fn interrupted(checkout: &Checkout, arguments: &[&str]) -> String {
    let turns = || fs::read_to_string(checkout.path("turns")).unwrap_or_default().lines().count();
    let mut run = checkout.xtask(arguments).env_remove("MAKEFLAGS").process_group(0).spawn().unwrap();
    while turns() < 2 || !sleeps(run.id()) {
        assert!(run.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process_group(Pid::from_child(&run), Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!((output.status.code(), turns()), (Some(1), 2));
    assert_eq!(names(&checkout.path("tmp")), [""; 0]);
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the program of the second turn runs in this group. A shell that starts it may receive the interrupt before, and wait for it nevertheless.
fn sleeps(group: u32) -> bool {
    let mut stats = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("stat")).ok());
    // `PID (NAME) STATE PARENT GROUP ...`
    stats.any(|stat| stat.split_once(" (sleep) ").is_some_and(|(_, rest)| rest.split(' ').nth(2) == Some(group.to_string().as_str())))
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}
