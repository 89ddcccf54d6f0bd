//! The seeds of the machines that the tests create.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bootstrap::delivery::guest_info;
use crate::vm::{Seed, SeedKind};

pub(super) fn seed(kind: SeedKind) -> Seed {
    of_bytes(kind, &(0..70_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>())
}

pub(super) fn of_bytes(kind: SeedKind, bytes: &[u8]) -> Seed {
    match kind {
        SeedKind::Drive => Seed::Drive { label: "cidata", files: BTreeMap::from([("user-data".to_owned(), bytes.to_vec())]) },
        SeedKind::GuestInfo => Seed::GuestInfo(guest_info::KEYS.map(|key| (key.to_owned(), STANDARD.encode(bytes))).into()),
    }
}
