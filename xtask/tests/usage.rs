//! Tests of the program as `make` calls it. Because a test uses the program, Cargo builds it with the tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn help_names_the_commands() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for command in ["test", "soak", "judge"] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(command)), "{text}");
    }
}

#[test]
fn a_run_whose_runner_was_killed_is_cleared_up() {
    for (said, is_left) in [("", false), ("over", true)] {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        std::fs::write(directories[1].path().join("data"), "kept by a test").unwrap();
        let paths = directories.each_ref().map(tempfile::TempDir::path);
        let mut guard = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("guard").args(paths).stdin(Stdio::piped()).spawn().unwrap();
        // The pipe is closed when it is dropped, as when the runner ends.
        guard.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
        assert!(guard.wait().unwrap().success());
        assert_eq!(paths.map(std::path::Path::exists), [is_left; 2], "{said:?}");
    }
}

#[test]
fn a_directory_that_is_gone_keeps_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let (gone, there) = (directory.path().join("gone"), directory.path().join("there"));
    std::fs::create_dir(&there).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("guard").args([&gone, &there]).stdin(Stdio::null()).status().unwrap();
    assert!(status.success() && !there.exists());
}
