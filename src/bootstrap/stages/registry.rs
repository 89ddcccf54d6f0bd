//! Registry values that repair a release of Windows.

use std::sync::LazyLock;

use serde::Deserialize;

use super::builder::{PlanBuilder, item, why};
use crate::api::bootstrap_config::WindowsRelease;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::plan::{Kind, RegistryData};
use crate::vm::FailureCode;

/// Values that repair the container networking of a build of Windows, with their sources.
const OVERRIDES: &str = include_str!("registry-overrides.json");

#[derive(Deserialize)]
struct Overrides {
    overrides: Vec<Override>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Override {
    /// The id of the item, after `override-`.
    id: String,
    /// The builds of Windows that need it.
    builds: Vec<u32>,
    key: String,
    name: String,
    dword: u32,
    why: String,
    source: String,
}

/// Returns a registry value that is a number.
pub(super) fn number(key: &str, name: &str, value: u32, restart: bool) -> Kind {
    Kind::Registry { key: key.into(), name: name.into(), data: RegistryData::Dword(value), restart }
}

/// Adds the values for that release. They take effect after the next restart.
pub(super) fn overrides(all: &mut PlanBuilder, release: WindowsRelease) -> Result<(), RenderError> {
    static KNOWN: LazyLock<Result<Overrides, String>> = LazyLock::new(|| serde_json::from_str(OVERRIDES).map_err(|e| e.to_string()));
    let known = KNOWN.as_ref().map_err(|reason| RenderError::Serialize { what: "registry-overrides.json", reason: reason.clone() })?;
    for entry in known.overrides.iter().filter(|entry| entry.builds.contains(&release.build())) {
        let remedy = "Set spec.windows.registryOverrides to false if this release of Windows does not need it.";
        let kind = number(&entry.key, &entry.name, entry.dword, true);
        all.add(item(&format!("override-{}", entry.id), FailureCode::RegistrySetting, 60, kind, why(&entry.why, &entry.source, remedy)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn overrides_name_known_builds_and_sources() {
        let known: Overrides = serde_json::from_str(OVERRIDES).unwrap();
        let ids: BTreeSet<&str> = known.overrides.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids.len(), known.overrides.len(), "an id is used twice");
        let builds = [WindowsRelease::Server2019, WindowsRelease::Server2022, WindowsRelease::Server2025].map(WindowsRelease::build);
        for entry in &known.overrides {
            assert!(!entry.builds.is_empty() && entry.builds.iter().all(|build| builds.contains(build)), "{}", entry.id);
            assert!(entry.source.starts_with("https://") && entry.why.len() > 20 && entry.key.starts_with(r"HKLM:\SYSTEM\"), "{}", entry.id);
        }
        for build in builds {
            assert!(known.overrides.iter().any(|entry| entry.builds.contains(&build)), "nothing for {build}");
        }
    }
}
