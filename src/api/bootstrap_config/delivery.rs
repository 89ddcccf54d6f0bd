//! How the data reaches the machine, and who starts it there.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The channel that carries the data into Windows, and with it the program there that picks it up (`windows-bootstrap.md` §1.2).
/// The data is the same in all of them.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Channel {
    /// cloudbase-init reads a drive with the label `config-2` (its ConfigDriveService). At most 1 MiB, the size of a Kubernetes Secret.
    #[default]
    ConfigDrive,
    /// cloudbase-init reads a drive with the label `cidata` (its NoCloudConfigDriveService, which the image must name in
    /// `metadata_services`). At most 1 MiB.
    NoCloud,
    /// cloudbase-init reads VMware's guestinfo (its VMwareGuestInfoService). At most 64 KiB, gzip and base64 included.
    GuestInfo,
}

impl Channel {
    pub const ALL: [Self; 3] = [Self::ConfigDrive, Self::NoCloud, Self::GuestInfo];

    /// As it is written in manifests and in the bootstrap Secret.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigDrive => "ConfigDrive",
            Self::NoCloud => "NoCloud",
            Self::GuestInfo => "GuestInfo",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.name() == name)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_manifests() {
        for channel in Channel::ALL {
            assert_eq!(serde_json::to_value(channel).unwrap(), channel.name());
            assert_eq!(Channel::parse(channel.name()), Some(channel));
        }
        assert_eq!(Channel::parse("configdrive"), None);
    }
}
