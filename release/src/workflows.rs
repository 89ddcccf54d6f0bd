//! Tests the workflows of the public repository: they run only known targets of the Makefile, grant only the permissions that they need, and keep
//! the steps on Windows that docs/windows-proof.md names.

use std::fs;

use serde_json::{Value, json};

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

/// The steps on Windows that docs/windows-proof.md names, each by parts of its command or action, and whether the step runs also after another
/// one failed.
const ON_WINDOWS: [(&[&str], bool); 9] = [
    (&["actions/checkout@"], false),
    (&["actions/download-artifact@"], false),
    (&["Install-Module -Name Pester ", "Install-Module -Name PSScriptAnalyzer "], false),
    (&[r"\parse.ps1 -Directory (Resolve-Path src\bootstrap\runner)", "exit 1"], true),
    (&["Invoke-ScriptAnalyzer -Path", "exit 1"], true),
    (&[r"\pester.ps1 -Directory (Resolve-Path src\bootstrap\runner)", "exit 1"], true),
    (&[r"src\bootstrap\runner\prove.ps1 -From C:\proof -Until program-containerd", "exit 1"], true),
    (&[r"Copy-Item C:\proof\proof.txt"], true),
    (&["actions/upload-artifact@"], true),
];

/// Returns the parts that the job `scripts` of windows.yaml lacks.
fn lacks(workflow: &Value) -> Vec<String> {
    let job = &workflow["jobs"]["scripts"];
    let mut lacks = Vec::new();
    let is_on_both = job["runs-on"] == "windows-${{ matrix.release }}" && job["strategy"]["matrix"] == json!({"release": ["2022", "2025"]});
    if !is_on_both || !job["if"].is_null() || !job["continue-on-error"].is_null() {
        lacks.push("runs that count, on windows-2022 and windows-2025".to_owned());
    }
    let steps = job["steps"].as_array().unwrap();
    for (parts, always) in ON_WINDOWS {
        let condition = if always { json!("${{ !cancelled() }}") } else { Value::Null };
        let is_it = |step: &Value| {
            let text = step["run"].as_str().or(step["uses"].as_str()).unwrap_or_default();
            parts.iter().all(|part| text.contains(part)) && step["if"] == condition && step["continue-on-error"].is_null()
        };
        if !steps.iter().any(is_it) {
            lacks.push(format!("a step with {parts:?}"));
        }
    }
    lacks
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

fn of_windows() -> Value {
    serde_saphyr::from_str(&fs::read_to_string(checkout().join(".github/workflows/windows.yaml")).unwrap()).unwrap()
}

#[test]
fn the_workflow_for_windows_has_each_step_that_the_page_names() {
    assert_eq!(lacks(&of_windows()), [""; 0]);
}

#[test]
fn a_step_that_the_workflow_for_windows_lost_is_noticed() {
    let whole = of_windows();
    let steps = whole["jobs"]["scripts"]["steps"].as_array().unwrap().len();
    for index in 0..steps {
        let mut less = whole.clone();
        let removed = less["jobs"]["scripts"]["steps"].as_array_mut().unwrap().remove(index);
        assert_eq!(lacks(&less).len(), 1, "{removed}");
    }
    for (at, value) in [("/strategy/matrix/release", json!(["2022"])), ("/runs-on", json!("windows-2022")), ("/steps/4/if", json!(false))] {
        let mut other = whole.clone();
        *other["jobs"]["scripts"].pointer_mut(at).unwrap() = value;
        assert_eq!(lacks(&other).len(), 1, "{at}");
    }
}
