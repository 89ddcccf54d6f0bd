//! The test that holds the layers of `lib.rs` against the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod graph;

/// What each module may import from this crate.
const ALLOWED: &[(&str, &[&str])] = &[
    ("api", &["api"]),
    ("vm", &["api"]),
    ("compat", &["api", "compat"]),
    ("bootstrap", &["api", "vm", "compat", "bootstrap"]),
    ("diagnosis", &["api", "vm", "diagnosis"]),
    ("lifecycle", &["api", "vm", "compat", "diagnosis", "lifecycle"]),
    ("hypervisor", &["api", "vm", "hypervisor", "bootstrap"]),
    ("cluster", &["api", "cluster"]),
    ("telemetry", &["telemetry"]),
    ("autoscaler", &["api", "vm", "bootstrap", "lifecycle", "cluster", "telemetry", "autoscaler"]),
    ("controllers", &["api", "vm", "autoscaler", "bootstrap", "lifecycle", "hypervisor", "cluster", "telemetry", "controllers"]),
    ("operator", &["api", "vm", "autoscaler", "bootstrap", "lifecycle", "hypervisor", "cluster", "telemetry", "controllers", "operator"]),
    ("cli", &["api", "autoscaler", "compat", "bootstrap", "operator", "cli", "cluster", "diagnosis", "hypervisor", "lifecycle", "telemetry", "vm"]),
];

/// Most lines of a file.
const LINES: usize = 400;

/// Files in circles that are known, and why they are.
const CIRCLES: &[(&str, &str)] = &[
    ("bootstrap/error.rs", "its errors name types of the folders whose files return them"),
    ("bootstrap/plan/script.rs", "the plan names the kinds of scripts, which are built from the plan"),
];

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
        if ["lib", "main", "layers", "references", "tables", "unused"].contains(&module.as_str()) {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(name, _)| *name == module).unwrap_or_else(|| panic!("{module}: not in the list of layers")).1;
        for import in imports(&text) {
            if !allowed.contains(&import.as_str()) {
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
        for driver in ["simulated", "libvirt"] {
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
    let circles: Vec<_> =
        graph::circles(&graph::files()).into_iter().filter(|circle| !CIRCLES.iter().any(|(file, _)| circle.contains(*file))).collect();
    assert!(circles.is_empty(), "{circles:?}");
}

#[test]
fn the_reader_of_imports_sees_groups_and_paths() {
    assert_eq!(imports("use crate::{api::name, vm};\nlet x = crate::cluster::Y;"), ["api", "vm", "cluster"]);
}

/// Modules whose files of different folders must not use each other in a circle.
const WITHOUT_CIRCLES: &[&str] = &["bootstrap", "compat", "diagnosis", "vm"];

/// The paths after `crate::` in a text, groups resolved: `crate::a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn paths(text: &str) -> Vec<String> {
    fn expand(prefix: &str, text: &str, found: &mut Vec<String>) {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
        let path = format!("{prefix}{}", &text[..end]);
        let Some(group) = text[end..].strip_prefix('{').filter(|_| path.ends_with("::")) else {
            found.push(path);
            return;
        };
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    let part = group[start..at].trim();
                    if !part.is_empty() {
                        expand(&path, part, found);
                    }
                    start = at + 1;
                    if c == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::").filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$')) {
        expand("", &text[at + "crate::".len()..], &mut found);
    }
    found
}

/// What a file uses outside of its tests, as paths from the root of the crate.
fn uses(module: &str, text: &str) -> Vec<String> {
    let code: String = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let grandparent = parent.rsplit_once("::").map_or("", |(parent, _)| parent);
    paths(&code.replace("super::super::", &format!("crate::{grandparent}::")).replace("super::", &format!("crate::{parent}::")))
}

#[test]
fn files_of_different_folders_do_not_use_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules = std::collections::BTreeMap::new();
    for (top, path, text) in files() {
        let name = path.strip_prefix(&root).unwrap().with_extension("").to_string_lossy().replace('/', "::");
        let is_test = name.split("::").any(|part| ["tests", "sample", "gate"].contains(&part));
        if WITHOUT_CIRCLES.contains(&top.as_str()) && !is_test {
            modules.insert(name.trim_end_matches("::mod").to_owned(), (path, text));
        }
    }
    let target = |mut path: &str| loop {
        if modules.contains_key(path) {
            return Some(path.to_owned());
        }
        path = path.rsplit_once("::")?.0;
    };
    let edges: std::collections::BTreeMap<&String, BTreeSet<String>> = modules
        .iter()
        .map(|(module, (_, text))| {
            let uses = uses(module, text).into_iter().filter_map(|path| target(&path)).filter(|used| used != module);
            (module, uses.collect())
        })
        .collect();
    let reachable = |from: &String| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
        while let Some(module) = todo.pop() {
            todo.extend(edges[module].iter().filter(|used| seen.insert((*used).clone())));
        }
        seen
    };
    let folder = |module: &String| modules[module].0.parent().unwrap().to_owned();
    let mut circles = Vec::new();
    for module in modules.keys() {
        for used in reachable(module) {
            if folder(module) != folder(&used) && module < &used && reachable(&used).contains(module) {
                circles.push(format!("{module} and {used}"));
            }
        }
    }
    assert!(edges.values().any(|uses| uses.len() > 3), "the test sees the uses");
    assert!(circles.is_empty(), "these files use each other, maybe through others: {circles:#?}");
}

#[test]
fn groups_of_imports_are_expanded() {
    assert_eq!(paths("use crate::a::{b, c::{d, e::F},\n g};\nlet x = crate::h::I::new();"), ["a::b", "a::c::d", "a::c::e::F", "a::g", "h::I::new"]);
}
