//! Is what a node is told right for its minor of Kubernetes and for Windows? Rules by name (`windows-bootstrap.md` §2.6),
//! over what is rendered and over the users' own fields and flags alike. Pure.
//!
//! L1 to L19 are those of the design; L20: a field that the minor does not have; L21: a value of the wrong type; L22: a field
//! that means nothing on Windows; L23: what is set by other means; L24: programs for credentials.

mod credentials;
mod fields;
mod flags;
mod node;
mod surface;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::error::RenderError;
use super::facts::BootstrapFacts;
use super::{containerd, join, kube_proxy, kubelet};

pub(super) use surface::reset_fields;

/// Whether a node would come up with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The kubelet would not start, or do something else than what is asked: refused.
    Error,
    /// It has no effect, or one that surprises: told.
    Warning,
}

/// What a rule has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `L1` to `L24`.
    pub rule: &'static str,
    pub severity: Severity,
    /// Where users wrote it, or would.
    pub field: String,
    pub value: String,
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {:?}: {}", self.rule, self.field, self.value, self.remedy)
    }
}

/// The warnings for a person; empty when there are none.
pub fn explain(warnings: &[Finding]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let lines: String = warnings.iter().map(|finding| format!("  {finding}\n")).collect();
    format!("\nWhat has no effect, or one that surprises:\n{lines}")
}

/// The same as one message of a condition: the first ten, and how many more there are.
pub fn message(findings: &[Finding]) -> String {
    let mut text = findings.iter().take(MESSAGE).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if findings.len() > MESSAGE {
        text.push_str(&format!("; and {} more", findings.len() - MESSAGE));
    }
    text
}

/// Most findings in one message.
const MESSAGE: usize = 10;
/// Most characters of a value that a message shows.
const SHOWN: usize = 80;

/// Findings as they are made.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, rule: &'static str, field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) {
        self.add(rule, Severity::Error, field.into(), value.into(), remedy.into());
    }

    fn warning(&mut self, rule: &'static str, field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) {
        self.add(rule, Severity::Warning, field.into(), value.into(), remedy.into());
    }

    fn add(&mut self, rule: &'static str, severity: Severity, field: String, value: String, remedy: String) {
        let value = value.chars().take(SHOWN).collect();
        self.0.push(Finding { rule, severity, field, value, remedy });
    }
}

/// Everything that the rules look at.
struct Node<'a> {
    minor: u32,
    /// The KubeletConfiguration as the kubelet has it in the end.
    config: Map<String, Value>,
    /// The users' own part of it.
    extra: &'a BTreeMap<String, Value>,
    /// All flags that are not decided by kubeadm, ours first.
    flags: Vec<(String, String)>,
    /// How many of them are ours.
    ours: usize,
    facts: &'a BootstrapFacts,
}

/// What is to be told. Fails with everything that must not be rendered.
pub(super) fn check(facts: &BootstrapFacts) -> Result<Vec<Finding>, RenderError> {
    let unreadable = |reason: &dyn fmt::Display| RenderError::Serialize { what: "the data of the rules", reason: reason.to_string() };
    let (Some(surface), Some(windows)) = (surface::surface(), surface::windows()) else {
        return Err(unreadable(&"it is damaged"));
    };
    let mut config = serde_json::to_value(kubelet::configuration(facts)?).map_err(|e| unreadable(&e))?;
    for (name, value) in &facts.spec.kubelet.extra_config {
        let patch = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        // As the kubelet lays a drop-in over its configuration.
        json_patch::merge(&mut config, &patch);
    }
    let Value::Object(config) = without_nulls(config) else { return Err(unreadable(&"no object")) };
    let flags = kubelet::flags(facts);
    let ours = flags.len().saturating_sub(facts.spec.kubelet.extra_args.len());
    let node = Node { minor: facts.kubernetes.minor, config, extra: &facts.spec.kubelet.extra_config, flags, ours, facts };
    let mut findings = Findings::default();
    fields::check(&node, surface, windows, &mut findings);
    flags::check(&node, surface, windows, &mut findings);
    node::check(&node, &mut findings);
    credentials::check(&node, &mut findings);
    let join = serde_json::to_value(join::document(facts)).map_err(|e| unreadable(&e))?;
    node::check_join(node.minor, &join, &mut findings);
    let toml: toml::Table = containerd::configuration(facts)?.parse().map_err(|e: toml::de::Error| unreadable(&e))?;
    node::check_containerd(facts.spec.containerd.line, &toml, &mut findings);
    if let Some(spec) = &facts.spec.kube_proxy {
        let proxy = serde_json::to_value(kube_proxy::configuration(facts, spec)).map_err(|e| unreadable(&e))?;
        node::check_proxy(facts.spec.windows_release, spec.network_type, &proxy, &mut findings);
    }
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) = findings.0.into_iter().partition(|finding| finding.severity == Severity::Error);
    if errors.is_empty() { Ok(warnings) } else { Err(RenderError::Lint(errors)) }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, without_nulls(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
