//! Each program fails, hangs, or leaves a child behind that keeps its output open: the report names item, program, code and last line.

use serde_json::Value;

use super::payload::{self, FULL_2022, Kind, PLAIN};
use super::{Report, Scratch, carry, last, reports, shell, tail};
use crate::world::step;

/// A program, a part of its arguments, and the item that runs it.
const PROGRAMS: [(&str, &str, &str, Kind); 7] = [
    ("dism", "Containers", "containers-feature", PLAIN),
    ("kubeadm", "join", "join", PLAIN),
    ("sc", "failure", "containerd-service", PLAIN),
    ("netsh", "dynamicportrange", "dynamic-ports", FULL_2022),
    ("tar", "containerd", "containerd-unpacked", FULL_2022),
    ("w32tm", "/config", "time", FULL_2022),
    ("msiexec", "agent", "user-agent", FULL_2022),
];

fn programs() -> Vec<(&'static str, &'static str, Kind)> {
    let all = PROGRAMS.map(|(program, part, _, kind)| (program, part, kind));
    if shell::is_thorough() { all.to_vec() } else { all.into_iter().filter(|(_, _, kind)| *kind == PLAIN).collect() }
}

/// The life of a machine with that rule; its reports.
fn live(kind: Kind, rule: &str) -> (String, Vec<Report>, String) {
    let scratch = Scratch::new("program");
    let (mut machine, _) = payload::start(kind, scratch.path());
    machine.rule(rule);
    let end = carry(&mut machine, kind);
    (end, reports(&machine), tail(&machine.log()))
}

#[test]
fn a_program_that_fails_is_named() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_fails_is_named", &lacks);
    }
    for (program, part, kind) in programs() {
        let (end, reports, log) = live(kind, &format!("{program}|{part}|77|0|-1"));
        let failed =
            reports.iter().find(|report| report.state == "failed" && report.item != "plan").unwrap_or_else(|| panic!("{program}: {end}\n{log}"));
        assert!(failed.message.contains(program) && failed.message.contains("77") && failed.message.contains("made to fail"), "{failed:?}");
        assert!(end.contains(&format!(" plan failed {} ", failed.code)) && end.contains(&failed.item), "{end}");
        step(format!("{program}: {failed:?}"));
    }
}

#[test]
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
fn a_program_that_leaves_a_child_behind_breaks_no_other() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_leaves_a_child_behind_breaks_no_other", &lacks);
    }
    // It does its work, and something that it started keeps standard output open.
    let (end, reports, log) = live(PLAIN, "dism|Containers|0|0|1|1");
    assert!(end.contains(" plan finished 0 "), "{end}\n{log}");
    assert!(reports.iter().all(|report| !["failed", "retry"].contains(&report.state.as_str())), "{reports:#?}");
}

#[test]
fn a_program_that_hangs_is_ended_and_named() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_program_that_hangs_is_ended_and_named", &lacks);
    }
    let scratch = Scratch::new("hangs");
    let (mut machine, _) = payload::start_with(
        PLAIN,
        scratch.path(),
        |_| (),
        |files| {
            let mut plan: Value = serde_json::from_slice(&files["node.json"]).expect("a plan");
            // The limits of a real plan are minutes.
            for item in plan["items"].as_array_mut().into_iter().flatten() {
                if item["id"] == "containers-feature" {
                    item["seconds"] = 3.into();
                    item["attempts"] = 1.into();
                }
            }
            files.insert("node.json".into(), plan.to_string().into_bytes());
        },
    );
    machine.rule("dism|Containers|0|600000|-1");
    let end = carry(&mut machine, PLAIN);
    let failed = reports(&machine).into_iter().find(|report| report.item == "containers-feature" && report.state == "failed");
    let failed = failed.unwrap_or_else(|| panic!("{end}\n{}", tail(&machine.log())));
    assert!(failed.message.contains("dism.exe") && failed.message.contains("3 seconds"), "{failed:?}");
    assert!(last(&machine).contains(" plan failed "), "{end}");
}
