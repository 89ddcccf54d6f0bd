//! The flag for guests of kind Wine. A program without the feature `wine-guests`, as releases are, does not have it.

use std::path::PathBuf;

use clap::Args;

/// The flag of `capw run` and `capw guests`.
#[derive(Args, Debug)]
pub struct WinePrograms {
    /// Folder of the Windows programs and of the prepared Wine prefix for simulated guests of kind Wine; e2e/tools/windows/build.sh fills one.
    #[cfg(feature = "wine-guests")]
    #[arg(long, value_name = "DIR", env = "CAPW_WINE_PROGRAMS")]
    wine_programs: Option<PathBuf>,
}

impl WinePrograms {
    /// The folder, if there is one.
    #[cfg(feature = "wine-guests")]
    pub fn folder(self) -> Option<PathBuf> {
        self.wine_programs
    }

    /// Returns no folder.
    #[cfg(not(feature = "wine-guests"))]
    pub fn folder(self) -> Option<PathBuf> {
        None
    }
}
