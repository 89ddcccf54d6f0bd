//! The disk of a simulated Windows machine, and how the items of a plan test and change it. A pure model, not
//! Windows.

mod checks;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::image::{self, AUTOMATIC, BUILD, COMPUTER_NAME, Image, ON_DEMAND, SERVICES, START};
use super::journal::Journal;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, FeatureState, Item, Kind, RegistryData, Script, Start, Variables};

const DOMAIN: (&str, &str) = (r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters", "Domain");
const ENVIRONMENT: &str = r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment";

/// The state that survives a restart of the machine, and of the operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Digests by path in lower case; programs and directories have none.
    files: BTreeMap<String, String>,
    /// The access rights of files and directories, where an item has set them.
    access: BTreeMap<String, Access>,
    registry: BTreeMap<String, RegistryData>,
    features: BTreeSet<String>,
    /// Firewall rules by name, as the items define them.
    firewall: BTreeMap<String, Kind>,
    /// Services by name in lower case.
    services: BTreeMap<String, Service>,
    /// Tasks by name, as the items define them.
    tasks: BTreeMap<String, Kind>,
    /// The static scripts that have run.
    scripts: BTreeSet<String>,
    /// The domain that the machine is in after the next restart.
    next_domain: Option<String>,
    /// Digests of unpacked archives, by id of the item.
    unpacked: BTreeMap<String, String>,
    /// How often each item ran its program.
    runs: BTreeMap<String, u32>,
    /// Programs that succeed by now, with their arguments.
    succeeds: BTreeSet<String>,
    restart_pending: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Service {
    /// The item's definition; empty for services of Windows or of another program.
    definition: Option<Kind>,
    environment: Option<Variables>,
    /// The moment of the service's start.
    running: Option<u64>,
}

/// The caller's part in an item.
#[derive(Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// The item is done.
    Done,
    /// The caller lets kubeadm join the cluster with that file.
    Join { configuration: &'a str },
    /// The caller starts the service.
    StartService { name: &'a str },
    /// The caller would wait for the check: nothing on this disk changes automatically.
    Wait(&'a Check),
    /// The item cannot become true, for this reason.
    Never(String),
}

impl Disk {
    /// The disk of a new machine from this image, after it was given its name.
    pub fn of_image(image: &Image, computer_name: &str) -> Self {
        let mut disk = Self::default();
        disk.files.extend(image.programs.iter().map(|program| (lower(program), String::new())));
        disk.features.extend(image.features.iter().cloned());
        disk.services.extend(image::TRIGGERED.map(|name| (lower(name), Service::default())));
        disk.registry.extend(image::registry(image, computer_name).into_iter().map(|(key, name, data)| (value_name(&key, name), data)));
        disk
    }

    pub fn computer_name(&self) -> String {
        self.value(COMPUTER_NAME.0, COMPUTER_NAME.1).map(|name| name.to_lowercase()).unwrap_or_default()
    }

    /// Starts Windows: settles pending changes, and runs the automatic services that `stay` accepts.
    pub fn start(&mut self, moment: u64, stay: impl Fn(&str) -> bool) {
        self.restart_pending = false;
        if let Some(domain) = self.next_domain.take() {
            self.registry.insert(value_name(DOMAIN.0, DOMAIN.1), RegistryData::String(domain));
        }
        let automatic: Vec<String> = self.services.keys().filter(|name| self.is_automatic(name) && stay(name)).cloned().collect();
        for (name, service) in &mut self.services {
            service.running = automatic.contains(name).then_some(moment);
        }
    }

    pub fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(&lower(path))
    }

    /// The value of `--<flag>=` on a service's command line.
    pub fn flag(&self, service: &str, flag: &str) -> Option<&str> {
        let start = format!("--{flag}=");
        let Some(Kind::Service { command_line, .. }) = &self.services.get(&lower(service))?.definition else { return None };
        command_line.split(' ').find_map(|word| word.strip_prefix(&start))
    }

    /// A value of the registry as text.
    pub fn value(&self, key: &str, name: &str) -> Option<String> {
        self.registry.get(&value_name(key, name)).map(text)
    }

    /// Records that kubeadm has joined and started the kubelet.
    pub fn joined(&mut self, moment: u64, kubelet_stays: bool) {
        for path in [paths::KUBELET_KUBECONFIG, paths::KUBELET_CONFIG, paths::CLUSTER_CA, paths::BOOTSTRAP_KUBECONFIG] {
            self.files.insert(lower(path), String::new());
        }
        if kubelet_stays {
            self.run_service("kubelet", moment);
        }
    }

    /// Records that the service runs from now on.
    pub fn run_service(&mut self, name: &str, moment: u64) {
        if let Some(service) = self.services.get_mut(&lower(name)) {
            service.running = Some(moment);
        }
    }

    /// Whether the item is true.
    pub fn is_true(&self, item: &Item, journal: &Journal) -> bool {
        let has_access = |path: &String, access: &Access| *access == Access::Inherited || self.access.get(&lower(path)) == Some(access);
        match &item.kind {
            Kind::Directory { paths, access } => paths.iter().all(|path| self.has_file(path) && has_access(path, access)),
            Kind::File { path, sha256, access, .. } => self.files.get(&lower(path)) == Some(sha256) && has_access(path, access),
            Kind::Download { path, digest, .. } => self.files.get(&lower(path)) == Some(digest),
            Kind::Archive { digest, directory, files, .. } => {
                files.iter().all(|file| self.has_file(&format!(r"{directory}\{file}"))) && self.unpacked.get(&item.id) == Some(digest)
            }
            Kind::Registry { key, name, data, .. } => self.registry.get(&value_name(key, name)) == Some(data),
            Kind::ServiceEnvironment { service, variables } => {
                self.services.get(&lower(service)).is_some_and(|found| found.environment.as_ref() == Some(variables))
            }
            Kind::Environment { name, value } => self.value(ENVIRONMENT, name).as_ref() == Some(value),
            Kind::Feature { names, state } => names.iter().all(|name| self.features.contains(name) == (*state == FeatureState::Enabled)),
            Kind::Firewall { name, .. } => self.firewall.get(name) == Some(&item.kind),
            Kind::Service { name, .. } => self.services.get(&lower(name)).is_some_and(|found| found.definition.as_ref() == Some(&item.kind)),
            Kind::Running { name, after } => {
                let since = self.services.get(&lower(name)).and_then(|service| service.running);
                since.is_some_and(|since| after.iter().all(|id| journal.acted(id) <= since))
            }
            Kind::Task { name, .. } => self.tasks.get(name) == Some(&item.kind),
            Kind::Command { check: None, .. } => self.runs.contains_key(&item.id),
            Kind::Command { check: Some(check), .. } | Kind::Wait { check } => self.holds(check),
            Kind::Script(script) => self.script_holds(script),
            Kind::Reboot { .. } => !self.restart_pending,
            Kind::Absent { paths, tasks } => {
                !paths.iter().any(|path| self.files.keys().any(|file| is_below(file, path)))
                    && !tasks.iter().any(|task| self.tasks.contains_key(task))
            }
        }
    }

    /// Applies the item, or returns the part that the caller must do.
    pub fn act<'a>(&mut self, item: &'a Item, moment: u64) -> Act<'a> {
        match &item.kind {
            Kind::Directory { paths, access } => {
                for path in paths {
                    self.files.entry(lower(path)).or_default();
                    self.access.insert(lower(path), *access);
                }
            }
            Kind::File { path, sha256, access, .. } => {
                self.files.insert(lower(path), sha256.clone());
                self.access.insert(lower(path), *access);
            }
            Kind::Download { path, digest, .. } => {
                self.files.insert(lower(path), digest.clone());
            }
            Kind::Archive { path, digest, directory, files, .. } => {
                match self.files.get(&lower(path)) {
                    None => return Act::Never(format!("{path} does not exist")),
                    Some(found) if found != digest => return Act::Never(format!("expected {path} with digest {digest}, found {found}")),
                    Some(_) => {}
                }
                self.files.extend(files.iter().map(|file| (lower(&format!(r"{directory}\{file}")), String::new())));
                self.unpacked.insert(item.id.clone(), digest.clone());
            }
            Kind::Registry { key, name, data, restart } => {
                self.registry.insert(value_name(key, name), data.clone());
                self.restart_pending |= *restart;
            }
            Kind::ServiceEnvironment { service, variables } => match self.services.get_mut(&lower(service)) {
                Some(found) => found.environment = Some(variables.clone()),
                None => return Act::Never(format!("the service {service} does not exist")),
            },
            Kind::Environment { name, value } => {
                self.registry.insert(value_name(ENVIRONMENT, name), RegistryData::String(value.clone()));
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
            Kind::Service { name, start, depends_on, .. } => {
                if let Some(missing) = depends_on.iter().find(|needed| !self.services.contains_key(&lower(needed))) {
                    return Act::Never(format!("the service {name} needs the service {missing}, which does not exist"));
                }
                self.services.entry(lower(name)).or_default().definition = Some(item.kind.clone());
                self.set_start(name, *start);
            }
            Kind::Running { name, .. } if self.services.contains_key(&lower(name)) => return Act::StartService { name },
            Kind::Running { name, .. } => return Act::Never(format!("the service {name} does not exist")),
            Kind::Task { name, .. } => {
                self.tasks.insert(name.clone(), item.kind.clone());
            }
            Kind::Command { argv, check, exit_codes, .. } => {
                *self.runs.entry(item.id.clone()).or_default() += 1;
                return self.command(argv, check.as_ref(), exit_codes, moment);
            }
            Kind::Script(script) => return self.script(script),
            Kind::Wait { check } => return Act::Wait(check),
            Kind::Reboot { .. } => return Act::Never("a restart is made by who runs the machine".into()),
            Kind::Absent { paths, tasks } => {
                let stays = |file: &String| !paths.iter().any(|path| is_below(file, path));
                self.files.retain(|file, _| stays(file));
                self.access.retain(|file, _| stays(file));
                self.tasks.retain(|task, _| !tasks.contains(task));
            }
        }
        Act::Done
    }

    fn script(&mut self, script: &Script) -> Act<'static> {
        match script {
            Script::Identity { build } => {
                let found = self.value(BUILD.0, BUILD.1).unwrap_or_default();
                return Act::Never(format!("expected Windows Server of build {build}, found Server {found}"));
            }
            Script::DomainJoin { blob, .. } if !self.has_file(blob) => return Act::Never(format!("{blob} does not exist")),
            Script::DomainJoin { domain, .. } => self.next_domain = Some(domain.clone()),
            _ => {
                self.scripts.insert(format!("{script:?}"));
            }
        }
        self.restart_pending |= matches!(script, Script::Hypervisor | Script::DomainJoin { .. });
        Act::Done
    }

    fn script_holds(&self, script: &Script) -> bool {
        match script {
            Script::Identity { build } => self.value(BUILD.0, BUILD.1).is_some_and(|found| found == build.to_string()),
            // The disk is always large enough, and the clock is the host's clock.
            Script::FreeSpace { .. } | Script::Clock { .. } => true,
            Script::DomainJoin { domain, .. } => {
                let now = self.value(DOMAIN.0, DOMAIN.1).is_some_and(|found| found.eq_ignore_ascii_case(domain));
                now || self.next_domain.as_ref() == Some(domain)
            }
            script => self.scripts.contains(&format!("{script:?}")),
        }
    }

    fn is_automatic(&self, service: &str) -> bool {
        self.value(&format!(r"{SERVICES}\{service}"), START).is_some_and(|found| found == AUTOMATIC.to_string())
    }

    fn set_start(&mut self, service: &str, start: Start) {
        let number = match start {
            Start::Auto => AUTOMATIC,
            Start::Demand => ON_DEMAND,
        };
        self.registry.insert(value_name(&format!(r"{SERVICES}\{service}"), START), RegistryData::Dword(number));
    }
}

#[cfg(test)]
impl Disk {
    /// How often each item ran its program.
    pub fn runs(&self) -> &BTreeMap<String, u32> {
        &self.runs
    }

    /// The disk without the start times of services, which a kill may change.
    pub fn without_moments(&self) -> Self {
        let mut disk = self.clone();
        disk.services.values_mut().for_each(|service| service.running = service.running.map(|_| 0));
        disk
    }
}

fn lower(path: &str) -> String {
    path.to_ascii_lowercase()
}

/// Whether the file, in lower case, is that path or below it.
fn is_below(file: &str, path: &str) -> bool {
    file.strip_prefix(&lower(path)).is_some_and(|rest| rest.is_empty() || rest.starts_with('\\'))
}

fn value_name(key: &str, name: &str) -> String {
    format!("{key}|{name}").to_ascii_lowercase()
}

/// The value's text as checks compare it.
fn text(data: &RegistryData) -> String {
    match data {
        RegistryData::String(text) | RegistryData::ExpandString(text) => text.clone(),
        RegistryData::Dword(number) => number.to_string(),
        RegistryData::MultiString(texts) => texts.join(" "),
    }
}
