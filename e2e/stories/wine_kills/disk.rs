//! The effects of a plan on a Wine guest: every file of its drive, the registry values, services and everything else that the plan names.
//! Values that naturally differ between two machines are replaced by the same placeholder.

use std::collections::BTreeMap;
use std::fs;

use capw::bootstrap::paths;
use capw::bootstrap::plan::{Kind, Plan};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::world::wine::WineGuest;

/// Directories where programs keep their own data, which no plan writes: Wine's Windows, logs, data of containerd, keys, the kubelet's notes.
const OF_PROGRAMS: [&str; 8] = [
    "windows/",
    "users/",
    "var/log/",
    "ProgramData/containerd/",
    "ProgramData/Microsoft/",
    "var/lib/kubelet-pki/",
    "var/lib/kubelet/device-plugins/",
    "var/lib/kubelet/pod",
];
/// The seed's files: their digests depend on files that name the machine, so only the file names are compared.
const SEED: &str = "ProgramData/capw/payload";

/// The state of a guest, by place. `own` are the names of the machine, with the replacement for each.
pub fn state(guest: &WineGuest, own: &[(String, &str)]) -> BTreeMap<String, String> {
    let same = |text: &str| own.iter().fold(text.to_owned(), |text, (name, word)| text.replace(name.as_str(), word));
    let mut all = BTreeMap::new();
    for (path, bytes) in guest.own_files() {
        if OF_PROGRAMS.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        let holds = match String::from_utf8(bytes) {
            _ if path.starts_with(SEED) => "there".to_owned(),
            Ok(text) => same(&text),
            Err(error) => Sha256::digest(error.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        all.insert(format!("file {}", same(&path)), holds);
    }
    let plan: Plan = serde_json::from_str(&guest.read(&format!(r"{}\node.json", paths::PAYLOAD)).expect("the plan")).expect("a plan");
    let value = |key: &str, name: &str| guest.windows(&["reg", "query", &key.replacen(":\\", "\\", 1), "/v", name]).unwrap_or_else(|said| vec![said]);
    for item in &plan.items {
        let (what, shown) = match &item.kind {
            Kind::Directory { paths, .. } => {
                let there = |path: &String| format!("{path}: {}", guest.path(path).is_dir());
                (format!("directories {}", item.id), paths.iter().map(there).collect())
            }
            Kind::Registry { key, name, .. } if name.is_empty() => {
                (format!("value {key}"), guest.windows(&["reg", "query", key, "/ve"]).unwrap_or_default())
            }
            Kind::Registry { key, name, .. } => (format!("value {key} {name}"), value(key, name)),
            Kind::ServiceEnvironment { service, .. } => {
                (format!("variables of {service}"), value(&format!(r"HKLM\SYSTEM\CurrentControlSet\Services\{service}"), "Environment"))
            }
            Kind::Service { name, .. } => (format!("service {name}"), guest.service(&["show", name]).unwrap_or_else(|said| vec![said])),
            _ => continue,
        };
        all.insert(what, same(&shown.join("\n")));
    }
    let kept: Value = serde_json::from_slice(&fs::read(guest.kept()).expect("what the guest keeps")).expect("JSON");
    for (what, recorded) in kept["recorded"].as_object().expect("what Wine has no place for") {
        all.insert(format!("recorded {what}"), same(&recorded.to_string()));
    }
    all
}

/// One text for each difference.
pub fn differences(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let differ = names.into_iter().filter(|name| one.get(*name) != other.get(*name));
    differ.map(|name| format!("{name}:\n  {:?}\n  {:?}", one.get(name), other.get(name))).collect()
}
