//! The seed of a machine, for each channel.

use std::collections::BTreeMap;

use super::instance::Instance;
use super::{config_drive, guest_info, iso, no_cloud, windows_setup};
use crate::api::bootstrap_config::Channel;
use crate::vm::Seed;

/// Builds the seed of a machine. The same instance and channel give the same bytes.
pub fn build(channel: Channel, instance: &Instance) -> Seed {
    match channel {
        Channel::ConfigDrive => drive(config_drive::LABEL, config_drive::files(instance)),
        Channel::NoCloud => drive(no_cloud::LABEL, no_cloud::files(instance)),
        Channel::GuestInfo => Seed::GuestInfo(guest_info::values(instance)),
        Channel::Unattend => drive(windows_setup::LABEL, windows_setup::files(instance)),
    }
}

pub(super) fn drive(label: &'static str, files: BTreeMap<String, Vec<u8>>) -> Seed {
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
