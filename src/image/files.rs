//! The files of the CD.

use super::answer::{self, SCRIPT_NAME};
use super::installation::Installation;

/// Windows Setup searches for this name at the top of each CD.
pub const ANSWER_NAME: &str = "Autounattend.xml";
pub(super) const SCRIPT: &str = include_str!("install.ps1");
/// The configurations of cloudbase-init. The script installs cloudbase-init if they exist.
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("cloudbase-init.conf", include_str!("../../docs/image/cloudbase-init.conf")),
    ("cloudbase-init-unattend.conf", include_str!("../../docs/image/cloudbase-init-unattend.conf")),
];

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
}
