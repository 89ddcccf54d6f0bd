//! Tests the workflows of the public repository: they run only known targets of the Makefile, and grant only the permissions that they need.

use std::fs;

use serde_json::Value;

use crate::checkout;

/// Returns the problems of a workflow that actionlint and zizmor do not know.
fn wrong(text: &str, targets: &[String]) -> Vec<String> {
    let workflow: Value = serde_saphyr::from_str(text).unwrap();
    let mut wrong = Vec::new();
    if workflow["permissions"].as_object().is_none_or(|granted| !granted.is_empty()) {
        wrong.push("permissions at the top are not {}".to_owned());
    }
    let steps = workflow["jobs"].as_object().unwrap().values().flat_map(|job| job["steps"].as_array().unwrap());
    let lines = steps.flat_map(|step| step["run"].as_str().unwrap_or_default().lines());
    let targets_run = lines.filter_map(|line| line.trim().strip_prefix("make ")?.split(' ').next());
    wrong.extend(targets_run.filter(|target| !targets.iter().any(|known| known == target)).map(|target| format!("make {target}: no such target")));
    wrong
}

fn targets() -> Vec<String> {
    let makefile = fs::read_to_string(checkout().join("Makefile")).unwrap();
    makefile
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()).filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')))
        .collect()
}

#[test]
fn workflows_grant_little_and_run_make() {
    let mut found = 0;
    for entry in fs::read_dir(checkout().join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let wrong = wrong(&fs::read_to_string(&path).unwrap(), &targets());
        assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
        found += 1;
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn what_is_wrong_with_a_workflow_is_found() {
    let ci = fs::read_to_string(checkout().join(".github/workflows/security.yaml")).unwrap();
    for (from, to, expected) in
        [("permissions: {}", "permissions: {contents: write}", "permissions"), ("make deny", "make everything", "no such target")]
    {
        let said = wrong(&ci.replace(from, to), &targets());
        assert!(said.iter().any(|text| text.contains(expected)), "{expected}: {said:?}");
    }
}
