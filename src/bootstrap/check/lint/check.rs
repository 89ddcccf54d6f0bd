//! Rules that check whether the settings of a node fit its minor of Kubernetes and Windows. They apply to the rendered documents and to the
//! users' own fields and flags alike.
//!
//! | Rule | Subject |
//! |---|---|
//! | L1 | cgroups, which Windows does not have |
//! | L2 | paths without a drive |
//! | L3 | the priority class |
//! | L4 | feature gates that are unknown, locked or missing |
//! | L5, L6 | eviction signals that are missing, or that Windows does not have |
//! | L7 | reserves below what Windows needs |
//! | L8 | flags that the minor does not have |
//! | L9, L10 | the version and form of kubeadm's configuration, and its preflight checks |
//! | L11 | the address of containerd's pipe |
//! | L12, L13 | containerd's configuration: its version, its network plug-in directories |
//! | L14 | kube-proxy: the source VIP, health checks |
//! | L15 | the graceful shutdown of a node |
//! | L16 | feature gates for things that only Linux has |
//! | L17 | who signs the kubelet's serving certificate |
//! | L18 | more pods than the pod network has addresses |
//! | L19 | credentials for images that the machine's image already has |
//! | L20 | fields that the minor does not have |
//! | L21 | values of the wrong type |
//! | L22 | fields that have no effect on Windows, or stop the kubelet there |
//! | L23 | fields and flags that CAPW or kubeadm sets |
//! | L24 | credential providers |
//! | L25 | secrets in the text of a script |
//! | L26 | installers that restart Windows on their own |
//! | L27 | a proxy without the networks of the nodes |

mod credentials;
mod fields;
mod flags;
mod node;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::finding::{LintFinding, Severity};
use crate::bootstrap::render::Documents;
use crate::bootstrap::render::kubelet::surface;

/// The length of a value in a message, in characters.
const SHOWN: usize = 80;

/// The findings so far.
#[derive(Default)]
struct Findings(Vec<LintFinding>);

impl Findings {
    fn error(&mut self, rule: &'static str, field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) {
        self.add(rule, Severity::Error, field.into(), value.into(), remedy.into());
    }

    fn warning(&mut self, rule: &'static str, field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) {
        self.add(rule, Severity::Warning, field.into(), value.into(), remedy.into());
    }

    fn add(&mut self, rule: &'static str, severity: Severity, field: String, value: String, remedy: String) {
        let value = value.chars().take(SHOWN).collect();
        self.0.push(LintFinding { rule, severity, field, value, remedy });
    }
}

/// The input of the rules.
struct Node<'a> {
    minor: u32,
    /// The effective KubeletConfiguration.
    config: Map<String, Value>,
    /// The users' part of the KubeletConfiguration.
    extra: &'a BTreeMap<String, Value>,
    /// All flags except those that kubeadm decides; ours come first.
    flags: &'a [(String, String)],
    /// The number of our flags.
    ours: usize,
    facts: &'a BootstrapFacts,
    documents: &'a Documents<'a>,
}

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

#[cfg(test)]
mod tests;
