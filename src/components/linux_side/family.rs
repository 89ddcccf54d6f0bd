//! The result of reading a family of networks.

use super::source::Origin;

/// The result of reading one family of networks.
pub(super) struct Family<S> {
    pub(super) version: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) vni: Option<u32>,
    pub(super) port: Option<u32>,
    pub(super) from: Vec<Origin>,
    pub(super) settings: S,
}

impl Family<()> {
    /// A family without settings that matter.
    pub(super) fn plain(version: Option<String>, mode: Option<String>) -> Self {
        Self { version, mode, vni: None, port: None, from: Vec::new(), settings: () }
    }
}

impl<S> Family<S> {
    /// Returns the same result, with its settings converted by `into`.
    pub(super) fn map<T>(self, into: impl FnOnce(S) -> T) -> Family<T> {
        Family { version: self.version, mode: self.mode, vni: self.vni, port: self.port, from: self.from, settings: into(self.settings) }
    }
}
