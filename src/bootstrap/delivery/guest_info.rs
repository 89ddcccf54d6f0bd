//! The values for cloudbase-init's VMwareGuestInfoService: keys of the VM's extra configuration.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::instance::Instance;

pub const META_DATA: &str = "guestinfo.metadata";
pub const USER_DATA: &str = "guestinfo.userdata";
/// All keys that a machine gets.
pub const KEYS: [&str; 4] = [META_DATA, "guestinfo.metadata.encoding", USER_DATA, "guestinfo.userdata.encoding"];

/// The user data of this channel is already gzipped ([`crate::bootstrap::UserData`]); it only needs base64.
pub(super) fn values(instance: &Instance) -> BTreeMap<String, String> {
    let encoded = [(META_DATA, instance.meta_data().to_string().into_bytes()), (USER_DATA, instance.user_data.to_vec())];
    encoded
        .into_iter()
        .flat_map(|(key, bytes)| [(key.to_owned(), STANDARD.encode(bytes)), (format!("{key}.encoding"), "base64".to_owned())])
        .collect()
}
