//! External programs that check the files of this project. If one is not installed, tests run without it and report that; in CI it must be
//! installed.

use std::io::ErrorKind;
use std::process::{Command, Output};

/// Returns the output of a program; `None` if it is not installed.
#[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
pub fn output(judge: &mut Command) -> Option<Output> {
    let output = judge.output();
    let name = judge.get_program().display();
    match output {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "{name} is not installed");
            eprintln!("NOT RUN: {name} is not installed");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
fn a_missing_judge_fails_the_test_in_ci_alone() {
    let missing = std::panic::catch_unwind(|| output(&mut Command::new("a-judge-that-no-machine-has")));
    assert_eq!(missing.is_err(), std::env::var_os("CI").is_some());
    assert!(missing.is_err() || missing.is_ok_and(|output| output.is_none()));
}
