//! User data: a small loader that contains the payload, which cloudbase-init runs with PowerShell. On drives the payload is a file beside the
//! loader ([`split`]): with script block logging Windows keeps the text of every script in its event log, and the payload holds secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::archive::{self, Prefix};
use crate::api::bootstrap_config::Channel;
use crate::bootstrap::digest::sha256;
use crate::bootstrap::error::{DataSize, RenderError};
use crate::bootstrap::runner::{LOADER, LOADER_NAME, SCRIPTS};

/// The first line of user data. cloudbase-init runs data that starts with exactly these bytes with 64-bit PowerShell.
pub const FIRST_LINE: &str = "#ps1_sysnative";
/// The text before the archive in the loader: the start of a here-string, which PowerShell takes literally.
pub(super) const ARCHIVE_START: &str = "\n$archive = @'\n";
pub(super) const ARCHIVE_END: &str = "\n'@\n";
/// The text before the digest of the archive, in the loader of a drive, which has the archive beside it.
pub(super) const DIGEST_START: &str = "\n$archiveDigest = '";
/// The file on a drive that holds the archive.
pub const ARCHIVE_FILE: &str = "payload.gz";
/// The base64 characters per line.
const LINE: usize = 120;
/// The size limit of a Secret. All its values may take 1 MiB; the rest is for the small values beside the data.
const SECRET_LIMIT: usize = (1 << 20) - 16 * 1024;
/// VMware's `GUESTMSG_MAX_IN_SIZE` for one value.
const GUESTINFO_LIMIT: usize = 64 << 10;

/// The value of the bootstrap Secret: the script. For channels with little space it is gzipped, which cloudbase-init detects. It contains
/// the join token, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(Vec<u8>);

impl UserData {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns how much of the channel the data takes.
    pub fn size(&self, channel: Channel) -> DataSize {
        let bytes = self.0.len();
        match channel {
            Channel::ConfigDrive | Channel::NoCloud | Channel::Unattend => {
                DataSize { bytes, limit: SECRET_LIMIT, limit_name: "Kubernetes Secret, 1 MiB in all its values" }
            }
            // VMware counts the base64 form.
            Channel::GuestInfo => DataSize { bytes: bytes.div_ceil(3) * 4, limit: GUESTINFO_LIMIT, limit_name: "VMware guestinfo value, 64 KiB" },
        }
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// Returns the archive in user data, if the user data is ours and not gzipped as a whole.
pub(super) fn archive_of(user_data: &[u8]) -> Option<Vec<u8>> {
    let (_, rest) = std::str::from_utf8(user_data).ok()?.split_once(ARCHIVE_START)?;
    let (encoded, _) = rest.split_once(ARCHIVE_END)?;
    let packed: Vec<u8> = encoded.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    STANDARD.decode(packed).ok()
}

/// Returns the loader and the archive of user data, for drives. `None`: the user data is not ours and stays unchanged.
pub(super) fn split(user_data: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let archive = archive_of(user_data)?;
    let digest = format!("{DIGEST_START}{}'\n", sha256(&archive));
    Some((LOADER.replacen(&format!("{DIGEST_START}'\n"), &digest, 1).into_bytes(), archive))
}

/// Returns the files of a drive: the user data under its name, and the archive if it is a file of its own.
pub(super) fn files(name: &str, user_data: &[u8]) -> BTreeMap<String, Vec<u8>> {
    match split(user_data) {
        Some((loader, archive)) => BTreeMap::from([(name.to_owned(), loader), (ARCHIVE_FILE.to_owned(), archive)]),
        None => BTreeMap::from([(name.to_owned(), user_data.to_vec())]),
    }
}

/// The runner, which is the same in each payload.
static RUNNER: LazyLock<Prefix> = LazyLock::new(|| {
    let scripts = SCRIPTS.into_iter().chain([(LOADER_NAME, LOADER.as_str())]);
    Prefix::new(scripts.map(|(name, script)| (format!("runner/{name}"), script.as_bytes())))
});

/// Returns the loader with the payload, which is the runner and these files, checked against the limit of the channel.
pub(in crate::bootstrap) fn user_data(files: &BTreeMap<String, Vec<u8>>, channel: Channel) -> Result<UserData, RenderError> {
    let encoded = STANDARD.encode(archive::pack(&RUNNER, files));
    let lines: Vec<&str> = encoded.as_bytes().chunks(LINE).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let script =
        LOADER.replacen(&format!("{ARCHIVE_START}{ARCHIVE_END}"), &format!("{ARCHIVE_START}{}{ARCHIVE_END}", lines.join("\n")), 1).into_bytes();
    let data = UserData(if channel == Channel::GuestInfo { archive::gzip(&script) } else { script });
    let size = data.size(channel);
    if size.bytes > size.limit {
        let remedy = match channel {
            Channel::GuestInfo => "make spec.files smaller, put large files into the image, or use the channel ConfigDrive or NoCloud",
            Channel::ConfigDrive | Channel::NoCloud | Channel::Unattend => "make spec.files smaller, or put large files into the image",
        };
        return Err(RenderError::TooLarge { channel, size, remedy });
    }
    Ok(data)
}
