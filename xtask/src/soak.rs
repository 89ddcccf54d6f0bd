//! Runs tests repeatedly, without retries: a test that fails once in ten times is found here, not by a change that is rejected.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use crate::junit::Case;
use crate::nextest::Nextest;

/// The results of one test.
#[derive(Debug, Default)]
struct Tally {
    /// The seconds of the runs that passed or failed.
    seconds: Vec<f64>,
    passed: usize,
    /// The number of the first run that failed, and the kind of its failure.
    first: Option<(usize, String)>,
}

/// Runs the tests `count` times and prints a line for each test. `true` if all passed every time. An interrupt ends
/// the soak, with the results of the previous runs.
pub fn soak(nextest: &Nextest, count: usize, name: Option<&str>) -> Result<bool> {
    let filter = match name {
        Some(name) => format!("test({name})"),
        None => "binary(e2e)".to_owned(),
    };
    // The name may belong to a test that the gate leaves out.
    let profile = if name.is_some() { "default" } else { "gate" };
    let mut tallies = BTreeMap::new();
    let mut clean = true;
    for turn in 1..=count {
        println!("run {turn} of {count}");
        let run = nextest.run(profile, &["-E".to_owned(), filter.clone()])?;
        clean &= run.passed && run.left.is_empty();
        for left in &run.left {
            println!("LEFT BEHIND in run {turn}: {left}");
        }
        if nextest.is_interrupted() {
            println!("interrupted in run {turn}, which does not count");
            break;
        }
        for case in &run.cases {
            note(&mut tallies, case, turn);
            for (number, failure) in case.failures.iter().enumerate() {
                let folder = nextest.failed().join(crate::report::folder(&case.test));
                fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
                fs::write(folder.join(format!("run-{turn}-{}.log", number + 1)), &failure.output)?;
            }
        }
        write(nextest, &tallies)?;
    }
    print!("{}", table(&tallies));
    Ok(clean)
}

fn note(tallies: &mut BTreeMap<String, Tally>, case: &Case, turn: usize) {
    let tally = tallies.entry(case.test.clone()).or_default();
    tally.seconds.push(case.seconds);
    if case.passed {
        tally.passed += 1;
    } else if tally.first.is_none() {
        tally.first = case.failures.last().map(|failure| (turn, failure.kind.clone()));
    }
}

fn write(nextest: &Nextest, tallies: &BTreeMap<String, Tally>) -> Result<()> {
    let rows = tallies.iter().map(|(test, tally)| {
        json!({"test": test, "runs": tally.seconds.len(), "passed": tally.passed, "medianSeconds": tally.median(), "longestSeconds": tally.longest(),
            "firstFailure": tally.first.as_ref().map(|(turn, kind)| json!({"run": turn, "kind": kind}))})
    });
    let path = nextest.output.join("soak.json");
    fs::write(&path, format!("{:#}\n", json!(rows.collect::<Vec<_>>()))).with_context(|| path.display().to_string())
}

impl Tally {
    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    fn longest(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }
}

fn table(tallies: &BTreeMap<String, Tally>) -> String {
    let mut text = "passed      median   longest  test\n".to_owned();
    for (test, tally) in tallies {
        let first = tally.first.as_ref().map_or(String::new(), |(turn, kind)| format!("  first {kind} in run {turn}"));
        let row = format!("{:3} of {:3} {:6.0} s {:7.0} s  {test}{first}\n", tally.passed, tally.seconds.len(), tally.median(), tally.longest());
        text.push_str(&row);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::junit::Failure;

    #[test]
    fn a_row_says_how_often_how_long_and_how_it_failed_first() {
        let mut tallies = BTreeMap::new();
        for (turn, (seconds, passed)) in [(10.0, true), (30.0, false), (20.0, true), (40.0, false)].into_iter().enumerate() {
            let failures = if passed { Vec::new() } else { vec![Failure { kind: "test timeout".into(), output: String::new() }] };
            let case = Case { test: "drain::a".into(), binary: "e2e".into(), seconds, passed, failures };
            note(&mut tallies, &case, turn + 1);
        }
        assert!(table(&tallies).ends_with("  2 of   4     30 s      40 s  drain::a  first test timeout in run 2\n"), "{}", table(&tallies));
    }
}
