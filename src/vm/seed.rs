//! The data for the first start of a VM.

use std::collections::BTreeMap;
use std::fmt;

/// The data for a VM's first start. It contains the join token and is never logged.
#[derive(Clone, PartialEq, Eq)]
pub enum Seed {
    /// The files of a CD to attach; its label names the program that reads it.
    Drive { label: &'static str, files: BTreeMap<String, Vec<u8>> },
    /// VMware's extra configuration: values by key, e.g. `guestinfo.userdata`.
    GuestInfo(BTreeMap<String, String>),
}

/// How a seed gets into a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedKind {
    Drive,
    GuestInfo,
}

impl Seed {
    pub fn kind(&self) -> SeedKind {
        match self {
            Self::Drive { .. } => SeedKind::Drive,
            Self::GuestInfo(_) => SeedKind::GuestInfo,
        }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drive { label, files } => write!(f, "Drive({label}: {:?})", files.keys()),
            Self::GuestInfo(values) => f.debug_tuple("GuestInfo").field(&values.keys()).finish(),
        }
    }
}
