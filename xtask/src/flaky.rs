//! Records of flaky tests in all checkouts of this machine. The files of a run are deleted with its clone, but a second failure must count.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::junit::Case;
use crate::report::folder;

/// A record of a flaky test, as a line of `flaky.jsonl`.
#[derive(Serialize, Deserialize)]
struct Time {
    test: String,
    /// The kind of the failure.
    kind: String,
    /// The file with the output of the test, below `flaky/` beside this file.
    log: String,
}

/// Records the flaky tests of a run with their output. Returns how often each of them has been flaky so far, by name.
pub fn remember(cache: &Path, cases: &[Case]) -> Result<BTreeMap<String, usize>> {
    let path = cache.join("flaky.jsonl");
    let known = fs::read_to_string(&path).unwrap_or_default();
    // A line in another format, e.g. of another version, does not count.
    let mut tests: Vec<String> = known.lines().filter_map(|line| Some(serde_json::from_str::<Time>(line).ok()?.test)).collect();
    let mut times = BTreeMap::new();
    for case in cases.iter().filter(|case| case.is_flaky()) {
        let Some(failure) = case.failures.first() else { continue };
        let before = tests.iter().filter(|test| **test == case.test).count();
        let log = format!("{}-{}.log", folder(&case.test), before + 1);
        fs::create_dir_all(cache.join("flaky")).and_then(|()| fs::write(cache.join("flaky").join(&log), &failure.output)).context(log.clone())?;
        let line = serde_json::to_string(&Time { test: case.test.clone(), kind: failure.kind.clone(), log })?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| writeln!(file, "{line}")).with_context(|| path.display().to_string())?;
        tests.push(case.test.clone());
        times.insert(case.test.clone(), before + 1);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::junit::Failure;

    #[test]
    fn the_second_time_is_told_from_the_first() {
        let cache = tempfile::tempdir().unwrap();
        let case = |test: &str, passed: bool| Case {
            test: test.into(),
            binary: "e2e".into(),
            seconds: 1.0,
            passed,
            failures: vec![Failure { kind: "test failure".into(), output: format!("words of {test}") }],
        };
        let run = || remember(cache.path(), &[case("drain::a", true), case("pools::b", false)]).unwrap();
        assert_eq!(run(), [("drain::a".to_owned(), 1)].into());
        fs::write(cache.path().join("flaky.jsonl"), format!("no JSON\n{}", fs::read_to_string(cache.path().join("flaky.jsonl")).unwrap())).unwrap();
        assert_eq!(run(), [("drain::a".to_owned(), 2)].into());
        for log in ["drain.a-1.log", "drain.a-2.log"] {
            assert_eq!(fs::read_to_string(cache.path().join("flaky").join(log)).unwrap(), "words of drain::a");
        }
    }
}
