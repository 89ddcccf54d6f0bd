//! The Windows nodes of a cluster, as pods see them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::bootstrap_config::{BUILD_LABEL, HYPER_V_LABEL, WindowsBootstrapConfigSpec, WindowsRelease};
use crate::components::linux_side::is_windows;
use crate::components::objects::Objects;
use crate::components::place::Place;

/// The properties of a Windows node that matter to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    pub release: WindowsRelease,
    /// Whether pods may use Hyper-V isolation.
    pub hyper_v: bool,
}

impl Host {
    /// The host that a machine with this configuration becomes.
    pub fn configured(spec: &WindowsBootstrapConfigSpec) -> Self {
        Self { release: spec.windows_release, hyper_v: spec.windows.hyper_v_isolation }
    }

    /// The Windows nodes among these objects. Nodes with a release that CAPW does not know are skipped.
    pub fn joined(objects: &[Value]) -> BTreeSet<Self> {
        Objects::new(objects).of("", "Node").iter().filter(|node| is_windows(node)).filter_map(Self::of_node).collect()
    }

    fn of_node(node: &Place<'_>) -> Option<Self> {
        let label = |key: &str| node.at("metadata").at("labels").at(key).text();
        let version = label(BUILD_LABEL)?;
        let release = WindowsRelease::ALL.into_iter().find(|release| release.version() == version)?;
        Some(Self { release, hyper_v: label(HYPER_V_LABEL).as_deref() == Some("true") })
    }
}
