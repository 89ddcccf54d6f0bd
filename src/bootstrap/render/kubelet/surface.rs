//! Fields, flags and feature gates of the kubelet in each minor, and which of them have a meaning on Windows, in two data files.
//!
//! `surface.json` is generated from the sources of Kubernetes by `e2e/tools/kubelet-surface`; `windows.json` is written by hand.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// All fields, flags and feature gates, with the minors that have them.
#[derive(Deserialize)]
pub(in crate::bootstrap) struct Surface {
    /// The newest minor whose flags and gates are known; later minors are assumed to have the same.
    programs: u32,
    fields: BTreeMap<String, Span>,
    flags: BTreeMap<String, Span>,
    /// The stages of each gate, by the minor from which they apply, e.g. `beta on`, `ga on locked`, `gone`.
    gates: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
pub(in crate::bootstrap) struct Span {
    /// The type `bool`, `int`, `number`, `string`, `duration`, `list`, `map`, `object` or `any`; empty for a flag.
    #[serde(default, rename = "type")]
    pub kind: String,
    since: u32,
    until: u32,
}

/// Whether a name exists in a minor.
pub(in crate::bootstrap) enum Known<'a> {
    Here(&'a Span),
    /// The name exists from that minor on.
    Later(u32),
    /// The name existed until that minor.
    Earlier(u32),
    Never,
}

/// A feature gate in one minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bootstrap) struct Gate {
    pub enabled: bool,
    pub locked: bool,
    pub deprecated: bool,
}

/// The particularities of Windows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::bootstrap) struct Windows {
    /// The fields without effect, and the reason.
    pub linux_only: BTreeMap<String, String>,
    /// The fields that need the gate WindowsCPUAndMemoryAffinity.
    pub resource_managers: Vec<String>,
    /// The fields that hold a path on the node.
    pub paths: Vec<String>,
    /// The gates for things that only Linux has.
    pub quota_gates: Vec<String>,
    /// The fields that CAPW or kubeadm sets, and what to use instead.
    pub owned_fields: BTreeMap<String, String>,
    pub owned_flags: BTreeMap<String, String>,
    /// The flags of older versions, and their replacements.
    pub removed_flags: BTreeMap<String, String>,
    /// The fields of the cluster's configuration for Linux that stop or mislead a kubelet on Windows.
    reset_fields: Vec<String>,
}

// Both files are built in; tests prove that they can be read.
static SURFACE: LazyLock<Option<Surface>> = LazyLock::new(|| serde_json::from_str(include_str!("surface.json")).ok());
static WINDOWS: LazyLock<Option<Windows>> = LazyLock::new(|| serde_json::from_str(include_str!("windows.json")).ok());

pub(in crate::bootstrap) fn surface() -> Option<&'static Surface> {
    SURFACE.as_ref()
}

pub(in crate::bootstrap) fn windows() -> Option<&'static Windows> {
    WINDOWS.as_ref()
}

/// Returns the fields that our patch removes from the cluster's configuration in that minor.
pub(in crate::bootstrap) fn reset_fields(minor: u32) -> Vec<&'static str> {
    let (Some(surface), Some(windows)) = (surface(), windows()) else { return Vec::new() };
    let here = |field: &&str| matches!(surface.field(field, minor), Known::Here(_));
    windows.reset_fields.iter().map(String::as_str).filter(here).collect()
}

fn find<'a>(spans: &'a BTreeMap<String, Span>, name: &str, minor: u32) -> Known<'a> {
    match spans.get(name) {
        None => Known::Never,
        Some(span) if minor < span.since => Known::Later(span.since),
        Some(span) if minor > span.until => Known::Earlier(span.until),
        Some(span) => Known::Here(span),
    }
}

impl Surface {
    /// Finds a field of the KubeletConfiguration by its path, e.g. `logging.format`.
    pub fn field(&self, path: &str, minor: u32) -> Known<'_> {
        find(&self.fields, path, minor)
    }

    /// Finds a flag of the kubelet on Windows.
    pub fn flag(&self, name: &str, minor: u32) -> Known<'_> {
        find(&self.flags, name, minor.min(self.programs))
    }

    /// Returns the field with the same name as a flag.
    pub fn field_of_flag(&self, flag: &str) -> Option<&str> {
        let plain = flag.replace('-', "");
        self.fields.keys().find(|field| field.to_lowercase() == plain).map(String::as_str)
    }

    /// Returns the gate in that minor; `Err` if it does not exist there.
    pub fn gate(&self, name: &str, minor: u32) -> Result<Gate, Known<'_>> {
        let stages = self.gates.get(name).ok_or(Known::Never)?;
        let stages: Vec<(u32, &str)> = stages.iter().filter_map(|(since, stage)| Some((since.parse().ok()?, stage.as_str()))).collect();
        let now = stages.iter().rev().find(|(since, _)| *since <= minor.min(self.programs));
        match now {
            None => Err(stages.first().map_or(Known::Never, |(since, _)| Known::Later(*since))),
            Some((since, "gone")) => Err(Known::Earlier(since - 1)),
            Some((_, stage)) => {
                Ok(Gate { enabled: stage.contains(" on"), locked: stage.ends_with("locked"), deprecated: stage.starts_with("deprecated") })
            }
        }
    }
}
