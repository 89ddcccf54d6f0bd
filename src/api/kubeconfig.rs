//! The reference to a kubeconfig, in all kinds that name a cluster.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A key of a Secret that holds a kubeconfig.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigSecretReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be the name of a Secret: lower case letters, digits, - and ."))]
    pub name: String,
    /// Key in the Secret. Default: `value`.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[.]?[-_A-Za-z0-9][-._A-Za-z0-9]*$')").message("must be a key of a Secret: letters, digits, -, _ and ., not . alone and not .. at its beginning, e.g. value"))]
    pub key: String,
}

fn default_key() -> String {
    "value".into()
}
