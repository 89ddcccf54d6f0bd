//! The drive for Windows Setup and our own first-boot script, for images without cloudbase-init. All files are at the top: Setup searches
//! only there, and a KubeVirt volume of kind `sysprep` has no directories.

use std::collections::BTreeMap;

use super::instance::Instance;
use super::unattend::{FIRST_BOOT, FIRST_BOOT_NAME};
use super::user_data;

/// The volume label by which our first-boot script finds the drive; KubeVirt gives it to its `sysprep` volumes.
pub const LABEL: &str = "unattendCD";
/// The only name that Setup searches for in the passes after windowsPE.
pub const ANSWER: &str = "unattend.xml";
/// The loader's file. It runs unchanged: its first line is a comment in PowerShell.
pub const USER_DATA: &str = "capw.ps1";
/// The metadata, the same file as on a NoCloud drive.
pub const META_DATA: &str = "meta-data";

pub(super) fn files(instance: &Instance) -> BTreeMap<String, Vec<u8>> {
    let mut files = user_data::files(USER_DATA, instance.user_data);
    files.extend([
        (ANSWER.to_owned(), instance.answer.to_vec()),
        (META_DATA.to_owned(), instance.meta_data().to_string().into_bytes()),
        (FIRST_BOOT_NAME.to_owned(), FIRST_BOOT.as_bytes().to_vec()),
    ]);
    files
}
