//! The data for a machine's first start, in the form that its channel needs (docs/design/node-plan.md).

pub(super) mod archive;
pub mod config_drive;
pub(super) mod error;
pub mod guest_info;
pub(super) mod iso;
pub mod no_cloud;
pub mod read;
pub mod unattend;
pub(super) mod user_data;
pub mod windows_setup;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::bootstrap_config::Channel;
use crate::api::name::{HostName, VmUuid};
use crate::vm::Seed;

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
    fn meta_data(&self) -> Value {
        let mut meta = json!({ "instance-id": self.id() });
        if let (Some(name), Some(fields)) = (self.host_name, meta.as_object_mut()) {
            fields.insert("local-hostname".into(), name.as_str().into());
        }
        meta
    }
}

/// Builds the seed of a machine. The same instance and channel give the same bytes.
pub fn build(channel: Channel, instance: &Instance) -> Seed {
    match channel {
        Channel::ConfigDrive => drive(config_drive::LABEL, config_drive::files(instance)),
        Channel::NoCloud => drive(no_cloud::LABEL, no_cloud::files(instance)),
        Channel::GuestInfo => Seed::GuestInfo(guest_info::values(instance)),
        Channel::Unattend => drive(windows_setup::LABEL, windows_setup::files(instance)),
    }
}

fn drive(label: &'static str, files: BTreeMap<String, Vec<u8>>) -> Seed {
    Seed::Drive { label, files }
}

/// A seed in the form that a hypervisor attaches and its guest reads.
#[derive(Clone, PartialEq, Eq)]
pub enum SeedImage {
    /// An ISO 9660 image with Joliet names.
    Drive(Vec<u8>),
    /// The keys and values of VMware's extra configuration.
    GuestInfo(BTreeMap<String, String>),
}

impl From<&Seed> for SeedImage {
    fn from(seed: &Seed) -> Self {
        match seed {
            Seed::Drive { label, files } => Self::Drive(iso::image(label, files)),
            Seed::GuestInfo(values) => Self::GuestInfo(values.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
