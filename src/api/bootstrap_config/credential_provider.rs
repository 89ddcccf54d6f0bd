//! Programs that give the kubelet credentials for registries (<https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/>).

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Credential providers: programs in the image that the kubelet asks for credentials before a pull. containerd does not use them, so the sandbox image must not need credentials.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ImageCredentialProvider {
    /// Directory of the programs in the image, e.g. `C:\k\credential-providers`. Only administrators should be able to write there.
    #[schemars(length(min = 4, max = 100))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[-A-Za-z0-9._ ]*[-A-Za-z0-9_])+$')"#).message("must be an absolute Windows path of plain characters, e.g. C:\\k\\credential-providers"))]
    pub directory: String,
    /// The programs, at most 8. If several match an image, the kubelet asks all of them.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub providers: Vec<CredentialProvider>,
}

/// One program, and the images for which the kubelet runs it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CredentialProvider {
    /// Name of the program in the directory, without `.exe`.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$') && !self.lowerAscii().endsWith('.exe')").message("must be the name of the program without directory and without .exe, e.g. ecr-credential-provider"))]
    pub name: String,
    /// Images, by host and path, e.g. `*.dkr.ecr.*.amazonaws.com` or `registry.example.com:5000/team`; `*` stands for one part of a host name.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(i, i.matches('^[A-Za-z0-9*][-A-Za-z0-9.*]*(:[0-9*]{1,5})?(/[-A-Za-z0-9._*/]*)?$'))").message("must be hosts of registries, with port and path where they are meant, without scheme, e.g. *.azurecr.io"))]
    pub match_images: Vec<String>,
    /// How long an answer is cached if the program sets no duration itself, e.g. `12h`. Default: `10m`.
    #[serde(default = "ten_minutes")]
    #[schemars(length(min = 2, max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$')").message("must be a length of time in hours, minutes and seconds, in this order and of at most six digits each, e.g. 12h or 1h30m"))]
    pub default_cache_duration: String,
    /// Arguments of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 1024)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(a, !a.contains('\\u0000'))").message("must not contain the character NUL, which ends a text in Windows"))]
    pub args: Vec<String>,
    /// Environment variables of the program, in addition to the kubelet's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<ProviderVariable>,
    /// The program gets a token of the pod's service account. From Kubernetes 1.34 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_attributes: Option<TokenAttributes>,
}

fn ten_minutes() -> String {
    "10m".into()
}

/// An environment variable of a program. Not for secrets: users who may read this object can read it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProviderVariable {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*$')").message("must be letters, digits and _"))]
    pub name: String,
    /// Value of the variable.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub value: String,
}

/// The token of the pod's service account that a program gets.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.requireServiceAccount || !has(self.requiredServiceAccountAnnotationKeys)").message("requiredServiceAccountAnnotationKeys are those of a service account: set requireServiceAccount to true"))]
pub struct TokenAttributes {
    /// Audience of the token.
    #[schemars(length(min = 1, max = 253))]
    pub service_account_token_audience: String,
    /// Scope of a cached answer: every pod of the service account, or this token only.
    pub cache_type: TokenCache,
    /// Pods without a service account get nothing. Default: false.
    #[serde(default)]
    pub require_service_account: bool,
    /// Annotations that the service account must have; the program gets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 317)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub required_service_account_annotation_keys: Vec<String>,
    /// Annotations of the service account that the program gets if they exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 317)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub optional_service_account_annotation_keys: Vec<String>,
}

/// Scope of a cached answer.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum TokenCache {
    /// For every pod of the service account.
    #[default]
    ServiceAccount,
    /// For this token only.
    Token,
}
