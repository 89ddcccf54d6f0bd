//! The tests that a run leaves out, and why: ignored tests give the reason in their source, the others run elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::lacking::Lacking;

/// Returns how many tests a run with this profile leaves out, by reason.
pub fn omitted(profile: &str, list: &Value, lacking: Option<Lacking>) -> BTreeMap<String, usize> {
    let elsewhere = if profile == "judge" { "a change has to pass it: make test" } else { "takes long or depends on chance: make judge" };
    let reasons = reasons(&[Path::new("e2e"), Path::new("src")]);
    let mut count = BTreeMap::new();
    let suites = list.get("rust-suites").and_then(Value::as_object).into_iter().flatten();
    let cases = suites.flat_map(|(_, suite)| suite.get("testcases").and_then(Value::as_object).into_iter().flatten());
    for (test, case) in cases {
        let is_ignored = case.get("ignored") == Some(&Value::Bool(true));
        if case.pointer("/filter-match/status").is_some_and(|status| status == "matches") {
            continue;
        }
        let own = test.rsplit("::").next().and_then(|name| reasons.get(name));
        let why = match own {
            Some(reason) if is_ignored => reason.clone(),
            _ if is_ignored => "it is ignored".to_owned(),
            _ => match lacking.filter(|lacking| test.starts_with(lacking.tests)) {
                Some(lacking) => lacking.why.to_owned(),
                None => elsewhere.to_owned(),
            },
        };
        *count.entry(why).or_default() += 1;
    }
    count
}

/// Returns the reasons in `#[ignore = "..."]`, by the name of the test.
fn reasons(folders: &[&Path]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in folders {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        for path in entries {
            if path.is_dir() {
                found.extend(reasons(&[&path]));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.extend(reasons_in(&fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found
}

fn reasons_in(source: &str) -> Vec<(String, String)> {
    let marked = source.split("#[ignore = \"").skip(1);
    let read = marked.filter_map(|rest| {
        let (reason, rest) = rest.split_once("\"]")?;
        let name = rest.split_once("fn ")?.1.split('(').next()?;
        Some((name.to_owned(), reason.to_owned()))
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_the_name_of_its_test() {
        let source = "#[test]\n#[ignore = \"needs a PowerShell\"]\nfn one() {}\n#[test]\nfn two() {}\n#[test]\n#[ignore = \"slow\"]\n#[rustfmt::skip]\nfn three() {}";
        let wanted = [("one", "needs a PowerShell"), ("three", "slow")].map(|(name, why)| (name.to_owned(), why.to_owned()));
        assert_eq!(reasons_in(source), wanted);
    }

    #[test]
    fn each_test_that_does_not_run_is_counted_with_its_reason() {
        let case = |ignored: bool, status: &str| serde_json::json!({"ignored": ignored, "filter-match": {"status": status}});
        let list = serde_json::json!({"rust-suites": {"a": {"testcases": {
            "x::runs": case(false, "matches"), "x::is_long": case(false, "mismatch"), "x::has_no_reason": case(true, "mismatch"),
            "x::lacks": case(false, "mismatch"),
        }}}});
        for (profile, elsewhere) in [("gate", "takes long or depends on chance: make judge"), ("judge", "a change has to pass it: make test")] {
            let count = omitted(profile, &list, Some(Lacking { tests: "x::lacks", why: "needs another machine" }));
            let expected = [elsewhere, "it is ignored", "needs another machine"].map(|why| (why.to_owned(), 1));
            assert_eq!(count, BTreeMap::from(expected));
        }
    }
}
