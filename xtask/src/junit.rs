//! The report of a run of cargo-nextest, in the format that <https://nexte.st/docs/machine-readable/junit/> describes.

use anyhow::{Context, Result};
use roxmltree::{Document, Node};

/// A test that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The path of the test, as `stuck::why_is_it_stuck`.
    pub test: String,
    /// The program that contains the test, as `cluster-api-provider-windows::e2e`.
    pub binary: String,
    /// The duration of the last attempt.
    pub seconds: f64,
    /// Whether the last attempt passed.
    pub passed: bool,
    /// The attempts that failed, oldest first.
    pub failures: Vec<Failure>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The kind of the failure: `test failure`, `test timeout`, `test leak`, ...
    pub kind: String,
    /// The standard output of the test, then its standard error.
    pub output: String,
}

impl Case {
    /// Whether the test failed and then passed in a retry.
    pub fn is_flaky(&self) -> bool {
        self.passed && !self.failures.is_empty()
    }
}

/// Returns all tests of a report.
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
    // The output of the last attempt is beside it; the output of earlier attempts is inside of them.
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
