//! The channels by which the bootstrap data reaches the machine, and the programs that start it there.

use std::fmt;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::ValueSource;

/// Key in the bootstrap Secret: the answer file for Windows Setup; only in the channel `Unattend`.
pub const ANSWER_KEY: &str = "unattend.xml";
/// Key in the bootstrap Secret: name of the channel by which the data reaches the machine.
pub const CHANNEL_KEY: &str = "channel";

/// The channel that carries the data into Windows, which also determines the program that picks up the data there. The data is the same
/// in all channels.
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
    /// Windows Setup reads an answer file on a drive with the label `unattendCD`: for images without cloudbase-init. At most 1 MiB.
    Unattend,
}

impl Channel {
    pub const ALL: [Self; 4] = [Self::ConfigDrive, Self::NoCloud, Self::GuestInfo, Self::Unattend];

    /// The name in manifests and in the bootstrap Secret.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigDrive => "ConfigDrive",
            Self::NoCloud => "NoCloud",
            Self::GuestInfo => "GuestInfo",
            Self::Unattend => "Unattend",
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

/// Settings for Windows Setup in addition to the machine's name.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Unattend {
    /// Language of keyboard, formats and user interface, which the image must have. Default: `en-US`.
    #[serde(default = "english")]
    #[schemars(length(min = 2, max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){1,3}$')").message("must be the name of a language with its country, e.g. en-US"))]
    pub locale: String,
    /// Time zone, by its Windows name (`tzutil /l`). Default: `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-+A-Za-z0-9. ()]*$')").message("must be the name of a time zone in Windows, e.g. W. Europe Standard Time"))]
    pub time_zone: String,
    /// Password of the built-in account Administrator. Default: a random one that is not stored anywhere, and the account is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub administrator_password_from: Option<ValueSource>,
    /// Product key. Default: that of the image, and Windows does not activate itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_key_from: Option<ValueSource>,
}

impl Default for Unattend {
    fn default() -> Self {
        Self { locale: english(), time_zone: utc(), administrator_password_from: None, product_key_from: None }
    }
}

fn english() -> String {
    "en-US".into()
}

fn utc() -> String {
    "UTC".into()
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
