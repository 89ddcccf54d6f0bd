//! The drive for cloudbase-init's NoCloudConfigDriveService. `meta-data` is JSON, which is also YAML: a host name of digits stays a string.

use std::collections::BTreeMap;

use super::instance::Instance;
use super::user_data;

/// The volume label that cloudbase-init searches for.
pub const LABEL: &str = "cidata";
pub const META_DATA: &str = "meta-data";
pub const USER_DATA: &str = "user-data";

pub(super) fn files(instance: &Instance) -> BTreeMap<String, Vec<u8>> {
    let mut files = user_data::files(USER_DATA, instance.user_data);
    files.insert(META_DATA.to_owned(), instance.meta_data().to_string().into_bytes());
    files
}
