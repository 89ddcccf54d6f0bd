//! Runs of real processes of this program, with a stand-in for cargo-nextest.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    // Of its own nothing is there but what it holds locked, and that goes too.
    assert_eq!(fs::read_to_string(checkout.path("seen")).unwrap().trim(), LOCK);
    assert_eq!(names(&checkout.path("tmp")), ["cpheld", "ctheld", "ctother", "other"]);
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}
