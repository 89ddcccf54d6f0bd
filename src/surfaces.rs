//! The names that an upgrade must not change silently, as one generated file: each change is seen in review and in the
//! changelog.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use regex::Regex;

use crate::api::condition::{ConditionType, Reason};
use crate::api::custom_resource_definitions;
use crate::api::machine::WindowsMachine;
use crate::cli::Arguments;
use crate::domain::identity::{host_name, vm_uuid};
use crate::references::without_tests;
use crate::telemetry::metrics::tests::described;
use crate::vm::FailureCode;

/// The lines of the file by subject.
type Surfaces = BTreeMap<&'static str, BTreeSet<String>>;

fn surfaces() -> Surfaces {
    let conditions = ConditionType::ALL.iter().map(|t| t.as_str().to_owned());
    let reasons = Reason::ALL.iter().map(|reason| reason.as_str().to_owned());
    let codes = FailureCode::ALL.iter().map(|code| format!("{} {}", code.number(), code.reason()));
    let metrics = described().into_iter().map(|family| format!("{} {} {}", family.name, family.kind, family.labels.join(",")));
    let kinds = custom_resource_definitions().into_iter().flat_map(|crd| {
        let versions = crd.spec.versions.iter().map(|version| format!("{}/{} {}", crd.spec.group, version.name, crd.spec.names.kind));
        versions.collect::<Vec<_>>()
    });
    Surfaces::from([
        ("condition types", conditions.collect()),
        ("failure codes of guests", codes.collect()),
        ("flags", flags("capw", &Arguments::command())),
        ("identities", identities()),
        ("kinds", kinds.collect()),
        ("metrics", metrics.map(|line| line.trim_end().to_owned()).collect()),
        ("names in objects", names()),
        ("reasons", reasons.collect()),
    ])
}

/// Flags that are no surface: those of every program, and that of the feature `wine-guests`, which releases do not have.
const LEFT_OUT: [&str; 3] = ["help", "version", "wine-programs"];

fn flags(path: &str, command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_long()).filter(|flag| !LEFT_OUT.contains(flag));
    let mut found: BTreeSet<String> = own.map(|flag| format!("{path} --{flag}")).collect();
    for sub in command.get_subcommands() {
        found.extend(flags(&format!("{path} {}", sub.get_name()), sub));
    }
    found
}

/// Returns the identities of a machine with a certain UID, because an upgrade must find an existing VM.
fn identities() -> BTreeSet<String> {
    let object = serde_json::json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "a-machine-with-a-long-name", "namespace": "lab", "uid": "6f1c8a52-0d0e-4e4b-9d43-5b1f0c7c2a11",
            "annotations": {"infrastructure.cluster.x-k8s.io/windows-hypervisor": "lab"}},
        "spec": {"image": "windows-server-2022"}});
    let machine: WindowsMachine = serde_json::from_value(object).unwrap();
    let provider = crate::domain::identity::future_provider_id(&machine).unwrap();
    BTreeSet::from([
        format!("VM of UID 6f1c8a52-0d0e-4e4b-9d43-5b1f0c7c2a11: {}", vm_uuid(&machine)),
        format!("its provider ID: {provider}"),
        format!("host name of a-machine-with-a-long-name: {}", host_name(&machine).unwrap()),
    ])
}

/// Returns the finalizers, labels, annotations and groups in the code.
fn names() -> BTreeSet<String> {
    let name = Regex::new("\"((?:[a-z0-9-]+\\.)+x-k8s\\.io(?:/[A-Za-z0-9-]+)?)\"").unwrap();
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "testing") || path.ends_with("tests.rs");
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !is_test {
                let text = fs::read_to_string(&path).unwrap();
                found.extend(name.captures_iter(without_tests(&text)).map(|found| found[1].to_owned()));
            }
        }
    }
    found
}

fn text(surfaces: &Surfaces) -> String {
    let mut text = String::from(
        "What an upgrade must not change silently. `make tables` writes this file; a line that goes or changes needs one in CHANGELOG.md.\n",
    );
    for (title, lines) in surfaces {
        text.push_str(&format!("\n[{title}]\n"));
        lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test that can write what it checks, when asked to")]
fn the_file_has_the_surfaces_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/surfaces.txt");
    let text = text(&surfaces());
    if std::env::var_os("UPDATE_TABLES").is_some() {
        fs::write(&path, text).unwrap();
    } else {
        let stored = fs::read_to_string(&path).unwrap();
        let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (stored.lines().collect(), text.lines().collect());
        let gone: Vec<_> = old.difference(&new).collect();
        let came: Vec<_> = new.difference(&old).collect();
        assert!(stored == text, "src/surfaces.txt: run make tables, and say in CHANGELOG.md what users must do.\ngone: {gone:#?}\nnew: {came:#?}");
    }
}

#[test]
fn every_surface_is_found() {
    for (title, lines) in surfaces() {
        assert!(lines.len() >= 3, "{title}: {lines:?}");
    }
    assert!(names().contains("windowsmachine.infrastructure.cluster.x-k8s.io"), "finalizers");
    assert!(surfaces()["flags"].contains("capw run --leader-elect"));
}
