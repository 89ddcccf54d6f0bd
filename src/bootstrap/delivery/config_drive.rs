//! The drive for cloudbase-init's ConfigDriveService: OpenStack's layout.

use std::collections::BTreeMap;

use serde_json::json;

use super::instance::Instance;
use super::user_data;

/// The volume label that cloudbase-init searches for.
pub const LABEL: &str = "config-2";
pub const META_DATA: &str = "openstack/latest/meta_data.json";
pub const USER_DATA: &str = "openstack/latest/user_data";

pub(super) fn files(instance: &Instance) -> BTreeMap<String, Vec<u8>> {
    let mut meta = json!({ "uuid": instance.id() });
    if let (Some(name), Some(fields)) = (instance.host_name, meta.as_object_mut()) {
        fields.insert("hostname".into(), name.as_str().into());
        fields.insert("name".into(), name.as_str().into());
    }
    let mut files = user_data::files(USER_DATA, instance.user_data);
    files.insert(META_DATA.to_owned(), meta.to_string().into_bytes());
    files
}
