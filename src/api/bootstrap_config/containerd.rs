//! What containerd is told.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What containerd is told.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Containerd {
    /// Line of containerd in the image; it decides the schema of `config.toml`. Default: `2`.
    #[serde(default)]
    pub line: ContainerdLine,
    /// The sandbox ("pause") image. Default: the one that has the Windows release of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._:/@]*$') && !self.contains('://')").message("must be an image reference without scheme and blanks, e.g. registry.k8s.io/pause:3.10.1"))]
    pub sandbox_image: Option<String>,
}

/// A release line of containerd.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ContainerdLine {
    /// 1.7: `version = 2` of the configuration schema.
    #[serde(rename = "1.7")]
    V1,
    /// 2.x: `version = 3`.
    #[default]
    #[serde(rename = "2")]
    V2,
}
