//! Tests with Prometheus' own tool, if it is installed.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{checkout, judges};

/// The names of the metrics in `docs/metrics.md`, which another test compares with the registry.
pub fn metrics() -> Vec<String> {
    let page = fs::read_to_string(checkout().join("docs/metrics.md")).unwrap();
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name.to_owned());
    let names: Vec<String> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    names
}

/// The metrics that a query names.
pub fn named(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics = words.filter(|word| word.starts_with("capw_") || word.starts_with("process_"));
    metrics.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

/// Runs `promtool` on files with this content, and passes it the last file. Does nothing if `promtool` is missing.
pub fn promtool(command: &[&str], files: &[(&str, &Value)]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        // YAML parsers accept JSON.
        fs::write(folder.path().join(name), content.to_string()).unwrap();
    }
    let (last, _) = files.last().unwrap();
    let Some(done) = judges::output(Command::new("promtool").args(command).arg(last).current_dir(folder.path())) else { return };
    assert!(done.status.success(), "{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
}
