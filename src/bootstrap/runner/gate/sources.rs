//! The scripts, parsed.

use std::collections::BTreeSet;

use super::world::{Source, World};
use crate::bootstrap::delivery::unattend::{FIRST_BOOT, FIRST_BOOT_NAME};
use crate::bootstrap::runner::scripts::SCRIPTS;

const LOADER: &str = include_str!("../loader.ps1");
/// The script that people run on their own Windows: docs/windows-proof.md.
const PROVE: &str = include_str!("../prove.ps1");
/// The script that runs in an installation that becomes an image.
const INSTALL: &str = include_str!("../../../image/install.ps1");

pub(in crate::bootstrap::runner) fn scripts() -> Vec<(&'static str, &'static str)> {
    SCRIPTS.into_iter().chain([("loader.ps1", LOADER), ("prove.ps1", PROVE), ("install.ps1", INSTALL), (FIRST_BOOT_NAME, FIRST_BOOT)]).collect()
}

pub(super) fn sources() -> Vec<Source> {
    scripts().into_iter().map(|(name, text)| Source::new(name, text)).collect()
}

/// Returns the names of the functions in the scripts.
pub(in crate::bootstrap::runner) fn defined() -> BTreeSet<String> {
    let sources = sources();
    let all = World { sources: sources.iter().collect() };
    all.functions().into_keys().collect()
}
