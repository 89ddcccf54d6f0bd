//! Reads manifests and finds the documents that belong together. Errors name file, document, field, value and remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use crate::api::bootstrap_config::{
    ConfigMapKeyRef, SecretKeyRef, WindowsBootstrapConfig, WindowsBootstrapConfigSpec, WindowsBootstrapConfigTemplate,
};
use crate::api::cluster::WindowsCluster;
use crate::api::components::ComponentsMode;
use crate::api::kubernetes_version::minor;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec, WindowsMachineTemplate};
use crate::api::pool::{WindowsNodePool, WindowsNodePoolSpec};
use crate::cli::documents::{at, documents, secret, text, typed};

/// A named object and its origin.
struct Named<T> {
    name: String,
    origin: String,
    value: T,
}

/// The configuration and machine that a Machine, MachineDeployment or WindowsNodePool refers to, by name.
struct Workers {
    /// The kind and name of the referring object.
    asked_by: String,
    version: Option<String>,
    bootstrap: String,
    infrastructure: String,
}

/// The relevant documents.
#[derive(Default)]
pub struct Manifests {
    configs: Vec<Named<WindowsBootstrapConfigSpec>>,
    machines: Vec<Named<WindowsMachineSpec>>,
    workers: Vec<Workers>,
    /// The names of WindowsNodePools, each with the name of its WindowsMachineTemplate.
    pools: BTreeMap<String, String>,
    /// The version in a Cluster's topology.
    topology_version: Option<String>,
    /// The version of the control plane object, of any provider.
    control_plane_version: Option<String>,
    endpoint: Option<String>,
    service_domain: Option<String>,
    /// Whether a WindowsCluster lets CAPW install the pod network on Windows nodes.
    brings_network: bool,
    /// The images of the pods with which CAPW tests new nodes.
    probe_images: BTreeSet<String>,
    pod_networks: Vec<String>,
    service_networks: Vec<String>,
    /// The values of Secrets. The values of ConfigMaps follow.
    secrets: BTreeMap<SecretKeyRef, Vec<u8>>,
    config_maps: BTreeMap<ConfigMapKeyRef, Vec<u8>>,
}

/// One machine to render.
#[derive(Debug)]
pub struct Machine {
    pub name: String,
    pub origin: String,
    pub spec: WindowsBootstrapConfigSpec,
    /// `None`: no WindowsMachine belongs to the configuration; host name, processors and memory are unknown.
    pub windows: Option<WindowsMachineSpec>,
    pub version: Option<String>,
    /// The kind and name of the object that requests such machines; `None`: no object does.
    pub asked_by: Option<String>,
}

pub fn read(files: &[PathBuf]) -> Result<Manifests, String> {
    let mut manifests = Manifests::default();
    for path in files {
        for (number, document) in documents(&text(path)?).iter().enumerate() {
            manifests.add(&format!("{}: document {}", path.display(), number + 1), document)?;
        }
    }
    Ok(manifests)
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    let all = value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn endpoint(value: &Value) -> Option<String> {
    let port = value.pointer("/spec/controlPlaneEndpoint/port")?.as_i64().filter(|port| *port > 0)?;
    Some(format!("{}:{port}", at(value, "spec.controlPlaneEndpoint.host")?))
}

impl Manifests {
    /// Adds a document if it is relevant.
    pub fn add(&mut self, origin: &str, document: &str) -> Result<(), String> {
        let value: Value = serde_saphyr::from_str(document).map_err(|e| format!("{origin}: {e}"))?;
        let kind = at(&value, "kind").ok_or_else(|| format!("{origin}: kind: it is missing: this is not a Kubernetes object"))?;
        let name = at(&value, "metadata.name").unwrap_or("unnamed").to_owned();
        let origin = format!("{origin} ({kind} {name})");
        let group = at(&value, "apiVersion").and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        match (group, kind) {
            ("bootstrap.cluster.x-k8s.io", "WindowsBootstrapConfig") => {
                let value = typed::<WindowsBootstrapConfig>(&origin, &value)?.spec;
                self.configs.push(Named { name, origin, value });
            }
            ("bootstrap.cluster.x-k8s.io", "WindowsBootstrapConfigTemplate") => {
                let value = typed::<WindowsBootstrapConfigTemplate>(&origin, &value)?.spec.template.spec;
                self.configs.push(Named { name, origin, value });
            }
            ("infrastructure.cluster.x-k8s.io", "WindowsMachine") => {
                let value = typed::<WindowsMachine>(&origin, &value)?.spec;
                self.machines.push(Named { name, origin, value });
            }
            ("infrastructure.cluster.x-k8s.io", "WindowsMachineTemplate") => {
                let value = typed::<WindowsMachineTemplate>(&origin, &value)?.spec.template.spec;
                self.machines.push(Named { name, origin, value });
            }
            ("infrastructure.cluster.x-k8s.io", "WindowsCluster") => {
                let components = typed::<WindowsCluster>(&origin, &value)?.spec.components;
                if let Some(components) = components.filter(|components| components.mode == ComponentsMode::Auto) {
                    self.brings_network = true;
                    self.probe_images.extend(components.probes.image_in_use().map(str::to_owned));
                }
                self.endpoint = self.endpoint.take().or_else(|| endpoint(&value));
            }
            ("infrastructure.cluster.x-k8s.io", "WindowsNodePool") => {
                let spec = typed::<WindowsNodePool>(&origin, &value)?.spec;
                self.pool(name, origin, spec);
            }
            ("", "Secret") => self.secret(&origin, &name, &value)?,
            ("", "ConfigMap") => self.config_map(&origin, &name, &value)?,
            ("cluster.x-k8s.io", "Cluster") => {
                self.pod_networks = texts(&value, "/spec/clusterNetwork/pods/cidrBlocks");
                self.service_networks = texts(&value, "/spec/clusterNetwork/services/cidrBlocks");
                self.endpoint = endpoint(&value).or_else(|| self.endpoint.take());
                self.topology_version = at(&value, "spec.topology.version").map(str::to_owned).or_else(|| self.topology_version.take());
                self.service_domain = at(&value, "spec.clusterNetwork.serviceDomain").map(str::to_owned).or_else(|| self.service_domain.take());
            }
            ("controlplane.cluster.x-k8s.io", _) => {
                // The observed version has priority over the desired one.
                let version = at(&value, "status.version").or_else(|| at(&value, "spec.version"));
                self.control_plane_version = version.map(str::to_owned).or_else(|| self.control_plane_version.take());
            }
            ("cluster.x-k8s.io", "Machine") => self.workers.extend(value.get("spec").map(|spec| workers(format!("{kind} {name}"), spec))),
            ("cluster.x-k8s.io", "MachineDeployment" | "MachineSet" | "MachinePool") => {
                self.workers.extend(value.pointer("/spec/template/spec").map(|spec| workers(format!("{kind} {name}"), spec)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a pool. A pool contains its machine and its configuration, or names templates; for a MachinePool's pool, the MachinePool contains them.
    fn pool(&mut self, name: String, origin: String, spec: WindowsNodePoolSpec) {
        let template = spec.template;
        let bootstrap = template.bootstrap.or_else(|| (spec.cluster.is_some() && template.bootstrap_template_ref.is_none()).then(Default::default));
        let reference = template.bootstrap_template_ref.map(|reference| reference.name);
        if let Some(bootstrap) = bootstrap.as_ref().map(|_| name.clone()).or(reference) {
            let asked_by = format!("WindowsNodePool {name}");
            self.workers.push(Workers { asked_by, version: spec.version, bootstrap, infrastructure: name.clone() });
        }
        self.pools.extend(template.machine_template_ref.map(|reference| (name.clone(), reference.name)));
        self.machines.extend(template.machine.map(|value| Named { name: name.clone(), origin: origin.clone(), value }));
        self.configs.extend(bootstrap.map(|value| Named { name, origin, value }));
    }

    /// Whether a configuration exists.
    pub fn has_configs(&self) -> bool {
        !self.configs.is_empty()
    }

    /// Whether CAPW installs the pod network and kube-proxy on Windows nodes.
    pub fn brings_network(&self) -> bool {
        self.brings_network
    }

    /// The images of the pods with which CAPW tests new nodes.
    pub fn probe_images(&self) -> impl Iterator<Item = &String> {
        self.probe_images.iter()
    }

    /// The minor version of the API server: from the control plane's own version, or else from the Cluster's version.
    pub fn api_server_minor(&self) -> Option<u32> {
        minor(self.control_plane_version.as_deref().or(self.topology_version.as_deref())?)
    }

    /// Returns one machine per configuration, from the first object that names it.
    pub fn machines(&self) -> Result<Vec<Machine>, String> {
        self.configs()?.iter().map(|config| self.machine(config, self.workers_of(config).next())).collect()
    }

    /// Returns a machine for each object that names a configuration: their versions and images differ. An unnamed configuration has one machine.
    pub fn machines_of_all(&self) -> Result<Vec<Result<Machine, String>>, String> {
        let mut machines = Vec::new();
        for config in self.configs()? {
            let before = machines.len();
            machines.extend(self.workers_of(config).map(|workers| self.machine(config, Some(workers))));
            if machines.len() == before {
                machines.push(self.machine(config, None));
            }
        }
        Ok(machines)
    }

    fn configs(&self) -> Result<&[Named<WindowsBootstrapConfigSpec>], String> {
        if self.configs.is_empty() {
            return Err("no document is a WindowsBootstrapConfig or WindowsBootstrapConfigTemplate: give the file that holds it with -f".into());
        }
        Ok(&self.configs)
    }

    fn workers_of<'a>(&'a self, config: &'a Named<WindowsBootstrapConfigSpec>) -> impl Iterator<Item = &'a Workers> {
        self.workers.iter().filter(|workers| workers.bootstrap == config.name)
    }

    /// Returns a machine with the WindowsMachine that an object links to the configuration, or else with the only WindowsMachine.
    fn machine(&self, config: &Named<WindowsBootstrapConfigSpec>, workers: Option<&Workers>) -> Result<Machine, String> {
        let template = workers.map(|workers| self.pools.get(&workers.infrastructure).unwrap_or(&workers.infrastructure));
        let windows = match (workers, self.machines.as_slice()) {
            (Some(workers), machines) => match machines.iter().find(|machine| Some(&machine.name) == template) {
                Some(machine) => Some(machine),
                None if workers.infrastructure.is_empty() || machines.is_empty() => None,
                None => {
                    return Err(format!(
                        "{}: spec.infrastructureRef.name: {:?}: no WindowsMachine(Template) with that name is among the documents",
                        config.origin, workers.infrastructure
                    ));
                }
            },
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let version = workers.and_then(|workers| workers.version.clone()).or_else(|| self.topology_version.clone());
        let origin = windows.map_or_else(|| config.origin.clone(), |machine| format!("{} with {}", config.origin, machine.origin));
        Ok(Machine {
            name: config.name.clone(),
            origin,
            spec: config.value.clone(),
            windows: windows.map(|machine| machine.value.clone()),
            version,
            asked_by: workers.map(|workers| workers.asked_by.clone()),
        })
    }

    /// The `host:port` of a Cluster, or else of a WindowsCluster.
    pub fn endpoint(&self) -> Option<String> {
        self.endpoint.clone()
    }

    pub fn service_domain(&self) -> Option<String> {
        self.service_domain.clone()
    }

    /// The networks of pods and of Services.
    pub fn networks(&self) -> (Vec<String>, Vec<String>) {
        (self.pod_networks.clone(), self.service_networks.clone())
    }

    /// The value of a Secret among the documents.
    pub fn secret_value(&self, reference: &SecretKeyRef) -> Option<Vec<u8>> {
        self.secrets.get(reference).cloned()
    }

    /// The value of a ConfigMap among the documents.
    pub fn config_map_value(&self, reference: &ConfigMapKeyRef) -> Option<Vec<u8>> {
        self.config_maps.get(reference).cloned()
    }

    fn config_map(&mut self, origin: &str, name: &str, value: &Value) -> Result<(), String> {
        let map: ConfigMap = typed(origin, value)?;
        let bytes = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
        for (key, bytes) in bytes.chain(map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()))) {
            self.config_maps.insert(ConfigMapKeyRef { name: name.to_owned(), key }, bytes);
        }
        Ok(())
    }

    fn secret(&mut self, origin: &str, name: &str, value: &Value) -> Result<(), String> {
        let secret = secret(origin, value)?;
        let given = secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
        for (key, bytes) in given.chain(secret.string_data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()))) {
            self.secrets.insert(SecretKeyRef { name: name.to_owned(), key }, bytes);
        }
        Ok(())
    }
}

fn workers(asked_by: String, spec: &Value) -> Workers {
    // Objects of other providers may have the same names.
    let name = |reference: &str, kinds: &str| {
        let is_ours = at(spec, &format!("{reference}.kind")).is_none_or(|kind| kind.starts_with(kinds));
        at(spec, &format!("{reference}.name")).filter(|_| is_ours).unwrap_or_default().to_owned()
    };
    Workers {
        asked_by,
        version: at(spec, "version").map(str::to_owned),
        bootstrap: name("bootstrap.configRef", "WindowsBootstrapConfig"),
        infrastructure: name("infrastructureRef", "Windows"),
    }
}
