//! One run and what to know of it: the last lines of the log are enough to know what to mend.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::junit::{Case, Failure};
use crate::lacking::{filter, lacking};
use crate::nextest::{Nextest, Run};
use crate::omitted::omitted;

/// Lines for all tests that failed together, and for one of them at least.
const LINES: usize = 70;
const FEWEST: usize = 12;
/// Of a flaky one.
const FLAKY_LINES: usize = 6;

/// Runs the tests of a profile and prints the report. `true` if all passed and nothing was left behind.
pub fn test(nextest: &Nextest, profile: &str, more: &[String]) -> Result<bool> {
    let _ = fs::remove_dir_all(nextest.failed());
    // A person who names tests means all of them.
    let lacking = if more.is_empty() { lacking() } else { None };
    let without = filter(lacking);
    let run = nextest.run(profile, if more.is_empty() { &without } else { more })?;
    write_files(nextest, &run)?;
    let left_out = if more.is_empty() { omitted(&nextest.list(profile, &without)?, lacking) } else { Default::default() };
    println!("\n{}", text(&run, &nextest.failed()));
    for (why, count) in left_out {
        println!("left out: {count:3}  {why}");
    }
    println!("{}", count(&run));
    Ok(run.passed && run.left.is_empty())
}

/// `out/flaky.json`, and for each attempt that failed everything that it printed.
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

/// What of a test's name a folder is called.
pub fn folder(test: &str) -> String {
    test.replace("::", ".")
}

/// What failed, what was flaky and what was left behind.
pub fn text(run: &Run, failed: &Path) -> String {
    let mut text = String::new();
    for case in run.cases.iter().filter(|case| case.is_flaky()) {
        let _ = writeln!(text, "FLAKY {} failed {} of {} times", case.test, case.failures.len(), case.failures.len() + 1);
        for line in case.failures.first().map(|failure| summary(failure, FLAKY_LINES)).into_iter().flatten() {
            let _ = writeln!(text, "      {line}");
        }
    }
    let wrong: Vec<&Case> = run.cases.iter().filter(|case| !case.passed).collect();
    let share = (LINES / wrong.len().max(1)).max(FEWEST);
    for case in wrong {
        let _ = writeln!(
            text,
            "FAILED {} ({} times, {:.0} s); files: {}",
            case.test,
            case.failures.len(),
            case.seconds,
            failed.join(folder(&case.test)).display()
        );
        for line in case.failures.last().map(|failure| summary(failure, share)).into_iter().flatten() {
            let _ = writeln!(text, "      {line}");
        }
    }
    for left in &run.left {
        let _ = writeln!(text, "LEFT BEHIND {left}");
    }
    if run.cases.is_empty() {
        text.push_str("NO TEST RAN: see above\n");
    }
    text
}

fn count(run: &Run) -> String {
    let (passed, flaky) = (run.cases.iter().filter(|case| case.passed).count(), run.cases.iter().filter(|case| case.is_flaky()).count());
    let failed = run.cases.len() - passed;
    format!("{} tests ran: {passed} passed, {flaky} of them flaky; {failed} failed; {} things left behind", run.cases.len(), run.left.len())
}

/// The question and what was seen last, the state of the machine, then the ends of logs with errors; so many lines at most.
fn summary(failure: &Failure, most: usize) -> Vec<String> {
    let mut lines = reason(failure);
    lines.truncate(most.div_ceil(2).max(4));
    lines.extend(machine(failure));
    // A test prints its logs last: those that it thinks have to do with it.
    let logs = failure.output.lines().skip_while(|line| !line.starts_with("--- end of ")).map(cut);
    let room = most.saturating_sub(lines.len());
    lines.extend(logs.take(room));
    lines
}

/// From `panicked at` (or the words of a test that was ended) to the backtrace.
fn reason(failure: &Failure) -> Vec<String> {
    let lines: Vec<&str> = failure.output.lines().collect();
    let begins = |line: &&str| line.contains(" panicked at ") || line.starts_with("ended ");
    let Some(at) = lines.iter().position(begins) else {
        // Killed, or ended by itself without a word.
        return std::iter::once(failure.kind.clone()).chain(lines.iter().rev().take(5).rev().map(|line| cut(line))).collect();
    };
    let said =
        lines.iter().skip(at).take_while(|line| !line.starts_with("stack backtrace:") && !line.starts_with("note: ") && !line.starts_with("--- "));
    std::iter::once(failure.kind.clone()).chain(said.filter(|line| !line.trim().is_empty()).map(|line| cut(line))).collect()
}

/// Load, memory and disk when it failed, if it said so.
fn machine(failure: &Failure) -> Option<String> {
    failure.output.lines().find(|line| line.starts_with("machine: ")).map(str::to_owned)
}

fn cut(line: &str) -> String {
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::junit::cases;

    const REPORT: &str = include_str!("../tests/junit.xml");

    fn run() -> Run {
        Run { passed: false, cases: cases(REPORT).unwrap(), left: vec!["three left the process 7 running: etcd".to_owned()] }
    }

    #[test]
    fn a_report_says_what_was_asked_and_what_was_seen_last() {
        let text = text(&run(), Path::new("out/failed"));
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

    #[test]
    fn it_fits_into_the_last_hundred_lines() {
        let mut many = run();
        let failed = many.cases.iter().find(|case| !case.passed).unwrap().clone();
        many.cases.extend(std::iter::repeat_n(failed, 4));
        assert!(text(&many, Path::new("out/failed")).lines().count() < 100);
    }

    #[test]
    fn the_last_line_counts() {
        assert_eq!(count(&run()), "3 tests ran: 2 passed, 1 of them flaky; 1 failed; 1 things left behind");
    }

    #[test]
    fn no_report_is_no_success() {
        let none = Run { passed: false, cases: Vec::new(), left: Vec::new() };
        assert!(text(&none, Path::new("out")).contains("NO TEST RAN"));
    }
}
