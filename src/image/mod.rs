//! The files that create a Windows image: the answer file of an unattended installation, and the script that completes and seals it
//! (docs/hypervisors/libvirt-image.md). Pure: the same installation gives the same files.

mod answer;

use secrecy::SecretString;

use crate::api::bootstrap_config::WindowsRelease;
use crate::api::machine::FirmwareType;

/// Windows Setup looks for this name at the top of each CD.
pub const ANSWER_NAME: &str = "Autounattend.xml";
const SCRIPT_NAME: &str = "install.ps1";
const SCRIPT: &str = include_str!("install.ps1");
/// The configurations of cloudbase-init. The script installs cloudbase-init if they exist.
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("cloudbase-init.conf", include_str!("../../docs/image/cloudbase-init.conf")),
    ("cloudbase-init-unattend.conf", include_str!("../../docs/image/cloudbase-init-unattend.conf")),
];

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
    /// Returns the name and text of each file at the top of the CD. The first file holds the password.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        let mut files = vec![(ANSWER_NAME, answer::answer(self)), (SCRIPT_NAME, SCRIPT.to_owned())];
        if self.cloudbase_init {
            files.extend(CONFIGURATIONS.map(|(name, text)| (name, text.to_owned())));
        }
        files
    }

    /// Returns the files of other projects that must be beside these files on the CD.
    pub fn others(&self) -> Vec<String> {
        let mut others: Vec<String> = answer::DRIVERS.map(|driver| self.driver(driver)).into();
        others.extend(["virtio-win-gt-x64.msi", "guest-agent/qemu-ga-x86_64.msi"].map(str::to_owned));
        if self.cloudbase_init {
            others.push("CloudbaseInitSetup_x64.msi".to_owned());
        }
        others
    }

    /// Returns the folder of a driver, as virtio-win names it.
    fn driver(&self, name: &str) -> String {
        let release = match self.release {
            WindowsRelease::Server2019 => "2k19",
            WindowsRelease::Server2022 => "2k22",
            WindowsRelease::Server2025 => "2k25",
        };
        format!("{name}/{release}/amd64")
    }
}

#[cfg(test)]
mod tests;
