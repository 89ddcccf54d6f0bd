//! The choices for an image.

use secrecy::SecretString;

use crate::api::bootstrap_config::WindowsRelease;
use crate::api::machine::FirmwareType;

/// The installation that becomes an image.
#[derive(Debug)]
pub struct Installation {
    pub release: WindowsRelease,
    /// The name of the image on the medium.
    pub edition: String,
    pub firmware: FirmwareType,
    /// Whether machines get their data through cloudbase-init; otherwise they get it through Windows Setup.
    pub cloudbase_init: bool,
    /// The language of the user interface.
    pub language: String,
    /// The locale of keyboard and formats.
    pub locale: String,
    /// The Windows name of the time zone.
    pub time_zone: String,
    /// The password of Administrator, until the image is sealed.
    pub password: SecretString,
    pub product_key: Option<SecretString>,
}

impl Installation {
    /// Returns the folder of a driver, as virtio-win names it.
    pub(super) fn driver(&self, name: &str) -> String {
        let release = match self.release {
            WindowsRelease::Server2019 => "2k19",
            WindowsRelease::Server2022 => "2k22",
            WindowsRelease::Server2025 => "2k25",
        };
        format!("{name}/{release}/amd64")
    }
}
