//! The config drive: what cloudbase-init's ConfigDriveService looks for (`windows-bootstrap.md` §1.2).

use std::collections::BTreeMap;

use serde_json::json;

use super::iso;
use crate::api::name::HostName;
use crate::vm::ConfigDrive;

/// Volume label that cloudbase-init searches for.
pub const LABEL: &str = "config-2";
pub const META_DATA: &str = "openstack/latest/meta_data.json";
pub const USER_DATA: &str = "openstack/latest/user_data";

/// What one machine is told at its first start.
pub struct Instance<'a> {
    /// Unique for the machine and its data. Without one cloudbase-init keeps no markers and runs everything at every start.
    pub instance_id: &'a str,
    /// cloudbase-init gives Windows this name, before the user data runs.
    pub host_name: Option<&'a HostName>,
    pub user_data: &'a [u8],
}

/// The image. Same instance, same bytes.
pub fn build(instance: &Instance) -> ConfigDrive {
    let mut meta = json!({ "uuid": instance.instance_id });
    if let (Some(name), Some(fields)) = (instance.host_name, meta.as_object_mut()) {
        fields.insert("hostname".into(), name.as_str().into());
        fields.insert("name".into(), name.as_str().into());
    }
    let files = BTreeMap::from([(META_DATA.to_owned(), meta.to_string().into_bytes()), (USER_DATA.to_owned(), instance.user_data.to_vec())]);
    ConfigDrive(iso::image(LABEL, &files))
}
