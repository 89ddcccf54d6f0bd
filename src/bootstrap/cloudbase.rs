//! User data for cloudbase-init: a small loader with the payload inside. Its limits are in `windows-bootstrap.md` §1.2.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::archive;
use super::error::RenderError;
use crate::api::bootstrap_config::Channel;

/// cloudbase-init runs what starts with exactly these bytes with 64-bit PowerShell.
pub const FIRST_LINE: &str = "#ps1_sysnative";
/// Around the archive in the loader: a string that PowerShell takes as it is.
pub(super) const ARCHIVE_START: &str = "\n$archive = @'\n";
pub(super) const ARCHIVE_END: &str = "\n'@\n";
/// Where the archive goes.
const PLACE: &str = "@ARCHIVE@";
const LOADER: &str = include_str!("runner/loader.ps1");
/// Characters of base64 per line.
const LINE: usize = 120;
/// A Secret may hold 1 MiB in all its values; 64 bytes are for the value `format`.
pub const SECRET_LIMIT: usize = (1 << 20) - 64;
/// `GUESTMSG_MAX_IN_SIZE` of VMware.
pub const GUESTINFO_LIMIT: usize = 64 << 10;

/// The script. It holds the join token: never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(Vec<u8>);

impl UserData {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// Loader and payload, checked against the limit of the channel.
pub(super) fn user_data(files: &BTreeMap<String, Vec<u8>>, channel: Channel) -> Result<UserData, RenderError> {
    let encoded = STANDARD.encode(archive::pack(files));
    let lines: Vec<&str> = encoded.as_bytes().chunks(LINE).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let data = UserData(LOADER.replacen(PLACE, &lines.join("\n"), 1).into_bytes());
    let remedy = "make spec.files smaller, or put large files into the image";
    match channel {
        Channel::ConfigDrive => {
            let size = data.0.len();
            (size <= SECRET_LIMIT).then_some(()).ok_or(RenderError::TooLarge {
                channel: "ConfigDrive",
                limit_name: "Kubernetes Secret, 1 MiB",
                limit: SECRET_LIMIT,
                size,
                remedy,
            })?;
        }
        Channel::GuestInfo => {
            let size = guestinfo_value(&data).len();
            (size <= GUESTINFO_LIMIT).then_some(()).ok_or(RenderError::TooLarge {
                channel: "GuestInfo",
                limit_name: "VMware guestinfo value, 64 KiB",
                limit: GUESTINFO_LIMIT,
                size,
                remedy,
            })?;
        }
    }
    Ok(data)
}

/// The value of `guestinfo.userdata` with encoding `gzip+base64`.
pub fn guestinfo_value(data: &UserData) -> String {
    STANDARD.encode(archive::gzip(&data.0))
}
