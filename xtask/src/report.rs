//! Runs the tests once and prints a report: the last lines of the log are enough to know what to fix.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::flaky;
use crate::junit::{Case, Failure};
use crate::lacking::{filter, lacking};
use crate::nextest::{Nextest, Run};
use crate::omitted::omitted;

/// The lines for all tests that failed together, and the fewest lines for the output of one test: the rest is in the test's files.
const LINES: usize = 60;
const FEWEST: usize = 12;
/// The number of things left behind that are named.
const LEFT: usize = 5;
/// The lines for a flaky test.
const FLAKY_LINES: usize = 6;

/// Runs the tests of a profile and prints the report. `cache`: records of flaky tests. `true` if all passed and nothing was left behind.
pub fn test(nextest: &Nextest, profile: &str, cache: Option<&Path>, more: &[String]) -> Result<bool> {
    let _ = fs::remove_dir_all(nextest.failed());
    // If a person names tests, all of them run.
    let lacking = if more.is_empty() { lacking() } else { None };
    let without = filter(lacking);
    let run = nextest.run(profile, if more.is_empty() { &without } else { more })?;
    write_files(nextest, &run)?;
    let left_out = if more.is_empty() { omitted(profile, &nextest.list(profile, &without)?, lacking) } else { Default::default() };
    // `.ci/run` sets the cache; a person's run does not count for the gate.
    let times = match cache.filter(|_| profile == "ci") {
        Some(cache) => flaky::remember(cache, &run.cases)?,
        None => BTreeMap::new(),
    };
    print!("\n{}", text(&run, &nextest.failed(), &left_out, &times));
    Ok(run.passed && run.left.is_empty())
}

/// Writes `out/flaky.json`, and the whole output of each failed attempt.
fn write_files(nextest: &Nextest, run: &Run) -> Result<()> {
    let mut flaky = Vec::new();
    for case in &run.cases {
        for (number, failure) in case.failures.iter().enumerate() {
            let folder = nextest.failed().join(folder(&case.test));
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let path = folder.join(format!("attempt-{}.log", number + 1));
            fs::write(&path, &failure.output).with_context(|| path.display().to_string())?;
            if case.passed {
                let reason = reason(failure).join("\n");
                flaky.push(json!({"test": case.test, "attempt": number + 1, "kind": failure.kind, "reason": reason, "machine": machine(failure)}));
            }
        }
    }
    let path = nextest.output.join("flaky.json");
    fs::write(&path, format!("{:#}\n", json!(flaky))).with_context(|| path.display().to_string())
}

/// Returns the name of a test's folder.
pub fn folder(test: &str) -> String {
    test.replace("::", ".")
}

/// Returns the report: flaky tests, failed tests, things left behind, omitted tests and why, and the counts of each.
fn text(run: &Run, failed: &Path, left_out: &BTreeMap<String, usize>, times: &BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    for case in run.cases.iter().filter(|case| case.is_flaky()) {
        let before = times.get(&case.test).filter(|times| **times > 1);
        let before = before.map_or(String::new(), |times| format!("; it was flaky in {times} runs on this machine by now: it leaves the gate"));
        let _ = writeln!(text, "FLAKY {} failed {} of {} times{before}", case.test, case.failures.len(), case.failures.len() + 1);
        for line in case.failures.first().map(|failure| summary(failure, FLAKY_LINES)).into_iter().flatten() {
            let _ = writeln!(text, "      {line}");
        }
    }
    let wrong: Vec<&Case> = run.cases.iter().filter(|case| !case.passed).collect();
    // All failed tests are named; the output is shown for as many as fit.
    let room = LINES.saturating_sub(wrong.len());
    let speak = wrong.len().min(room / FEWEST);
    for (number, case) in wrong.into_iter().enumerate() {
        let (times, folder) = (case.failures.len(), failed.join(folder(&case.test)));
        let _ = writeln!(text, "FAILED {} ({times} times, {:.0} s); files: {}", case.test, case.seconds, folder.display());
        let said = case.failures.last().filter(|_| number < speak).map(|failure| summary(failure, room / speak.max(1)));
        for line in said.into_iter().flatten() {
            let _ = writeln!(text, "      {line}");
        }
    }
    for left in run.left.iter().take(LEFT) {
        let _ = writeln!(text, "LEFT BEHIND {left}");
    }
    if run.left.len() > LEFT {
        let _ = writeln!(text, "LEFT BEHIND and {} more", run.left.len() - LEFT);
    }
    if run.cases.is_empty() {
        text.push_str("NO TEST RAN: see above\n");
    }
    for (why, count) in left_out {
        let _ = writeln!(text, "left out: {count:3}  {why}");
    }
    let _ = writeln!(text, "{}", count(run));
    text
}

fn count(run: &Run) -> String {
    let (passed, flaky) = (run.cases.iter().filter(|case| case.passed).count(), run.cases.iter().filter(|case| case.is_flaky()).count());
    let failed = run.cases.len() - passed;
    format!("{} tests ran: {passed} passed, {flaky} of them flaky; {failed} failed; {} things left behind", run.cases.len(), run.left.len())
}

/// Returns the question and the last observation, the state of the machine, then the ends of logs with errors; `most` lines at most.
fn summary(failure: &Failure, most: usize) -> Vec<String> {
    let mut lines = reason(failure);
    lines.truncate(most.div_ceil(2).max(4));
    lines.extend(machine(failure));
    // A test prints its logs last: the logs that it considers relevant.
    let logs = failure.output.lines().skip_while(|line| !line.starts_with("--- end of ")).map(cut);
    let room = most.saturating_sub(lines.len());
    lines.extend(logs.take(room));
    lines
}

/// Returns the lines from `panicked at` (or the message of a test that was ended) to the backtrace.
fn reason(failure: &Failure) -> Vec<String> {
    let lines: Vec<&str> = failure.output.lines().collect();
    let begins = |line: &&str| line.contains(" panicked at ") || line.starts_with("ended ");
    let Some(at) = lines.iter().position(begins) else {
        // The test was killed, or ended without a message.
        return std::iter::once(failure.kind.clone()).chain(lines.iter().rev().take(5).rev().map(|line| cut(line))).collect();
    };
    let said =
        lines.iter().skip(at).take_while(|line| !line.starts_with("stack backtrace:") && !line.starts_with("note: ") && !line.starts_with("--- "));
    std::iter::once(failure.kind.clone()).chain(said.filter(|line| !line.trim().is_empty()).map(|line| cut(line))).collect()
}

/// Returns load, memory and disk at the failure, if the test printed them.
fn machine(failure: &Failure) -> Option<String> {
    failure.output.lines().find(|line| line.starts_with("machine: ")).map(str::to_owned)
}

fn cut(line: &str) -> String {
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::junit::cases;

    const REPORT: &str = include_str!("../tests/junit.xml");

    fn run() -> Run {
        Run { passed: false, cases: cases(REPORT).unwrap(), left: vec!["three left the process 7 running: etcd".to_owned()] }
    }

    #[test]
    fn a_report_says_what_was_asked_and_what_was_seen_last() {
        let again = text(&run(), Path::new("out/failed"), &BTreeMap::new(), &[("stuck::why_is_it_stuck".to_owned(), 2)].into());
        assert!(again.contains("FLAKY stuck::why_is_it_stuck failed 1 of 2 times; it was flaky in 2 runs on this machine by now"), "{again}");
        let text = text(&run(), Path::new("out/failed"), &BTreeMap::new(), &BTreeMap::new());
        for part in [
            "FLAKY stuck::why_is_it_stuck failed 1 of 2 times\n      test failure\n",
            "waited 30.2 s, which count for 30.0 s of 30 s",
            "last seen: nothing",
            "machine: load 14.0",
            "FAILED drain::a_machine_leaves (2 times, 12 s); files: out/failed/drain.a_machine_leaves\n",
            "ended by its time-out while it waited for: pods run",
            "--- end of capw.log",
            "LEFT BEHIND three left the process 7 running: etcd",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains("panicking.rs"), "a backtrace is for the file:\n{text}");
    }

    /// Returns the end of the log of `.ci/run`: the report, and then the output of the script when these steps have failed.
    fn end_of_log(run: &Run, steps: &str) -> String {
        const SCRIPT: &str = include_str!("../../.ci/run");
        let (before, end) = SCRIPT.split_once("\nstep tests ").unwrap();
        let end = end.split_once('\n').unwrap().1;
        let logs = tempfile::tempdir().unwrap();
        let words: String = (1..=50).map(|number| format!("word {number}\n")).collect();
        for step in steps.split(' ') {
            fs::write(logs.path().join(format!("{step}.log")), &words).unwrap();
        }
        let table = vec!["12345 s  step"; before.matches("\nstep ").count() + 2].join("\n");
        let mut script = Command::new("bash");
        script.arg("-c").arg(format!("failed=({steps}) logs={} began=0 table='{table}'\n{end}", logs.path().display()));
        let said = script.output().unwrap();
        assert_eq!((said.status.code(), String::from_utf8(said.stderr).unwrap().as_str()), (Some(1), ""), "{steps}");
        let reasons = (0..8).map(|number| (format!("reason {number}"), number)).collect();
        let report = text(run, Path::new("out/failed"), &reasons, &BTreeMap::new());
        format!("{report}make: *** [Makefile:1: test] Error 1\n{}", String::from_utf8(said.stdout).unwrap())
    }

    #[test]
    fn the_cause_is_in_the_last_hundred_lines() {
        let failed = run().cases.into_iter().find(|case| !case.passed).unwrap();
        let crowd = |count: usize| {
            let mut failed = failed.clone();
            // The output is as long as it can be.
            failed.failures[0].output = format!("{}{}", failed.failures.last().unwrap().output, "a line\n".repeat(200));
            failed.failures.truncate(1);
            Run { cases: vec![failed; count], left: vec!["left".to_owned(); 40], ..run() }
        };
        for steps in ["tests", "lint tests", "lint docs tests", "lint deny workflows docs parts compile tests"] {
            for count in [1, 2, 4, 5, 20, 60] {
                let log = end_of_log(&crowd(count), steps);
                let last: Vec<&str> = log.lines().rev().take(100).collect();
                let lines = |part: &str| last.iter().filter(|line| line.contains(part)).count();
                assert_eq!(lines("FAILED drain::a_machine_leaves"), count, "{steps}, {count} failed\n{log}");
                for part in ["ended by its time-out while it waited for: pods run", "last seen: 2 of 3", "machine: load"] {
                    assert!(count > 40 || lines(part) >= count.min(3), "{steps}, {count} failed: {part:?} is missing\n{log}");
                }
                // The report of the tests is not repeated; the log of every other step is shown to its end.
                assert_eq!(lines("word 50"), steps.matches(' ').count(), "{log}");
            }
        }
        let log = end_of_log(&crowd(0), "lint");
        assert!(log.contains("\nword 30\n"), "{log}");
    }

    #[test]
    fn the_last_line_counts() {
        assert_eq!(count(&run()), "3 tests ran: 2 passed, 1 of them flaky; 1 failed; 1 things left behind");
    }

    #[test]
    fn no_report_is_no_success() {
        let none = Run { passed: false, cases: Vec::new(), left: Vec::new() };
        assert!(text(&none, Path::new("out"), &BTreeMap::new(), &BTreeMap::new()).contains("NO TEST RAN"));
    }
}
