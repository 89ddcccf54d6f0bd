//! Image registries and their mirrors.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cel::BRACKETS;
use super::secret::ValueSource;

/// Hosts that serve the images of one registry: containerd's `hosts.toml`.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.fallback != 'None' || (has(self.mirrors) && size(self.mirrors) > 0)").message("fallback None needs a mirror: name one, or leave fallback out"))]
pub struct Registry {
    /// The registry in image names, with its port if the names have one, e.g. `docker.io`, `registry.example.com:5000`; `*` for every registry that is not listed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == '*' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$')").message("must be the host of a registry in lower case, with its port if images name it, without scheme and path, e.g. registry.example.com:5000; or *"))]
    pub host: String,
    /// Mirrors, tried in this order before the registry itself. A registry that needs its own CA is listed here with its own URL. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["url".into()]))]
    pub mirrors: Vec<Mirror>,
    /// Server to try if no mirror has the image. Default: the registry itself.
    #[serde(default)]
    pub fallback: Fallback,
}

/// Server to try if no mirror has the image.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Fallback {
    /// The registry itself.
    #[default]
    Registry,
    /// Nothing: the node cannot reach the registry.
    None,
}

/// A server that has the images of a registry.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.url.startsWith('https://') || (!has(self.basicAuth) && !has(self.clientCertificate))").message("credentials go over https only: give an https address, or leave basicAuth and clientCertificate out"))]
pub struct Mirror {
    /// Address, e.g. `https://mirror.example.com` or `https://mirror.example.com/v2/docker-hub`.
    #[schemars(length(min = 9, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|\\\\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[-A-Za-z0-9._~/]*)?$')").message("must be an http or https address without user, query and blanks, e.g. https://mirror.example.com/v2/docker-hub"))]
    #[x_kube(validation = Rule::new(BRACKETS).message("must have an IPv6 address in the brackets, e.g. https://[fd00::1]/v2/docker-hub"))]
    pub url: String,
    /// Uses of the mirror. Default: both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub capabilities: Vec<Capability>,
    /// The path of `url` is the complete root of the API: `/v2` is not appended. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub override_path: bool,
    /// Accept any certificate of the server. For tests only. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_verify: bool,
    /// CA certificates that the server's certificate is verified with, PEM. Default: those that Windows trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16_384))]
    #[x_kube(validation = Rule::new("self.contains('-----BEGIN CERTIFICATE-----')").message("must be certificates in PEM form, with -----BEGIN CERTIFICATE-----"))]
    pub ca_certificates: Option<String>,
    /// User and password that containerd sends to the server (HTTP Basic), and with containerd 2 also to its token server. They stay on the node in a file for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// Client certificate and key. They stay on the node in files for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificate>,
}

impl Mirror {
    /// The fields of the mirror that take a value from a Secret, as users write them.
    pub fn secret_refs(&self, registry: &Registry) -> Vec<(String, &ValueSource)> {
        let at = |field: &str| format!("spec.containerd.registries[{}].mirrors[{}].{field}.secretKeyRef", registry.host, self.url);
        let mut uses = Vec::new();
        if let Some(basic) = &self.basic_auth {
            uses.extend([(at("basicAuth.usernameFrom"), &basic.username_from), (at("basicAuth.passwordFrom"), &basic.password_from)]);
        }
        if let Some(client) = &self.client_certificate {
            let (certificate, key) = (&client.certificate_from, &client.key_from);
            uses.extend([(at("clientCertificate.certificateFrom"), certificate), (at("clientCertificate.keyFrom"), key)]);
        }
        uses
    }
}

/// A user and a password.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// The user, without a colon.
    pub username_from: ValueSource,
    /// The password.
    pub password_from: ValueSource,
}

/// A certificate and its key.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertificate {
    /// The certificate and its intermediate certificates, PEM.
    pub certificate_from: ValueSource,
    /// The key of the certificate, PEM, without a password.
    pub key_from: ValueSource,
}

/// A use of a server.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// Layers and manifests by digest.
    Pull,
    /// The digest behind a tag.
    Resolve,
}
