//! Windows itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
