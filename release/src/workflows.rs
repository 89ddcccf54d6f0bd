//! Tests the workflows of the public repository: they run only known `make` targets, and grant only the permissions that they need.

use std::fs;

use serde_json::Value;

use crate::checkout;

/// Every step of a workflow.
fn steps(workflow: &Value) -> Vec<&Value> {
    let jobs = workflow["jobs"].as_object().unwrap();
    jobs.values().flat_map(|job| job["steps"].as_array().unwrap()).collect()
}

/// Returns the problems of a workflow.
fn wrong(text: &str, targets: &[String]) -> Vec<String> {
    let workflow: Value = serde_saphyr::from_str(text).unwrap();
    let mut wrong = Vec::new();
    if workflow["permissions"].as_object().is_none_or(|granted| !granted.is_empty()) {
        wrong.push("permissions at the top are not {}".to_owned());
    }
    for step in steps(&workflow) {
        if let Some(action) = step["uses"].as_str() {
            let commit = action.split_once('@').map_or("", |(_, commit)| commit);
            if commit.len() != 40 || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
                wrong.push(format!("{action} is not pinned by commit"));
            }
            if action.starts_with("actions/checkout@") && step["with"]["persist-credentials"] != false {
                wrong.push("checkout leaves its credentials behind".to_owned());
            }
        }
        let run = step["run"].as_str().unwrap_or_default();
        if run.contains("${{") {
            wrong.push(format!("{run}: text of others becomes part of a script"));
        }
        for line in run.lines() {
            if let Some(target) =
                line.trim().strip_prefix("make ").and_then(|rest| rest.split(' ').next()).filter(|t| !targets.contains(&(*t).to_owned()))
            {
                wrong.push(format!("make {target}: no such target"));
            }
        }
    }
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
fn workflows_are_pinned_grant_little_and_run_make() {
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
    let commit = "de0fac2e4500dabe0009e67214ff5f5447ce83dd";
    assert!(ci.contains(commit));
    for (from, to, expected) in [
        (commit, "v6", "not pinned by commit"),
        ("persist-credentials: false", "persist-credentials: true", "credentials"),
        ("permissions: {}", "permissions: {contents: write}", "permissions"),
        ("make deny", "make everything", "no such target"),
        ("make deny", "echo ${{ github.event.issue.title }}; make deny", "becomes part of a script"),
    ] {
        let said = wrong(&ci.replace(from, to), &targets());
        assert!(said.iter().any(|text| text.contains(expected)), "{expected}: {said:?}");
    }
}
