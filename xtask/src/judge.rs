//! Trials that take too long for the gate or depend on chance, one after the other.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use crate::nextest::Nextest;

/// A trial: its name and the arguments of `make`.
struct Trial {
    name: &'static str,
    /// The targets and variables of `make`.
    make: &'static [&'static str],
    /// The variable without which the trial cannot run: it names a program that no package registry has.
    needs: Option<&'static str>,
}

const fn trial(name: &'static str, make: &'static [&'static str]) -> Trial {
    Trial { name, make, needs: None }
}

/// The trials, quick ones first.
const TRIALS: [Trial; 21] = [
    // The unit tests use random numbers: `CAPW_SEED` is set below.
    trial("unit", &["unit"]),
    trial("tests", &["test", "TESTS=judge"]),
    trial("mutants", &["mutants"]),
    // This trial runs alone, so that 30 s of the clock are a fair limit, and so are the four minutes of the next trial.
    trial("stuck", &["story", "NAME=stuck::", "CAPW_GOALS=1"]),
    trial("real-vms", &["story", "NAME=real_vms::machines", "JUDGE=1", "CAPW_GOALS=1"]),
    trial("windows-matrix", &["e2e-matrix"]),
    trial("libvirt", &["test-libvirt"]),
    // Each seed draws a share of failing requests, from 5 to 35 %. The hardest faults must not depend on that draw.
    trial("faults", &["faults", "SEEDS=5"]),
    trial("faults-hard", &["faults", "SEEDS=5", "SHARE=350"]),
    trial("sequences", &["sequences"]),
    trial("specs", &["specs"]),
    trial("upgrade", &["upgrade"]),
    Trial { name: "autoscaler", make: &["test-autoscaler"], needs: Some("CLUSTER_AUTOSCALER") },
    Trial { name: "powershell", make: &["test-powershell", "ALL=1"], needs: Some("CAPW_PWSH") },
    trial("render", &["render"]),
    trial("bench", &["bench", "GOALS=1", "SIZES=10 100"]),
    trial("bench-deployment", &["bench", "GOALS=1", "OF=deployment", "SIZES=100"]),
    trial("bench-silence", &["bench", "GOALS=1", "HYPERVISOR=proxmox", "SIZES=10"]),
    // This trial sends requests over libvirt's own wire protocol; its times mean nothing.
    trial("bench-libvirt", &["bench", "GOALS=1", "HYPERVISOR=libvirt", "SIZES=20", "PROFILE=dev"]),
    trial("faults-model", &["faults-model", "SEED=random"]),
    trial("release", &["release-check"]),
];

/// Runs all trials with `name` in their name, prints a table and writes `out/judge.json`. `true` if none failed. An interrupt ends the run.
#[allow(clippy::disallowed_methods, reason = "whether a variable is set decides what can run, and what does not is said")]
pub fn judge(nextest: &Nextest, name: Option<&str>) -> Result<bool> {
    let mut rows = Vec::new();
    for trial in TRIALS.iter().filter(|trial| name.is_none_or(|name| trial.name.contains(name))) {
        let from = Instant::now();
        let said = match trial.needs {
            Some(variable) if std::env::var_os(variable).is_none_or(|value| value.is_empty()) => format!("not run: {variable} names no program"),
            _ => {
                println!("\n=== {}: make {}", trial.name, trial.make.join(" "));
                let status = Command::new("make").args(trial.make).env("CAPW_SEED", "random").env_remove("PROPTEST_RNG_SEED").status();
                let passed = status.context("make")?.success();
                let said = if nextest.is_interrupted() {
                    "interrupted"
                } else if passed {
                    "passed"
                } else {
                    "FAILED"
                };
                said.to_owned()
            }
        };
        rows.push((trial.name, said, from.elapsed().as_secs()));
        let all: Vec<_> = rows.iter().map(|(name, said, seconds)| json!({"name": name, "result": said, "seconds": seconds})).collect();
        let path = nextest.output.join("judge.json");
        fs::write(&path, format!("{:#}\n", json!(all))).with_context(|| path.display().to_string())?;
        if nextest.is_interrupted() {
            break;
        }
    }
    println!();
    for (name, said, seconds) in &rows {
        println!("{:4} min  {name:16} {said}", seconds.div_ceil(60));
    }
    Ok(!rows.is_empty() && !nextest.is_interrupted() && rows.iter().all(|(_, said, _)| said != "FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the commands that `make` would run.
    fn commands(words: &[&str]) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let output = Command::new("make").arg("--dry-run").args(words).current_dir(root).output().unwrap();
        assert!(output.status.success(), "make {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn make_can_run_each_of_them() {
        for trial in TRIALS {
            assert_ne!(commands(trial.make), "", "{}", trial.name);
        }
    }

    #[test]
    fn every_item_is_troubled_under_a_real_powershell() {
        let trial = TRIALS.iter().find(|trial| trial.name == "powershell").unwrap();
        for (words, all) in [(trial.make, true), (&["test-powershell"][..], false)] {
            let commands = commands(words);
            let run = commands.lines().find(|line| line.contains("powershell::")).unwrap_or_default();
            assert_eq!((run.contains("CAPW_POWERSHELL=all "), run.contains(" --profile long ")), (all, all), "{commands}");
        }
    }

    #[test]
    fn a_release_has_no_wine_guests() {
        let commands = commands(&["release-binary", "ARCHITECTURES=amd64"]);
        let builds: Vec<_> = commands.lines().filter(|line| line.contains("--bin capw ")).collect();
        assert!(!builds.is_empty() && builds.iter().all(|line| line.contains("--no-default-features")), "{commands}");
    }

    /// make itself sets some variables, which must not count.
    #[test]
    fn a_story_has_a_profile_only_if_it_is_asked_for() {
        for (more, expected) in [(None, None), (Some("JUDGE=1"), Some("judge"))] {
            let commands = commands(&["story", "NAME=drain"].into_iter().chain(more).collect::<Vec<_>>());
            let profile = commands.split_once("--profile ").and_then(|(_, rest)| rest.split_whitespace().next());
            assert_eq!(profile, expected, "{commands}");
        }
    }
}
