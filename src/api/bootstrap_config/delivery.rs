//! How the data reaches the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How user data reaches cloudbase-init (`windows-bootstrap.md` §1.2).
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Channel {
    /// A config drive image; the limit is the Kubernetes Secret that holds the data, 1 MiB.
    #[default]
    ConfigDrive,
    /// One VMware guestinfo value, 64 KiB.
    GuestInfo,
}
