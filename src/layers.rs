//! The test that holds the layers of `lib.rs` against the code.

use std::fs;
use std::path::{Path, PathBuf};

mod graph;

/// What each module may import from this crate.
const ALLOWED: &[(&str, &[&str])] = &[
    ("causes", &[]),
    ("guards", &[]),
    ("registry", &[]),
    ("api", &["api"]),
    ("vm", &["api"]),
    ("compat", &["api", "compat"]),
    ("components", &["api", "components"]),
    ("bootstrap", &["api", "vm", "compat", "bootstrap"]),
    ("image", &["api", "bootstrap"]),
    ("diagnosis", &["api", "vm", "diagnosis"]),
    ("lifecycle", &["api", "vm", "compat", "components", "diagnosis", "guards", "lifecycle"]),
    ("hypervisor", &["causes", "registry", "api", "vm", "hypervisor", "bootstrap"]),
    ("cluster", &["causes", "guards", "registry", "api", "cluster"]),
    ("telemetry", &["telemetry"]),
    ("autoscaler", &["api", "vm", "bootstrap", "lifecycle", "cluster", "telemetry", "autoscaler"]),
    (
        "controllers",
        &["api", "vm", "autoscaler", "bootstrap", "components", "guards", "lifecycle", "hypervisor", "cluster", "telemetry", "controllers"],
    ),
    ("operator", &["causes", "api", "vm", "autoscaler", "bootstrap", "lifecycle", "hypervisor", "cluster", "telemetry", "controllers", "operator"]),
    (
        "cli",
        &[
            "api",
            "autoscaler",
            "compat",
            "components",
            "bootstrap",
            "operator",
            "cli",
            "cluster",
            "diagnosis",
            "hypervisor",
            "image",
            "lifecycle",
            "telemetry",
            "vm",
        ],
    ),
];

/// Most lines of a file.
const LINES: usize = 400;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn files() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    found
        .into_iter()
        .map(|path| {
            let first = path.strip_prefix(&root).unwrap().components().next().unwrap().as_os_str().to_string_lossy().into_owned();
            (first.trim_end_matches(".rs").to_owned(), path.clone(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// First path segments after `crate::` in one file, wherever they stand.
fn imports(text: &str) -> Vec<String> {
    text.match_indices("crate::")
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$'))
        .flat_map(|(at, _)| {
            let rest = &text[at + "crate::".len()..];
            let group = rest.strip_prefix('{').and_then(|r| r.split('}').next()).unwrap_or(rest);
            let parts: Vec<&str> = if rest.starts_with('{') { group.split(',').collect() } else { vec![group] };
            parts.into_iter().map(|p| p.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()).collect::<Vec<_>>()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn every_module_imports_only_what_its_layer_allows() {
    let mut wrong = Vec::new();
    for (module, path, text) in files() {
        if ["lib", "main", "coverage", "judges", "layers", "previous", "references", "rights", "surfaces", "tables", "unused", "wording"]
            .contains(&module.as_str())
        {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(name, _)| *name == module).unwrap_or_else(|| panic!("{module}: not in the list of layers")).1;
        for import in imports(&text) {
            // Tests of every layer have judges.
            if import != "judges" && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{}: {module} must not use {import}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn drivers_are_named_only_where_they_are_chosen() {
    for (module, path, text) in files() {
        let own = |name: &str| path.components().any(|c| c.as_os_str() == name);
        let chooser = path.ends_with("hypervisor/drivers.rs") || path.ends_with("hypervisor/mod.rs") || module == "layers";
        for driver in ["simulated", "libvirt", "vsphere", "proxmox"] {
            let names = text.contains(&format!("hypervisor::{driver}::"));
            assert!(own(driver) || chooser || !names, "{}: only hypervisor/drivers.rs names a concrete driver", path.display());
        }
    }
}

#[test]
fn files_stay_short() {
    let long: Vec<_> = files().into_iter().map(|(_, path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > LINES).collect();
    assert!(long.is_empty(), "split by subject: {long:?}");
}

#[test]
fn no_files_of_different_folders_use_each_other_in_a_circle() {
    let files = graph::files();
    assert!(files.values().any(|(_, text)| graph::used_paths(text).len() > 3), "the test sees the uses");
    let circles = graph::circles(&files);
    assert!(circles.is_empty(), "{circles:?}");
}

#[test]
fn the_reader_of_imports_sees_groups_and_paths() {
    assert_eq!(imports("use crate::{api::name, vm};\nlet x = crate::cluster::Y;"), ["api", "vm", "cluster"]);
}
