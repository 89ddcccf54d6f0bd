//! The settings of CAPW itself in the objects that it installs.

use serde_json::{Value, json};

/// The values in the objects that are not settings of the Linux side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The image of CAPW, e.g. `registry.example.com/capw:v0.2.0`.
    pub image: String,
    /// The address at which nodes reach the API server, e.g. `https://10.0.0.10:6443`: no Service works there before kube-proxy runs.
    pub api_server: String,
    /// Names of Secrets in [`NAMESPACE`](super::NAMESPACE) with which nodes pull the image.
    pub pull_secrets: Vec<String>,
}

/// Adds the image pull secrets to a pod.
pub fn with_pull_secrets(mut pod: Value, names: &[String]) -> Value {
    if let (Value::Object(fields), false) = (&mut pod, names.is_empty()) {
        let secrets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        fields.insert("imagePullSecrets".to_owned(), Value::Array(secrets));
    }
    pod
}
