//! What is on the disk of a simulated Windows machine, and what the items of a plan do to it. Pure; a model, not Windows.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bootstrap::paths;
use crate::bootstrap::plan::{Check, ExitCodes, FeatureState, Item, Kind, RegistryData, Script, Start, Variables};

const COMPUTER_NAME: (&str, &str) = (r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName", "ComputerName");

const DOMAIN: (&str, &str) = (r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters", "Domain");
const BUILD: (&str, &str) = (r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion", "CurrentBuildNumber");

/// Everything that survives a restart of the machine, and of the operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Starts of Windows, restarts by the plan included.
    pub boot: u32,
    /// For which power on of the VM that was counted.
    pub power_ons: u32,
    /// Number of the last report.
    pub sequence: u64,
    /// How the plan ended: a state of a report.
    pub end: Option<String>,
    /// Digests of finished items, by id.
    markers: BTreeMap<String, String>,
    /// Digests by path in lower case; programs and directories have none.
    files: BTreeMap<String, String>,
    registry: BTreeMap<String, String>,
    features: BTreeSet<String>,
    /// Rules by name, as they were asked for.
    firewall: BTreeMap<String, Kind>,
    services: BTreeMap<String, Service>,
    tasks: BTreeSet<String>,
    /// What the static scripts made true.
    scripts: BTreeSet<String>,
    /// How often each item ran its program.
    runs: BTreeMap<String, u32>,
    /// Programs that end well by now, with their arguments.
    succeeds: BTreeSet<String>,
    restart_pending: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Service {
    command_line: String,
    automatic: bool,
    running: bool,
    environment: Option<Variables>,
}

/// What the caller has to do about an item.
#[derive(Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// It is true now.
    Done,
    /// Windows restarts.
    Restart,
    /// kubeadm joins the cluster by that file.
    Join { configuration: &'a str },
    /// It cannot become true: why.
    Never(String),
}

impl Disk {
    /// A machine as its image is, after cloudbase-init gave it its name. `build` is that of Windows, e.g. 20348.
    pub fn of_image(computer_name: &str, build: u32) -> Self {
        let mut disk = Self::default();
        for program in [paths::CONTAINERD, paths::KUBELET, paths::KUBEADM, paths::LOG_RUNNER, paths::KUBE_PROXY] {
            disk.files.insert(lower(program), String::new());
        }
        disk.services.insert("W32Time".into(), Service { automatic: true, ..Service::default() });
        disk.registry.insert(value_name(COMPUTER_NAME.0, COMPUTER_NAME.1), computer_name.to_uppercase());
        disk.registry.insert(value_name(BUILD.0, BUILD.1), build.to_string());
        disk
    }

    pub fn computer_name(&self) -> String {
        self.registry.get(&value_name(COMPUTER_NAME.0, COMPUTER_NAME.1)).map(|name| name.to_lowercase()).unwrap_or_default()
    }

    /// Windows starts: what was pending is settled, automatic services run.
    pub fn start(&mut self) {
        self.boot += 1;
        self.restart_pending = false;
        for service in self.services.values_mut() {
            service.running = service.automatic;
        }
    }

    pub fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(&lower(path))
    }

    /// The value of `--<flag>=` on a service's command line.
    pub fn flag(&self, service: &str, flag: &str) -> Option<&str> {
        let start = format!("--{flag}=");
        self.services.get(service)?.command_line.split(' ').find_map(|word| word.strip_prefix(&start))
    }

    /// kubeadm has joined and the kubelet runs.
    pub fn joined(&mut self) {
        for path in [paths::KUBELET_KUBECONFIG, paths::KUBELET_CONFIG, paths::CLUSTER_CA, paths::BOOTSTRAP_KUBECONFIG] {
            self.files.insert(lower(path), String::new());
        }
        if let Some(kubelet) = self.services.get_mut("kubelet") {
            kubelet.running = true;
        }
    }

    /// Was the item done before, as it stands now?
    pub fn finished(&self, item: &Item) -> bool {
        self.markers.get(&item.id) == Some(&digest(item)) || item.unless.as_ref().is_some_and(|check| self.holds(check))
    }

    pub fn finish(&mut self, item: &Item) {
        self.markers.insert(item.id.clone(), digest(item));
    }

    /// Makes the item true, or says what the caller must do so that it becomes true.
    pub fn act<'a>(&mut self, item: &'a Item) -> Act<'a> {
        match &item.kind {
            Kind::Directory { paths, .. } => {
                for path in paths {
                    self.files.entry(lower(path)).or_default();
                }
            }
            Kind::File { path, sha256, .. } => {
                self.files.insert(lower(path), sha256.clone());
            }
            Kind::Download { path, digest, .. } => {
                self.files.insert(lower(path), digest.clone());
            }
            Kind::Archive { path, directory, files, .. } => {
                if !self.has_file(path) {
                    return Act::Never(format!("{path} does not exist"));
                }
                for file in files {
                    self.files.insert(lower(&format!(r"{directory}\{file}")), String::new());
                }
            }
            Kind::Registry { key, name, data, restart } => {
                let text = match data {
                    RegistryData::String(text) | RegistryData::ExpandString(text) => text.clone(),
                    RegistryData::Dword(number) => number.to_string(),
                    RegistryData::MultiString(texts) => texts.join(" "),
                };
                let before = self.registry.insert(value_name(key, name), text.clone());
                self.restart_pending |= *restart && before != Some(text);
            }
            Kind::ServiceEnvironment { service, variables } => match self.services.get_mut(service) {
                Some(found) => found.environment = Some(variables.clone()),
                None => return Act::Never(format!("the service {service} does not exist")),
            },
            Kind::Environment { name, value } => {
                self.registry.insert(value_name("environment", name), value.clone());
            }
            Kind::Feature { names, state } => {
                for name in names {
                    self.restart_pending |= match state {
                        FeatureState::Enabled => self.features.insert(name.clone()),
                        FeatureState::Disabled => self.features.remove(name),
                    };
                }
            }
            Kind::Firewall { name, .. } => {
                self.firewall.insert(name.clone(), item.kind.clone());
            }
            Kind::Service { name, command_line, start, depends_on, .. } => {
                if let Some(missing) = depends_on.iter().find(|needed| !self.services.contains_key(*needed)) {
                    return Act::Never(format!("the service {name} needs the service {missing}, which does not exist"));
                }
                let service = self.services.entry(name.clone()).or_default();
                service.command_line.clone_from(command_line);
                service.automatic = *start == Start::Auto;
            }
            Kind::Running { name, .. } => match self.services.get_mut(name) {
                Some(service) => service.running = true,
                None => return Act::Never(format!("the service {name} does not exist")),
            },
            Kind::Task { name, .. } => {
                self.tasks.insert(name.clone());
            }
            Kind::Command { argv, check, exit_codes, .. } => {
                // What has no check is run once.
                if check.as_ref().map_or_else(|| self.runs.contains_key(&item.id), |check| self.holds(check)) {
                    return Act::Done;
                }
                *self.runs.entry(item.id.clone()).or_default() += 1;
                return self.command(argv, check.as_ref(), exit_codes);
            }
            Kind::Script(script) => return self.script(script),
            Kind::Wait { check } => {
                if !self.holds(check) {
                    return Act::Never(format!("it never came: {check:?}"));
                }
            }
            Kind::Reboot { .. } => {
                if self.restart_pending {
                    return Act::Restart;
                }
            }
            Kind::Absent { paths, tasks } => {
                for path in paths {
                    let (path, below) = (lower(path), format!(r"{}\", lower(path)));
                    self.files.retain(|file, _| *file != path && !file.starts_with(&below));
                }
                self.tasks.retain(|task| !tasks.contains(task));
            }
        }
        Act::Done
    }

    fn command<'a>(&mut self, argv: &'a [String], check: Option<&Check>, codes: &ExitCodes) -> Act<'a> {
        let Some((program, arguments)) = argv.split_first() else { return Act::Never("the command is empty".into()) };
        if !self.has_file(program) && program.contains(':') {
            return Act::Never(format!("{program} does not exist"));
        }
        if program.eq_ignore_ascii_case(paths::KUBEADM) && arguments.first().is_some_and(|word| word == "join") {
            let configuration = arguments.iter().skip_while(|word| *word != "--config").nth(1);
            return match configuration {
                Some(configuration) if self.has_file(configuration) => Act::Join { configuration },
                Some(configuration) => Act::Never(format!("{configuration} does not exist")),
                None => Act::Never("kubeadm join has no --config".into()),
            };
        }
        // Any other program does what it is for, and asks for a restart if it may.
        self.restart_pending |= !codes.restart.is_empty();
        match check.map(|check| self.come_true(check)) {
            Some(false) => Act::Never(format!("{program} ended and it did not come: {check:?}")),
            _ => Act::Done,
        }
    }

    /// Makes the check hold; false when no program can do that here.
    fn come_true(&mut self, check: &Check) -> bool {
        match check {
            Check::File(path) => {
                self.files.insert(lower(path), String::new());
            }
            Check::Registry { key, name, equals } => {
                self.registry.insert(value_name(key, name), equals.clone());
            }
            Check::RegistryValue { key, name } => {
                self.registry.insert(value_name(key, name), String::new());
            }
            Check::RegistryKey(key) => {
                self.registry.insert(value_name(key, ""), String::new());
            }
            Check::Succeeds(argv) => {
                self.succeeds.insert(argv.join(" "));
            }
            Check::Not(check) => match &**check {
                Check::File(path) => {
                    self.files.remove(&lower(path));
                }
                Check::RegistryKey(key) => {
                    let key = value_name(key, "");
                    self.registry.retain(|name, _| !name.starts_with(&key));
                }
                _ => return self.holds(&Check::Not(check.clone())),
            },
            Check::All(checks) => return checks.iter().all(|check| self.come_true(check)),
            // It was installed.
            Check::Service(name) => {
                let service = self.services.entry(name.clone()).or_default();
                (service.automatic, service.running) = (true, true);
            }
            Check::Pipe(_) | Check::Url(_) | Check::Port(_) => return self.holds(check),
        }
        true
    }

    fn script(&mut self, script: &Script) -> Act<'static> {
        match script {
            Script::Identity { build } => {
                let found = self.registry.get(&value_name(BUILD.0, BUILD.1)).map(String::as_str).unwrap_or_default();
                if found != build.to_string() {
                    return Act::Never(format!("expected Windows Server of build {build}, found Server {found}"));
                }
                return Act::Done;
            }
            Script::DomainJoin { blob, .. } if !self.has_file(blob) => return Act::Never(format!("{blob} does not exist")),
            _ => {}
        }
        if let Script::DomainJoin { domain, .. } = script {
            self.registry.insert(value_name(DOMAIN.0, DOMAIN.1), domain.clone());
        }
        let news = self.scripts.insert(format!("{script:?}"));
        self.restart_pending |= news && matches!(script, Script::Hypervisor | Script::DomainJoin { .. });
        Act::Done
    }

    fn holds(&self, check: &Check) -> bool {
        let running = |name: &str| self.services.get(name).is_some_and(|service| service.running);
        match check {
            Check::File(path) => self.has_file(path),
            Check::Pipe(name) => name == paths::CRI_PIPE && running("containerd"),
            Check::Url(url) => url.ends_with(":10248/healthz") && running("kubelet") && self.has_file(paths::KUBELET_CONFIG),
            Check::Registry { key, name, equals } => {
                self.registry.get(&value_name(key, name)).is_some_and(|found| found.eq_ignore_ascii_case(equals))
            }
            Check::RegistryValue { key, name } => self.registry.contains_key(&value_name(key, name)),
            Check::RegistryKey(key) => self.registry.keys().any(|name| name.starts_with(&value_name(key, ""))),
            Check::Port(port) => *port == 10_250 && running("kubelet") && self.has_file(paths::KUBELET_CONFIG),
            Check::Service(name) => running(name),
            // An image is there once somebody pulled it; every other program that only looks finds all well.
            Check::Succeeds(argv) => {
                let found = argv.first().is_some_and(|program| self.has_file(program));
                found && (argv.iter().all(|word| word != "inspecti") || self.succeeds.contains(&argv.join(" ")))
            }
            Check::Not(check) => !self.holds(check),
            Check::All(checks) => checks.iter().all(|check| self.holds(check)),
        }
    }
}

fn lower(path: &str) -> String {
    path.to_ascii_lowercase()
}

fn value_name(key: &str, name: &str) -> String {
    format!("{key}|{name}").to_ascii_lowercase()
}

fn digest(item: &Item) -> String {
    // What cannot be written down has no marker and is tested each time.
    serde_json::to_vec(&item).map(|bytes| HEXLOWER.encode(&Sha256::digest(bytes))).unwrap_or_default()
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
