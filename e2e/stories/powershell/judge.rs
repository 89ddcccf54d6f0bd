//! The required state of a machine after a plan, read from its disk and its registry: an independent check, which shares no code with the runner.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

use super::machine::Machine;

/// Values of the registry by `key\name` in lower case, as Wine's file writes them.
pub struct Registry(BTreeMap<String, String>);

impl Registry {
    /// Reads the registry of a machine that is switched off.
    pub fn of(machine: &Machine) -> Self {
        let text = fs::read(machine.path(r"C:\").join("../system.reg")).expect("the registry");
        let text = String::from_utf8_lossy(&text).replace("\\\n  ", "");
        let (mut values, mut key) = (BTreeMap::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix('[') {
                key = rest.split(']').next().unwrap_or_default().replace("\\\\", "\\").to_lowercase();
                key = key.replace(r"system\controlset001", r"system\currentcontrolset");
                values.insert(key.clone(), String::new());
            } else if let Some((name, data)) = value(line) {
                values.insert(format!("{key}\\{}", name.to_lowercase()), data);
            }
        }
        Self(values)
    }

    /// The data of a value, in the format of `system.reg`.
    pub fn get(&self, key: &str, name: &str) -> Option<&str> {
        let key = key.trim_start_matches(r"HKLM:\").to_lowercase();
        self.0.get(&format!("{key}\\{}", name.to_lowercase())).map(String::as_str)
    }

    /// All values below a key, by their path.
    pub fn below(&self, key: &str) -> impl Iterator<Item = (&String, &String)> {
        let key = format!("{}\\", key.to_lowercase());
        self.0.iter().filter(move |(path, _)| path.starts_with(&key))
    }
}

/// Parses `"name"=data` or `@=data`.
fn value(line: &str) -> Option<(String, String)> {
    if let Some(data) = line.strip_prefix("@=") {
        return Some((String::new(), data.to_owned()));
    }
    let rest = line.strip_prefix('"')?;
    let end = rest.match_indices("\"=").map(|(at, _)| at).find(|at| !rest[..*at].ends_with('\\'))?;
    Some((rest[..end].replace("\\\\", "\\").replace("\\\"", "\""), rest[end + 2..].to_owned()))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The data of an item in the format of `system.reg`.
fn data(data: &Value) -> String {
    if let Some(number) = data["dword"].as_u64() {
        return format!("dword:{number:08x}");
    }
    if let Some(texts) = data["multiString"].as_array() {
        let joined: String =
            texts.iter().map(|text| format!("{}\\0", text.as_str().unwrap_or_default().replace('\\', "\\\\").replace('"', "\\\""))).collect();
        return format!("str(7):\"{joined}\"");
    }
    if let Some(text) = data["expandString"].as_str() {
        return format!("str(2):{}", quoted(text));
    }
    quoted(data["string"].as_str().unwrap_or_default())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap_or_default()
}

/// The parts of the plan that do not hold on a machine that is switched off, one line each.
pub fn differences(machine: &Machine, plan: &Value) -> Vec<String> {
    let registry = Registry::of(machine);
    let items = plan["items"].as_array().expect("items");
    let of = |kind: &str| items.iter().filter(|item| item["kind"] == kind).collect::<Vec<_>>();
    let absent: Vec<&str> = of("absent").into_iter().flat_map(|item| texts(&item["paths"])).collect();
    let removed_tasks: Vec<&str> = of("absent").into_iter().flat_map(|item| texts(&item["tasks"])).collect();
    let is_removed = |path: &str| absent.iter().any(|gone| path.to_lowercase().starts_with(&gone.to_lowercase()));
    let kept = |name: &str| serde_json::from_str::<Value>(&machine.read(&format!(r"C:\stand-in\kept\{name}.json"))).unwrap_or_default();
    let (firewall, tasks) = (kept("firewall"), kept("tasks"));
    let mut wrong = Vec::new();
    let mut expect = |item: &Value, holds: bool, what: &str| {
        if !holds {
            wrong.push(format!("{}: {what}", text(item, "id")));
        }
    };
    for item in items {
        match text(item, "kind") {
            "directory" => {
                for path in texts(&item["paths"]).into_iter().filter(|path| !is_removed(path)) {
                    expect(item, machine.path(path).is_dir(), &format!("there is no directory {path}"));
                }
            }
            "file" if !is_removed(text(item, "path")) => {
                let bytes = fs::read(machine.path(text(item, "path"))).unwrap_or_default();
                let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
                expect(item, digest == text(item, "sha256"), &format!("{} has other bytes", text(item, "path")));
            }
            "download" if !is_removed(text(item, "path")) => {
                let bytes = fs::read(machine.path(text(item, "path"))).unwrap_or_default();
                let (sha256, sha512) = (Sha256::digest(&bytes), Sha512::digest(&bytes));
                let digests =
                    [format!("sha256:{}", data_encoding::HEXLOWER.encode(&sha256)), format!("sha512:{}", data_encoding::HEXLOWER.encode(&sha512))];
                expect(item, digests.contains(&item["digest"].as_str().unwrap_or_default().to_owned()), "the download has another digest");
            }
            "archive" => {
                for file in texts(&item["files"]) {
                    let path = format!(r"{}\{file}", text(item, "directory"));
                    expect(item, machine.path(&path).is_file(), &format!("there is no {path}"));
                }
            }
            "registry" => {
                let last = items.iter().rfind(|other| other["kind"] == "registry" && other["key"] == item["key"] && other["name"] == item["name"]);
                let (wanted, found) = (data(&last.unwrap_or(item)["data"]), registry.get(text(item, "key"), text(item, "name")));
                expect(item, found == Some(wanted.as_str()), &format!("expected {wanted}, found {found:?}"));
            }
            "feature" => {
                for name in texts(&item["names"]) {
                    let state = machine.read(&format!(r"C:\stand-in\features\{name}"));
                    expect(item, state.eq_ignore_ascii_case(text(item, "state")) || state.is_empty(), &format!("{name} is {state}"));
                }
            }
            "firewall" => {
                let rule = &firewall[text(item, "name")];
                let same = |ours: &str, theirs: &str| text(item, ours).eq_ignore_ascii_case(rule[theirs].as_str().unwrap_or_default());
                let ports = if item["direction"] == "inbound" { "LocalPort" } else { "RemotePort" };
                let list = |value: &Value| match value {
                    Value::String(one) => vec![one.clone()],
                    other => texts(other).into_iter().map(str::to_owned).collect(),
                };
                let whole = same("direction", "Direction") && same("action", "Action") && same("protocol", "Protocol");
                expect(item, whole && list(&item["ports"]) == list(&rule[ports]), &format!("found {rule}"));
                expect(item, list(&item["remote"]) == list(&rule["RemoteAddress"]), &format!("found {rule}"));
            }
            "service" => {
                let last = items.iter().rfind(|other| other["kind"] == "service" && other["name"] == item["name"]).unwrap_or(item);
                let key = format!(r"SYSTEM\CurrentControlSet\Services\{}", text(item, "name"));
                let path = registry.get(&key, "ImagePath").unwrap_or_default().trim_start_matches("str(2):").to_owned();
                expect(item, path == quoted(text(last, "commandLine")), &format!("found {path}"));
                let start = if last["start"] == "auto" { "dword:00000002" } else { "dword:00000003" };
                expect(item, registry.get(&key, "Start") == Some(start), &format!("its start is {:?}", registry.get(&key, "Start")));
            }
            "task" if !removed_tasks.contains(&text(item, "name")) => {
                let task = &tasks[text(item, "name")];
                expect(item, task["Execute"] == item["argv"][0], &format!("found {task}"));
            }
            "absent" => {
                for path in texts(&item["paths"]) {
                    expect(item, !machine.path(path).exists(), &format!("{path} is still there"));
                }
                for task in texts(&item["tasks"]) {
                    expect(item, tasks[task].is_null(), &format!("the task {task} is still there"));
                }
            }
            "command" | "wait" => {
                if let Some(path) = item["check"]["file"].as_str() {
                    expect(item, machine.path(path).exists(), &format!("there is no {path}"));
                }
            }
            _ => {}
        }
    }
    wrong
}

/// The state that two runs of the same plan must share, of a machine that is switched off: files with their digests, registry, tasks, rules,
/// features. Without timestamps.
pub fn state(machine: &Machine) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for root in [
        "etc",
        "k",
        "opt",
        "run",
        "var",
        "ProgramData/capw",
        "ProgramData/containerd",
        "Program Files/containerd",
        "stand-in/kept",
        "stand-in/features",
    ] {
        let root = machine.path(r"C:\").join(root);
        for file in crate::world::search::files(&root) {
            let name = file.strip_prefix(machine.path(r"C:\")).expect("below C:").display().to_string();
            let own = ["report.log", "bootstrap.log", "state/state.json", "state/items/", "restart-wanted", "unpacked-", "program.", "capw/state"];
            if own.iter().any(|part| name.contains(part)) {
                continue;
            }
            let content = fs::read(&file).unwrap_or_default();
            // The stand-ins write objects and lists in any order.
            let content = if name.starts_with("stand-in/kept/") { sorted(&content) } else { content };
            state.insert(format!("file {name}"), data_encoding::HEXLOWER.encode(&Sha256::digest(content)));
        }
    }
    let registry = Registry::of(machine);
    for key in
        [r"SOFTWARE\Policies", r"SOFTWARE\Example", r"SYSTEM\CurrentControlSet\Services\kubelet", r"SYSTEM\CurrentControlSet\Services\containerd"]
    {
        state.extend(registry.below(key).map(|(path, data)| (format!("value {path}"), data.clone())));
    }
    state
}

/// A JSON document with its members and lists in order; anything else as it is.
fn sorted(content: &[u8]) -> Vec<u8> {
    fn sort(value: &mut Value) {
        match value {
            Value::Array(list) => {
                list.iter_mut().for_each(sort);
                list.sort_by_key(Value::to_string);
            }
            Value::Object(members) => members.values_mut().for_each(sort),
            _ => {}
        }
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(content) else { return content.to_vec() };
    value.sort_all_objects();
    sort(&mut value);
    value.to_string().into_bytes()
}

/// One line for each difference between two states.
pub fn compare(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .map(|name| format!("{name}: {:?} and {:?}", one.get(name), other.get(name)))
        .collect()
}
