//! The labels and taints that a Node registers with.

use std::collections::BTreeMap;

use crate::api::bootstrap_config::{HYPER_V_LABEL, Taint, TaintEffect, WindowsBootstrapConfigSpec};
use crate::api::capi::UNINITIALIZED_TAINT;
use crate::bootstrap::facts::BootstrapFacts;

/// Returns the taints of a new Node: the user's taints or the conventional `os=windows`, and Cluster API's own taint.
pub(in crate::bootstrap::render) fn taints(facts: &BootstrapFacts) -> Vec<Taint> {
    let mut taints = lasting_taints(&facts.spec);
    taints.push(Taint { key: UNINITIALIZED_TAINT.into(), value: None, effect: TaintEffect::NoSchedule });
    taints
}

/// Returns the labels that the Node registers with.
pub fn node_labels(spec: &WindowsBootstrapConfigSpec) -> BTreeMap<String, String> {
    let mut labels = spec.kubelet.node_labels.clone();
    if spec.windows.hyper_v_isolation {
        labels.entry(HYPER_V_LABEL.to_owned()).or_insert_with(|| "true".to_owned());
    }
    labels
}

/// Returns the taints that stay after the Node is initialized.
pub fn lasting_taints(spec: &WindowsBootstrapConfigSpec) -> Vec<Taint> {
    let mut taints = spec.kubelet.taints.clone().unwrap_or_else(|| vec![Taint::windows()]);
    taints.retain(|taint| taint.key != UNINITIALIZED_TAINT);
    taints
}
