//! User data: a small loader with the payload inside, which cloudbase-init runs with PowerShell. The limits of the channels are in
//! `windows-bootstrap.md` §1.2.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::archive;
use super::error::RenderError;
use super::runner::LOADER;
use crate::api::bootstrap_config::Channel;

/// cloudbase-init runs what starts with exactly these bytes with 64-bit PowerShell.
pub const FIRST_LINE: &str = "#ps1_sysnative";
/// Around the archive in the loader: a string that PowerShell takes as it is.
pub(super) const ARCHIVE_START: &str = "\n$archive = @'\n";
pub(super) const ARCHIVE_END: &str = "\n'@\n";
/// Characters of base64 per line.
const LINE: usize = 120;
/// A Secret may hold 1 MiB in all its values; the rest is for the small ones beside the data.
const SECRET_LIMIT: usize = (1 << 20) - 16 * 1024;
/// `GUESTMSG_MAX_IN_SIZE` of VMware, for one value.
const GUESTINFO_LIMIT: usize = 64 << 10;

/// What the bootstrap Secret holds: the script, gzipped for a channel that is short of room; cloudbase-init sees that by itself. It
/// holds the join token: never shown.
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

/// How much of its channel the data takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes as the channel counts them.
    pub size: usize,
    pub limit: usize,
    /// Whose limit it is.
    pub name: &'static str,
}

impl Room {
    pub fn of(channel: Channel, data: &UserData) -> Self {
        let size = data.0.len();
        match channel {
            Channel::ConfigDrive | Channel::NoCloud | Channel::Unattend => {
                Self { size, limit: SECRET_LIMIT, name: "Kubernetes Secret, 1 MiB in all its values" }
            }
            // VMware counts what is set: base64.
            Channel::GuestInfo => Self { size: size.div_ceil(3) * 4, limit: GUESTINFO_LIMIT, name: "VMware guestinfo value, 64 KiB" },
        }
    }
}

/// Loader and payload, checked against the limit of the channel.
pub(super) fn user_data(files: &BTreeMap<String, Vec<u8>>, channel: Channel) -> Result<UserData, RenderError> {
    let encoded = STANDARD.encode(archive::pack(files));
    let lines: Vec<&str> = encoded.as_bytes().chunks(LINE).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let script = LOADER.replacen(&format!("{ARCHIVE_START}{ARCHIVE_END}"), &format!("{ARCHIVE_START}{}{ARCHIVE_END}", lines.join("\n")), 1).into_bytes();
    let data = UserData(if channel == Channel::GuestInfo { archive::gzip(&script) } else { script });
    let room = Room::of(channel, &data);
    if room.size > room.limit {
        let remedy = match channel {
            Channel::GuestInfo => "make spec.files smaller, put large files into the image, or use the channel ConfigDrive or NoCloud",
            Channel::ConfigDrive | Channel::NoCloud | Channel::Unattend => "make spec.files smaller, or put large files into the image",
        };
        return Err(RenderError::TooLarge { channel, room, remedy });
    }
    Ok(data)
}
