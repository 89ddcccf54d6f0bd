//! A program's access to the API server: a kubeconfig that refers to the pod's own token. The kubelet renews the token in its file, from which the
//! program re-reads it, so the kubeconfig contains no secret.

use serde_json::{Value, json};

use crate::node::{Failure, Node, write};

/// Writes the kubeconfig of a program and returns its path.
pub fn kubeconfig(node: &Node, program: &str) -> Result<String, Failure> {
    let path = node.written(program, "kubeconfig");
    // JSON is valid YAML.
    write(&path, &format!("{:#}\n", content(node)))?;
    Ok(path.display().to_string())
}

fn content(node: &Node) -> Value {
    let file = |name: &str| node.access.join(name).display().to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": node.api_server, "certificate-authority": file("ca.crt")}}],
        "users": [{"name": "pod", "user": {"tokenFile": file("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "pod"}}],
        "current-context": "pod",
    })
}
