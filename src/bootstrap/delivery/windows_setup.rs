//! What Windows Setup and our own first script look for in images without cloudbase-init. All files are at the top: Setup looks
//! nowhere else, and a KubeVirt volume of kind `sysprep` has no directories.

use std::collections::BTreeMap;

use super::Instance;
use crate::bootstrap::delivery::unattend::{FIRST_BOOT, FIRST_BOOT_NAME};

/// Volume label by which our first script knows the drive; the one that KubeVirt gives to its `sysprep` volumes.
pub const LABEL: &str = "unattendCD";
/// For all passes after windowsPE this is the only name that Setup knows.
pub const ANSWER: &str = "unattend.xml";
/// The loader is a script as it is: its first line is a comment to PowerShell.
pub const USER_DATA: &str = "capw.ps1";
/// As in the drive of NoCloud.
pub const META_DATA: &str = "meta-data";

pub(super) fn files(instance: &Instance) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        (ANSWER.to_owned(), instance.answer.to_vec()),
        (USER_DATA.to_owned(), instance.user_data.to_vec()),
        (META_DATA.to_owned(), instance.meta_data().to_string().into_bytes()),
        (FIRST_BOOT_NAME.to_owned(), FIRST_BOOT.as_bytes().to_vec()),
    ])
}
