//! Tests of the scripts that need no Windows: their size, and whether they support every kind of item. [`super::gate`] checks
//! their syntax.

use std::collections::BTreeSet;

use super::examples::{kinds, named_scripts};
use super::gate::{defined, scripts};
use super::{LOADER, SCRIPTS};
use crate::bootstrap::plan::Kind;

/// The scripts that carry out plans: `run.ps1` and the scripts that it reads.
const RUNNER: [&str; 9] =
    ["run.ps1", "plan.ps1", "report.ps1", "files.ps1", "journal.ps1", "windows.ps1", "items.ps1", "programs.ps1", "scripts.ps1"];

fn script(name: &str) -> &'static str {
    SCRIPTS.into_iter().find(|(own, _)| *own == name).unwrap().1
}

#[test]
fn scripts_are_small_and_plain_ascii() {
    for (name, text) in scripts() {
        assert!(text.is_ascii(), "{name}: Windows PowerShell reads other characters as ANSI");
        assert!(!text.contains(['\r', '\t']) && text.ends_with('\n'), "{name}");
        assert!(text.lines().all(|line| line.len() <= 200 && line == line.trim_end()), "{name}: long line or blanks at its end");
    }
    let lines: usize = RUNNER.map(|name| script(name).lines().count()).iter().sum();
    assert!(lines < 1650, "{lines} lines");
    assert!(LOADER.len() < 22_000, "the loader has {} bytes", LOADER.len());
    assert!(LOADER.starts_with("#ps1_sysnative\n"));
    for text in [LOADER.as_str(), script("run.ps1")] {
        assert!(text.contains("Set-StrictMode -Version 2.0") && text.contains("$ErrorActionPreference = 'Stop'"));
    }
}

#[test]
fn nothing_in_the_runner_knows_kubernetes() {
    for (name, text) in scripts() {
        for word in ["kube", "containerd", "pod", "cluster"] {
            assert!(!text.to_lowercase().contains(word), "{name} mentions {word}");
        }
    }
}

#[test]
fn the_runner_has_a_test_and_an_act_for_every_kind() {
    let defined: BTreeSet<String> = defined().into_iter().map(|name| name.to_lowercase()).collect();
    let mut names = Vec::new();
    for kind in kinds() {
        let value = serde_json::to_value(&kind).unwrap();
        let name = value["kind"].as_str().unwrap().to_owned();
        let lower = name.to_lowercase();
        assert!(defined.contains(&format!("test-{lower}item")), "{name} has no test");
        // The runner itself requests restarts, so this kind needs no `Set-` function.
        assert!(name == "reboot" || defined.contains(&format!("set-{lower}item")), "{name} has no act");
        // Some script reads every property of the item by name.
        for field in value.as_object().unwrap().keys().filter(|field| !["kind", "when"].contains(&field.as_str())) {
            let read = |text: &str| text.contains(&format!(".{field}")) || text.contains(&format!("'{field}'"));
            assert!(SCRIPTS.iter().any(|(_, text)| read(text)), "{name}.{field} is read by nothing");
        }
        names.push(format!("'{name}'"));
    }
    assert!(script("plan.ps1").contains(&format!("$Kinds = @(\n    {}\n)", names.join(", "))), "the list of kinds in plan.ps1 is another one");
}

#[test]
fn the_runner_has_every_script_that_a_plan_may_name() {
    let defined: BTreeSet<String> = defined().into_iter().map(|name| name.to_lowercase()).collect();
    let text = script("scripts.ps1");
    let mut names = Vec::new();
    for script in named_scripts() {
        let value = serde_json::to_value(Kind::Script(script)).unwrap();
        assert_eq!(value["kind"], "script");
        let name = value["script"].as_str().unwrap().to_owned();
        for verb in ["test", "set"] {
            assert!(defined.contains(&format!("{verb}-{}script", name.to_lowercase())), "{name} has no {verb}");
        }
        for field in value.as_object().unwrap().keys().filter(|field| !["kind", "script"].contains(&field.as_str())) {
            assert!(text.contains(&format!("$Item.{field}")), "{name}.{field} is read by nothing");
        }
        names.push(format!("'{name}'"));
    }
    assert!(script("plan.ps1").contains(&format!("$Scripts = @(\n    {}\n)", names.join(", "))), "the list of scripts in plan.ps1 is another one");
}

#[test]
fn the_runner_sums_its_reports_as_the_reader_does() {
    // Both texts list the summed values in the same order.
    let report = script("report.ps1");
    assert!(report.contains(r#"Get-Adler32 "$Sequence $Boot $Item $What $Code $clean""#));
    assert!(report.contains(r#""capw1 $Sequence $Boot $Item $What $Code $sum $clean""#));
    assert!(report.contains("% 65521") && report.contains("'{0:x8}' -f ($b * 65536 + $a)"));
}

#[test]
fn the_runner_reads_each_of_its_files_and_first_what_tells_of_failures() {
    let read: Vec<&str> = script("run.ps1").lines().filter_map(|line| line.trim().strip_prefix(". \"$PSScriptRoot/")?.strip_suffix('"')).collect();
    assert_eq!(read.first(), Some(&"report.ps1"));
    let all: BTreeSet<&str> = read.into_iter().chain(["run.ps1"]).collect();
    assert_eq!(all, RUNNER.into());
}

#[test]
fn the_loader_stands_alone() {
    assert!(!LOADER.contains(". \"$PSScriptRoot"), "it reads another file");
    for part in ["report.ps1", "files.ps1"] {
        assert!(LOADER.contains(script(part)), "it has no {part} in it");
    }
}
