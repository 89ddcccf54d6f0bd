//! The data of one machine, and its identity for cloudbase-init.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::name::{HostName, VmUuid};

/// The data of one machine.
pub struct Instance<'a> {
    pub vm: VmUuid,
    /// The name that Windows gets before the user data runs.
    pub host_name: Option<&'a HostName>,
    /// The user data in the bootstrap Secret.
    pub user_data: &'a [u8],
    /// The answer file for Windows Setup; only used in the channel `Unattend`.
    pub answer: &'a [u8],
}

impl Instance<'_> {
    /// Returns an id that is unique to the machine and its data. cloudbase-init records its finished work under this id: it never repeats work
    /// for the same id, and without an id it repeats everything at every start.
    pub fn id(&self) -> Uuid {
        Uuid::new_v5(&self.vm.0, self.user_data)
    }

    /// Returns the metadata. cloudbase-init reads the host name only from `local-hostname` (cloudbase-init#155).
    pub(super) fn meta_data(&self) -> Value {
        let mut meta = json!({ "instance-id": self.id() });
        if let (Some(name), Some(fields)) = (self.host_name, meta.as_object_mut()) {
            fields.insert("local-hostname".into(), name.as_str().into());
        }
        meta
    }
}
