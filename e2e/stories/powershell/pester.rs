//! The runner's own Pester tests, and how much of it they run.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Scratch, shell, tail};
use crate::world::step;

const PESTER: &str = include_str!("windows/pester.ps1");
/// The least share of the runner's commands that the tests must run, in percent.
const LEAST: u32 = 90;

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn pester_tests_pass_and_cover_the_runner() {
    let Some(shell) = shell::host() else {
        return shell::skip("pester_tests_pass_and_cover_the_runner", "a PowerShell of this host");
    };
    let scratch = Scratch::new("pester");
    let program = scratch.path().join("pester.ps1");
    std::fs::write(&program, PESTER).expect("a file");
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bootstrap/runner");
    let output =
        Command::new(shell).args(["-NoLogo", "-NoProfile", "-NonInteractive", "-File"]).arg(program).arg(runner).stdin(Stdio::null()).output();
    let output = output.expect("PowerShell");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("Pester") && said.contains("was not loaded") {
        return shell::skip("pester_tests_pass_and_cover_the_runner", "the module Pester 5");
    }
    let wrong: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let summary =
        said.lines().rfind(|line| line.starts_with("passed ")).unwrap_or_else(|| panic!("Pester did not come to its end:\n{}", tail(&said)));
    let covered: u32 = summary.rsplit(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number");
    let missed: Vec<&str> = said.lines().filter(|line| line.starts_with("missed: ")).collect();
    assert!(covered >= LEAST, "{summary}, expected {LEAST}:\n{}", missed.join("\n"));
    // These tests need Windows: they checked nothing here.
    said.lines().filter(|line| line.starts_with("skipped: ")).for_each(step);
    step(summary);
}
