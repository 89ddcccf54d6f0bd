//! The namespace of what CAPW installs.

use serde_json::{Value, json};

use crate::components::plan::labels;

/// The namespace of all installed objects, except for cluster-scoped ones.
pub const NAMESPACE: &str = "capw-windows";

/// HostProcess pods are admitted only at the level `privileged`.
pub(super) fn namespace() -> Value {
    let mut labels = labels(NAMESPACE);
    labels.extend(["enforce", "audit", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), json!("privileged"))));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}
