//! The settings of containerd.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::Registry;

/// Settings of containerd.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Containerd {
    /// Release line of containerd in the image; it decides the schema of `config.toml`. Default: `2`.
    #[serde(default)]
    pub line: ContainerdLine,
    /// The sandbox ("pause") image. Default: the one for the node's Windows release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._:/@]*$') && !self.contains('://')").message("must be an image reference without scheme and blanks, e.g. registry.k8s.io/pause:3.10.1"))]
    pub sandbox_image: Option<String>,
    /// Servers from which images are pulled instead of, or before, their own registries. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["host".into()]))]
    pub registries: Vec<Registry>,
    /// Directory of images, layers and containers, e.g. `D:\containerd`: on a drive with 100 GB and more. Default: `C:\ProgramData\containerd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 4, max = 100))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[-A-Za-z0-9._ ]*[-A-Za-z0-9_])+$')"#).message("must be an absolute Windows path of plain characters, e.g. D:\\containerd"))]
    pub directory: Option<String>,
    /// Minutes without progress after which an image pull is aborted, 1 to 240. Default: 30, because Windows layers take gigabytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 240))]
    pub pull_progress_timeout_minutes: Option<i32>,
    /// Size of the writable layer of a container, in GiB, 1 to 1024. Default: 20, the default of Windows.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "scratchSizeGiB")]
    #[schemars(range(min = 1, max = 1024))]
    pub scratch_size_gib: Option<i32>,
    /// Size of the virtual machine of a pod with Hyper-V isolation. Pods choose that isolation with a RuntimeClass whose handler is `runhcs-wcow-hypervisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyper_v: Option<UtilityVm>,
    /// `address:port` where containerd serves Prometheus metrics, e.g. `127.0.0.1:1338`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9.]+|\\\\[[0-9a-fA-F:]+\\\\]):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$') && isIP(self.substring(0, self.lastIndexOf(':')).replace('[', '').replace(']', ''))").message("must be an IP address and a port, IPv6 in brackets, e.g. 127.0.0.1:1338"))]
    pub metrics_address: Option<String>,
}

/// The RuntimeClass handler of containers that share the node's kernel.
pub const PROCESS_HANDLER: &str = "runhcs-wcow-process";
/// The RuntimeClass handler of pods with their own virtual machine.
pub const HYPER_V_HANDLER: &str = "runhcs-wcow-hypervisor";

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

/// The virtual machine of a pod with Hyper-V isolation; annotations of the pod take precedence.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct UtilityVm {
    /// Processors, 1 to 64. Default: 2, or fewer if the machine has fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub processors: Option<i32>,
    /// Memory in MiB, 512 to 1048576. Default: 1024.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "memoryMiB")]
    #[schemars(range(min = 512, max = 1_048_576))]
    pub memory_mib: Option<i32>,
}
