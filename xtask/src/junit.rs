//! What a run of cargo-nextest has written down, as <https://nexte.st/docs/machine-readable/junit/> describes it.

use anyhow::{Context, Result};
use roxmltree::{Document, Node};

/// A test that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its path, as `stuck::why_is_it_stuck`.
    pub test: String,
    /// The program that it is in, as `cluster-api-provider-windows::e2e`.
    pub binary: String,
    /// Of the last attempt.
    pub seconds: f64,
    /// The last attempt passed.
    pub passed: bool,
    /// Attempts that failed, oldest first.
    pub failures: Vec<Failure>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// `test failure`, `test timeout`, `test leak`, ...
    pub kind: String,
    /// What it wrote to standard output, then to standard error.
    pub output: String,
}

impl Case {
    /// It failed and passed when it was tried again.
    pub fn is_flaky(&self) -> bool {
        self.passed && !self.failures.is_empty()
    }
}

/// All tests of a report.
pub fn cases(xml: &str) -> Result<Vec<Case>> {
    let document = Document::parse(xml).context("the report of cargo-nextest is not XML")?;
    let suites = document.descendants().filter(|node| node.has_tag_name("testsuite"));
    let cases = suites.flat_map(|suite| {
        let binary = suite.attribute("name").unwrap_or_default();
        suite.children().filter(|node| node.has_tag_name("testcase")).map(move |node| case(binary, node))
    });
    Ok(cases.collect())
}

fn case(binary: &str, node: Node<'_, '_>) -> Case {
    let of = |names: &[&str]| -> Vec<Node<'_, '_>> { node.children().filter(|child| names.contains(&child.tag_name().name())).collect() };
    let last = of(&["failure", "error"]);
    let again = of(&["flakyFailure", "flakyError", "rerunFailure", "rerunError"]);
    // What the last attempt printed stands beside it, that of the others inside of them.
    let own = last.iter().map(|failure| Failure { kind: kind(*failure), output: output(node) });
    Case {
        test: node.attribute("name").unwrap_or_default().to_owned(),
        binary: binary.to_owned(),
        seconds: node.attribute("time").and_then(|time| time.parse().ok()).unwrap_or(0.0),
        passed: last.is_empty(),
        failures: own.chain(again.iter().map(|failure| Failure { kind: kind(*failure), output: output(*failure) })).collect(),
    }
}

fn kind(failure: Node<'_, '_>) -> String {
    failure.attribute("type").unwrap_or("failure").to_owned()
}

fn output(node: Node<'_, '_>) -> String {
    let parts = node.children().filter(|child| ["system-out", "system-err"].contains(&child.tag_name().name()));
    parts.filter_map(|part| part.text()).collect::<Vec<_>>().join("\n")
}
