//! Windows itself.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How Windows itself is set up.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Windows {
    /// Size of the fixed page file on C:, in MiB. Default: a quarter of the memory, from 4096 to 16384, at most 15% of the system disk.
    #[serde(default, rename = "pageFileMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub page_file_mib: Option<i32>,
}

/// A release of Windows Server.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum WindowsRelease {
    #[serde(rename = "2019")]
    Server2019,
    #[default]
    #[serde(rename = "2022")]
    Server2022,
    #[serde(rename = "2025")]
    Server2025,
}
