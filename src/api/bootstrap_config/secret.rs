//! The fields whose values come from Secrets and ConfigMaps.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One value of a Secret in the namespace of the WindowsBootstrapConfig. It is read once, when the bootstrap data is created.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be the name of a Secret: lower case letters, digits, - and ."))]
    pub name: String,
    /// Key in the Secret's `data`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[.]?[-_A-Za-z0-9][-._A-Za-z0-9]*$')").message("must be a key of a Secret: letters, digits, -, _ and ., not . alone and not .. at its beginning"))]
    pub key: String,
}

/// One value of a ConfigMap in the namespace of the WindowsBootstrapConfig. It is read once, when the bootstrap data is created.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be the name of a ConfigMap: lower case letters, digits, - and ."))]
    pub name: String,
    /// Key in the ConfigMap's `data` or `binaryData`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[.]?[-_A-Za-z0-9][-._A-Za-z0-9]*$')").message("must be a key of a ConfigMap: letters, digits, -, _ and ., not . alone and not .. at its beginning"))]
    pub key: String,
}

/// Source of a value.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ValueSource {
    /// A Secret in the same namespace, and the key in it.
    pub secret_key_ref: SecretKeyRef,
}

/// Source of certificates, which are not secret.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)").message("give exactly one of secretKeyRef and configMapKeyRef"))]
pub struct CaBundleSource {
    /// A Secret in the same namespace, and the key in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
    /// A ConfigMap in the same namespace, and the key in its `data` or `binaryData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
}
