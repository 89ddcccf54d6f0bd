//! Applies every rule to the settings of a node.

use std::fmt;

use serde_json::{Map, Value};

use super::findings::Findings;
use super::input::Node;
use super::{credentials, fields, flags, node};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::finding::{LintFinding, Severity};
use crate::bootstrap::render::Documents;
use crate::bootstrap::render::kubelet::surface;

/// Returns the warnings; fails with all errors.
pub(in crate::bootstrap) fn check(facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<Vec<LintFinding>, RenderError> {
    let unreadable = |reason: &dyn fmt::Display| RenderError::Serialize { what: "the data of the rules", reason: reason.to_string() };
    let (Some(surface), Some(windows)) = (surface::surface(), surface::windows()) else {
        return Err(unreadable(&"it is damaged"));
    };
    let mut config = serde_json::to_value(&documents.kubelet).map_err(|e| unreadable(&e))?;
    for (name, value) in &facts.spec.kubelet.extra_config {
        let patch = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        // The kubelet applies drop-in files in the same way.
        json_patch::merge(&mut config, &patch);
    }
    let Value::Object(config) = without_nulls(config) else { return Err(unreadable(&"no object")) };
    let flags = documents.kubelet_flags.as_slice();
    let ours = flags.len().saturating_sub(facts.spec.kubelet.extra_args.len());
    let node = Node { minor: facts.kubernetes.minor, config, extra: &facts.spec.kubelet.extra_config, flags, ours, facts, documents };
    let mut findings = Findings::default();
    fields::check(&node, surface, windows, &mut findings);
    flags::check(&node, surface, windows, &mut findings);
    node::check(&node, &mut findings);
    credentials::check(&node, &mut findings);
    let join = serde_json::to_value(&documents.join).map_err(|e| unreadable(&e))?;
    node::check_join(node.minor, &join, &mut findings);
    node::check_containerd(facts.spec.containerd.line, &documents.containerd, &mut findings);
    if let (Some(spec), Some(proxy)) = (&facts.spec.kube_proxy, &documents.kube_proxy) {
        let proxy = serde_json::to_value(proxy).map_err(|e| unreadable(&e))?;
        node::check_proxy(facts.spec.windows_release, spec.network_type, &proxy, &mut findings);
    }
    let (errors, warnings): (Vec<LintFinding>, Vec<LintFinding>) = findings.0.into_iter().partition(|finding| finding.severity == Severity::Error);
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
