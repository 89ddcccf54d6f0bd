//! The objects of a cluster to list.

/// All objects of a kind, in all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listing {
    /// The API group; empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    /// A label selector; empty for all objects.
    pub labels: &'static str,
}

impl Listing {
    pub const CONFIG_MAPS: Self = Self::new("", "v1", "ConfigMap", "configmaps");

    pub const fn new(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { group, version, kind, plural, labels: "" }
    }

    pub const fn with_labels(self, labels: &'static str) -> Self {
        Self { labels, ..self }
    }

    /// The API version, e.g. `apps/v1`; `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}
