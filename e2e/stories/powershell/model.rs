//! Records runs of the real runner for the model of the simulated guest, which must report the same lines for the same plan and
//! the same faults: `the_model_reports_what_the_runner_reports_today` compares them. It runs only where `CAPW_TRACES` names a directory.

use std::path::Path;

use super::payload::{self, FULL_2022, Kind, PLAIN};
use super::{Scratch, carry, json, shell};
use crate::world::step;

/// A name, the plan, and its faults, in the format of the model's `traces/README.md`.
const RUNS: [(&str, Kind, &str); 7] = [
    ("plain", PLAIN, ""),
    ("full", FULL_2022, ""),
    ("join-fails-once", PLAIN, "kubeadm|join|1|0|1"),
    ("join-fails-always", PLAIN, "kubeadm|join|1|0|-1"),
    ("dism-fails", PLAIN, "dism|Containers|77|0|-1"),
    ("containerd-slow", PLAIN, "fake/slow-containerd=9000"),
    ("kubelet-dies", PLAIN, "fake/die-kubelet=1"),
];

fn record(directory: &Path, kind: Kind, faults: &str) {
    let scratch = Scratch::new("trace");
    let (mut machine, plan) = payload::start(kind, scratch.path());
    match faults.strip_prefix("fake/").and_then(|rest| rest.split_once('=')) {
        Some((name, value)) => machine.write(&format!(r"C:\stand-in\{name}"), value),
        None if faults.is_empty() => {}
        // The stand-in counts milliseconds.
        None => machine.rule(faults),
    }
    let end = carry(&mut machine, kind);
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::write(directory.join("node.json"), json(&plan).to_string()).expect("a file");
    std::fs::write(directory.join("faults"), faults).expect("a file");
    std::fs::write(directory.join("report.log"), machine.report().join("\n") + "\n").expect("a file");
    step(format!("{}: {end}", directory.display()));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn runs_are_written_down_for_the_model() {
    let Some(directory) = std::env::var_os("CAPW_TRACES") else { return };
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("runs_are_written_down_for_the_model", &lacks);
    }
    for (name, kind, faults) in RUNS {
        record(&Path::new(&directory).join(name), kind, faults);
    }
}
