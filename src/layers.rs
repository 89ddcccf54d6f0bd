//! The test that checks the code against the layers of `lib.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::references::without_tests;

mod additions;
mod graph;

/// The rooms that each room may use besides itself. A room is a folder of `src`, except for [`DECISIONS`].
const ALLOWED: &[(&str, &[&str])] = &[
    ("causes", &[]),
    ("guards", &[]),
    ("registry", &[]),
    ("request_info", &[]),
    ("xml", &[]),
    ("api", &[]),
    ("vm", &["api"]),
    ("compat", &["api"]),
    ("components", &["api"]),
    ("bootstrap", &["xml", "api", "vm", "compat"]),
    ("image", &["xml", "api", "bootstrap"]),
    ("diagnosis", &["api", "vm"]),
    ("domain", &["api", "vm", "compat", "components", "diagnosis", "guards"]),
    (DECISIONS, &["api", "vm", "compat", "components", "diagnosis", "guards", "domain"]),
    ("hypervisor", &["causes", "registry", "xml", "api", "vm", "bootstrap"]),
    ("kube_api", &["causes", "guards", "registry", "request_info", "api"]),
    ("telemetry", &["request_info"]),
    ("autoscaler", &["api", "vm", "bootstrap", "domain", DECISIONS, "kube_api", "telemetry"]),
    ("engine", &["api", "vm", "components", "guards", "domain", DECISIONS, "hypervisor", "kube_api", "telemetry"]),
    (
        "kinds",
        &[
            "api",
            "vm",
            "autoscaler",
            "bootstrap",
            "components",
            "guards",
            "request_info",
            "domain",
            DECISIONS,
            "hypervisor",
            "kube_api",
            "telemetry",
            "engine",
        ],
    ),
    ("operator", &["causes", "api", "vm", "autoscaler", "bootstrap", "hypervisor", "kube_api", "telemetry", "engine", "kinds"]),
    (
        "cli",
        &[
            "api",
            "autoscaler",
            "compat",
            "components",
            "bootstrap",
            "operator",
            "kube_api",
            "diagnosis",
            "domain",
            DECISIONS,
            "hypervisor",
            "image",
            "telemetry",
            "vm",
        ],
    ),
];

/// The room of the pure files of the kinds, which are recognized by their names.
const DECISIONS: &str = "decisions";
const PURE: [&str; 3] = ["decide", "report", "messages"];

/// Returns the room of a module, e.g. of `kinds::pool::decide::member`.
fn room(module: &[String]) -> &str {
    match module {
        [kinds, _, file, ..] if kinds == "kinds" && PURE.contains(&file.as_str()) => DECISIONS,
        [first, ..] => first,
        [] => "lib",
    }
}

/// The most lines of a file.
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

#[test]
fn every_file_uses_only_what_its_room_allows() {
    let files = graph::files();
    let mut wrong = BTreeSet::new();
    for (module, (path, text)) in &files {
        let room = room(module);
        if ["lib", "main", "coverage", "judges", "layers", "previous", "references", "rights", "surfaces", "tables", "testing", "unused", "wording"]
            .contains(&room)
        {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(name, _)| *name == room).unwrap_or_else(|| panic!("{room}: not in the list of layers")).1;
        // Inline tests are indented.
        let flat = text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
        let of_tests = graph::used_paths(&flat).into_iter().filter(|path| path.starts_with("crate::"));
        for used in graph::used_paths(without_tests(text)).into_iter().chain(of_tests) {
            let Some(target) = graph::target(&files, module, &used) else { continue };
            let target = self::room(&target);
            // Tests of every room may use judges and testing.
            if target != room && !["judges", "testing"].contains(&target) && !allowed.contains(&target) {
                wrong.insert(format!("{path}: {room} must not use {target} ({used})"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_pure_files_of_a_kind_are_told_by_their_names() {
    let of = |path: &str| room(&path.split("::").map(str::to_owned).collect::<Vec<_>>()).to_owned();
    assert_eq!(of("kinds::pool::decide::member"), DECISIONS);
    assert_eq!(of("kinds::pool::report"), DECISIONS);
    assert_eq!(of("kinds::pool::machines"), "kinds");
    assert_eq!(of("engine::watch"), "engine");
}

#[test]
fn drivers_are_named_only_where_they_are_chosen() {
    let drivers = additions::drivers();
    for (module, path, text) in files() {
        let own = |name: &str| path.components().any(|c| c.as_os_str() == name);
        let chooser = path.ends_with("hypervisor/drivers.rs") || module == "layers";
        for driver in &drivers {
            let names = text.contains(&format!("drivers::{driver}::"));
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
fn no_files_use_each_other_in_a_circle() {
    let files = graph::files();
    assert!(files.values().any(|(_, text)| graph::used_paths(text).len() > 3), "the test sees the uses");
    let circles = graph::circles(&files);
    assert!(circles.is_empty(), "{circles:?}");
}

/// Tokens that begin an item which a `mod.rs` must leave to a file with a name of its own.
const ITEMS: [&str; 10] = ["fn", "async", "unsafe", "struct", "enum", "trait", "impl", "const", "static", "macro_rules!"];

/// Returns the lines of a `mod.rs` that begin such an item.
fn items(text: &str) -> Vec<&str> {
    let begins_one = |line: &&str| {
        let first = line.split_whitespace().find(|word| !word.starts_with("pub"));
        first.and_then(|word| word.split('<').next()).is_some_and(|word| ITEMS.contains(&word))
    };
    text.lines().filter(begins_one).collect()
}

#[test]
fn a_mod_rs_only_declares_and_documents() {
    for (_, path, text) in files().into_iter().filter(|(_, path, _)| path.ends_with("mod.rs")) {
        assert_eq!(items(&text), Vec::<&str>::new(), "{}: give them a file with a name", path.display());
    }
}

#[test]
fn an_item_is_found_in_a_mod_rs() {
    for item in ["fn a() {}", "pub(super) async fn a() {}", "pub struct A;", "    impl<T> A for T {}", "const A: u8 = 1;"] {
        assert_eq!(items(item), [item]);
    }
    assert_eq!(items("//! Docs: fn.\nmod a;\npub use self::a::{\n    A, constant,\n};\n#[cfg(test)]\nmod tests;\n"), Vec::<&str>::new());
}
