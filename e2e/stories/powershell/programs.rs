//! Each program fails, hangs, or leaves a child behind that keeps its output open: the report names item, program, code and last line.

use serde_json::Value;

use super::payload::{self, FULL_2022, Kind, PLAIN};
use super::{Report, Scratch, carry, kills, reports, shell, tail};
use crate::world::step;

/// A program, a part of its arguments, and the item that runs it.
static PROGRAMS: [(&str, &str, &str, Kind); 7] = [
    ("dism", "Containers", "containers-feature", PLAIN),
    ("kubeadm", "join", "join", PLAIN),
    ("sc", "failure", "containerd-service", PLAIN),
    ("netsh", "dynamicportrange", "dynamic-ports-tcp", FULL_2022),
    ("tar", "containerd", "unpack-containerd", FULL_2022),
    ("w32tm", "/config", "time-servers", FULL_2022),
    ("msiexec", "agent", "user-agent", FULL_2022),
];

/// The number of programs that a plain plan runs; the others run with `CAPW_POWERSHELL=all` only.
const PLAIN_PROGRAMS: usize = 3;

/// All of [`PROGRAMS`], or the first few.
fn programs(few: usize) -> &'static [(&'static str, &'static str, &'static str, Kind)] {
    if shell::is_thorough() { &PROGRAMS } else { &PROGRAMS[..few] }
}

/// Carries out a plan with that rule; returns the last report, all reports and the end of the log.
fn live(kind: Kind, rule: &str) -> (String, Vec<Report>, String) {
    live_with(kind, rule, |_| ())
}

/// As [`live`], with a change to each item of the plan.
fn live_with(kind: Kind, rule: &str, change: impl Fn(&mut Value)) -> (String, Vec<Report>, String) {
    let scratch = Scratch::new("program");
    let edit = |files: &mut payload::Files| {
        let mut plan: Value = serde_json::from_slice(&files["node.json"]).expect("a plan");
        plan["items"].as_array_mut().into_iter().flatten().for_each(change);
        files.insert("node.json".into(), plan.to_string().into_bytes());
    };
    let (mut machine, _) = payload::start_with(kind, scratch.path(), |_| (), edit);
    machine.rule(rule);
    let end = carry(&mut machine, kind);
    (end, reports(&machine), tail(&machine.log()))
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_program_that_fails_is_named() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_fails_is_named", &lacks);
    }
    for &(program, part, _, kind) in programs(PLAIN_PROGRAMS) {
        let (end, reports, log) = live(kind, &format!("{program}|{part}|77|0|-1"));
        let failed =
            reports.iter().find(|report| report.state == "failed" && report.item != "plan").unwrap_or_else(|| panic!("{program}: {end}\n{log}"));
        assert!(failed.message.contains(program) && failed.message.contains("77") && failed.message.contains("made to fail"), "{failed:?}");
        assert!(end.contains(&format!(" plan failed {} ", failed.code)) && end.contains(&failed.item), "{end}");
        step(format!("{program}: {failed:?}"));
    }
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_program_that_fails_once_is_run_again() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_fails_once_is_run_again", &lacks);
    }
    let (end, reports, log) = live(PLAIN, "kubeadm|join|1|0|1");
    assert!(end.contains(" plan finished 0 "), "{end}\n{log}");
    let retry = reports.iter().find(|report| report.item == "join" && report.state == "retry").expect("a retry");
    assert!(retry.message.contains("kubeadm") && retry.message.contains("made to fail"), "{retry:?}");
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_program_that_leaves_a_child_behind_breaks_no_other() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_leaves_a_child_behind_breaks_no_other", &lacks);
    }
    for &(program, part, item, kind) in programs(1) {
        // The program does its work, but a child that it started keeps standard output open.
        let (end, reports, log) = live(kind, &format!("{program}|{part}|0|0|1|1"));
        assert!(end.contains(" plan finished 0 "), "{program}: {end}\n{log}");
        let wrong = reports.iter().find(|report| ["failed", "retry"].contains(&report.state.as_str()));
        assert_eq!(wrong, None, "{program} of {item} left a child behind");
    }
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_program_that_hangs_is_ended_and_named() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_hangs_is_ended_and_named", &lacks);
    }
    for &(program, part, item, kind) in programs(1) {
        // The limits of a real plan are minutes; netsh has its own limit.
        let shorten = |found: &mut Value| {
            if found["id"] == item {
                found["seconds"] = 3.into();
                found["attempts"] = 1.into();
            }
        };
        let (end, reports, log) = live_with(kind, &format!("{program}|{part}|0|600000|-1"), shorten);
        let failed = reports.iter().find(|report| report.item == item && report.state == "failed").unwrap_or_else(|| panic!("{end}\n{log}"));
        assert!(failed.message.contains(&format!("{program}.exe did not end within ")), "{failed:?}");
        assert!(end.contains(" plan failed "), "{end}");
        step(format!("{program} hangs: {failed:?}"));
    }
}

/// Installers may restart Windows by themselves: in the middle of their work, or with the exit code 1641 while the plan goes on.
#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn after_an_installer_has_restarted_windows_the_plan_goes_on() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("after_an_installer_has_restarted_windows_the_plan_goes_on", &lacks);
    }
    const RESTART: &str = r"C:\stand-in\restart-by-msiexec";
    let wanted = kills::undisturbed(FULL_2022);
    for moment in ["midway", "after"] {
        let scratch = Scratch::new("installer");
        let (mut machine, _) = payload::start(FULL_2022, scratch.path());
        machine.write(RESTART, moment);
        carry(&mut machine, FULL_2022);
        kills::compare(&mut machine, FULL_2022, &wanted);
        assert!(!machine.path(RESTART).exists(), "{moment}: msiexec has restarted nothing");
        let reports = reports(&machine);
        let wrong = reports.iter().find(|report| report.item == "user-agent" && ["failed", "retry"].contains(&report.state.as_str()));
        assert_eq!(wrong, None, "{moment}");
        step(format!("{moment}: {} reports, {} starts", reports.len(), machine.boots));
    }
}
