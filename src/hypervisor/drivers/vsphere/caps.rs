//! The capabilities, limits and intervals of this driver.

use std::time::Duration;

use crate::hypervisor::Caps;
use crate::vm::SeedKind;

pub const CAPS: Caps = Caps {
    driver: "vsphere",
    seeds: &[SeedKind::GuestInfo, SeedKind::Drive],
    tick: Duration::from_secs(20),
    deadline: Duration::from_secs(60),
    reads: 16,
    changes: 8,
};
