//! What is on the disk of a simulated Windows machine, and what the items of a plan do to it. Pure; a model, not Windows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::discovery::hexadecimal;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Check, Item, Kind, RegistryData, Start};

const COMPUTER_NAME: (&str, &str) = (r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName", "ComputerName");

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
    firewall: BTreeSet<String>,
    services: BTreeMap<String, Service>,
    tasks: BTreeSet<String>,
    restart_pending: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Service {
    command_line: String,
    automatic: bool,
    running: bool,
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
    /// A machine as its image is, after cloudbase-init gave it its name.
    pub fn of_image(computer_name: &str) -> Self {
        let mut disk = Self::default();
        for program in [paths::CONTAINERD, paths::KUBELET, paths::KUBEADM, paths::LOG_RUNNER] {
            disk.files.insert(lower(program), String::new());
        }
        disk.registry.insert(value_name(COMPUTER_NAME.0, COMPUTER_NAME.1), computer_name.to_uppercase());
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
            Kind::Registry { key, name, data } => {
                let text = match data {
                    RegistryData::String(text) => text.clone(),
                    RegistryData::Dword(number) => number.to_string(),
                };
                self.registry.insert(value_name(key, name), text);
            }
            Kind::Environment { name, value } => {
                self.registry.insert(value_name("environment", name), value.clone());
            }
            Kind::Feature { names } => {
                for name in names {
                    self.restart_pending |= self.features.insert(name.clone());
                }
            }
            Kind::Firewall { name, .. } => {
                self.firewall.insert(name.clone());
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
            Kind::Command { argv, check, .. } => {
                if self.holds(check) {
                    return Act::Done;
                }
                return self.command(argv, check);
            }
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

    fn command<'a>(&mut self, argv: &'a [String], check: &Check) -> Act<'a> {
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
        // Any other program does what it is for.
        match check {
            Check::File(path) => self.files.insert(lower(path), String::new()),
            Check::Registry { key, name, equals } => self.registry.insert(value_name(key, name), equals.clone()),
            Check::Pipe(_) | Check::Url(_) => return Act::Never(format!("{program} ended and it did not come: {check:?}")),
        };
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
    serde_json::to_vec(&item).map(|bytes| hexadecimal(&Sha256::digest(bytes))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
    use crate::api::name::HostName;
    use crate::bootstrap::facts::KubernetesVersion;
    use crate::bootstrap::plan::{Plan, When};
    use crate::bootstrap::{BootstrapFacts, ca_hash, render};

    fn plan() -> Plan {
        let ca_pem = include_str!("../../../bootstrap/sample-ca.pem").to_owned();
        let facts = BootstrapFacts {
            machine_uid: "u".into(),
            machine_name: "win-1".into(),
            generation: 1,
            host_name: Some(HostName::parse("win-1").unwrap()),
            provider_id: None,
            kubernetes: KubernetesVersion::parse("v1.36.3").unwrap(),
            endpoint: "127.0.0.1:6443".into(),
            ca_hash: ca_hash(&ca_pem).unwrap(),
            ca_pem,
            token: "abcdef.0123456789abcdef".to_owned().into(),
            cpus: Some(4),
            memory_mib: Some(8192),
            system_disk_gib: None,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            pod_networks: Vec::new(),
            service_networks: Vec::new(),
            secrets: Default::default(),
            spec: WindowsBootstrapConfigSpec::default(),
        };
        render(&facts).unwrap().plan
    }

    /// Carries out the rest of a plan, at most `limit` acts; true when the plan is done.
    fn carry_out(disk: &mut Disk, plan: &Plan, mut limit: usize) -> bool {
        for item in &plan.items {
            while !disk.finished(item) {
                if limit == 0 {
                    return false;
                }
                limit -= 1;
                match disk.act(item) {
                    Act::Done => disk.finish(item),
                    Act::Restart => disk.start(),
                    Act::Join { configuration } => {
                        assert_eq!(configuration, paths::JOIN_CONFIG);
                        assert!(disk.holds(&Check::Pipe(paths::CRI_PIPE.into())), "the kubelet needs containerd");
                        assert!(disk.has_file(paths::KUBELET_PATCH));
                        disk.joined();
                    }
                    Act::Never(reason) => panic!("{}: {reason}", item.id),
                }
            }
        }
        true
    }

    fn machine() -> Disk {
        let mut disk = Disk::of_image("win-1");
        disk.start();
        disk
    }

    #[test]
    fn the_rendered_plan_makes_a_node_and_leaves_no_secret() {
        let (plan, mut disk) = (plan(), machine());
        assert!(carry_out(&mut disk, &plan, 1000));
        assert_eq!(disk.boot, 2, "one restart, for the feature");
        assert!(disk.has_file(paths::SENTINEL) && disk.has_file(paths::KUBELET_KUBECONFIG));
        assert!(!disk.has_file(paths::JOIN_CONFIG) && !disk.has_file(paths::BOOTSTRAP_KUBECONFIG));
        assert_eq!(disk.flag("kubelet", "hostname-override"), Some("win-1"));
        disk.start();
        assert!(disk.holds(&Check::Url("http://127.0.0.1:10248/healthz".into())), "the kubelet starts with Windows");
        assert!(plan.items.iter().all(|item| disk.finished(item)), "nothing is done twice");
    }

    #[test]
    fn a_kill_after_any_step_leads_to_the_same_end() {
        let plan = plan();
        let mut whole = machine();
        assert!(carry_out(&mut whole, &plan, 1000));
        for steps in 0.. {
            let mut disk = machine();
            let done = carry_out(&mut disk, &plan, steps);
            let mut disk: Disk = serde_json::from_slice(&serde_json::to_vec(&disk).unwrap()).unwrap();
            assert!(carry_out(&mut disk, &plan, 1000), "after {steps} steps");
            assert_eq!(disk, whole, "after {steps} steps");
            if done {
                break;
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let item = |kind| Item { id: "x".into(), kind, code: 1, seconds: 1, attempts: 1, unless: None, why: Default::default() };
        let mut disk = machine();
        for (kind, named) in [
            (Kind::Running { name: "containerd".into(), after: vec![] }, "containerd"),
            (Kind::Wait { check: Check::File(r"C:\none.exe".into()) }, "none.exe"),
            (
                Kind::Command {
                    argv: vec![paths::KUBEADM.into(), "join".into(), "--config".into(), r"C:\none.yaml".into()],
                    directory: String::new(),
                    check: Check::File(paths::KUBELET_KUBECONFIG.into()),
                    undo: vec![],
                },
                "none.yaml",
            ),
        ] {
            let item = item(kind);
            assert!(matches!(disk.act(&item), Act::Never(reason) if reason.contains(named)), "{named}");
        }
        assert_eq!(disk.act(&item(Kind::Reboot { when: When::Pending })), Act::Done, "nothing asks for a restart");
        assert_eq!(disk.computer_name(), "win-1");
    }
}
