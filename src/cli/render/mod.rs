//! `capw render`: the bootstrap data of a machine, without a cluster. Values that only a cluster knows are marked placeholders.

pub mod manifests;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use secrecy::SecretString;

use self::manifests::{Machine, Manifests};
use super::output::print;
use crate::api::bootstrap_config::SecretUse;
use crate::api::name::{HostName, ProviderId, VmUuid, mebibytes};
use crate::bootstrap::delivery::{self, Instance, SeedImage};
use crate::bootstrap::facts::KubernetesVersion;
use crate::bootstrap::read::Payload;
use crate::bootstrap::render::reserves;
use crate::bootstrap::{self, Bootstrap, BootstrapFacts, DataSize, Secrets, ca_hash, finding};

/// A token that no cluster accepts.
const PLACEHOLDER_TOKEN: &str = "000000.placeholdertoken";
const PLACEHOLDER_ENDPOINT: &str = "placeholder.invalid:6443";
/// A certificate without a key: nothing can be signed with it.
const PLACEHOLDER_CA: &str = include_str!("../../bootstrap/sample-ca.pem");

/// Flags of `capw render`.
#[derive(Args, Debug)]
pub struct Render {
    /// YAML files with a WindowsBootstrapConfig or its template, and what belongs to it: WindowsMachine(Template), Cluster, MachineDeployment, Secrets. `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    /// Write the files of each machine, its user data and its config drive below this directory instead of printing.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print an explanation of the plan, how the reserves were computed, and which settings have no effect.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    given: Given,
}

/// What is said instead of documents that are not there.
#[derive(Args, Debug, Default)]
pub struct Given {
    /// Version of Kubernetes, e.g. v1.36.3. Default: that of the Machine, MachineDeployment, WindowsNodePool or Cluster.
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<String>,
    /// host:port of the API server. Default: the Cluster's, else a placeholder.
    #[arg(long, value_name = "HOST:PORT")]
    pub endpoint: Option<String>,
    /// Certificate of the cluster's CA, PEM. Default: a placeholder.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

impl Render {
    pub fn main(self) -> Result<(), String> {
        let text = self.run()?;
        print(text)
    }

    /// Returns the output.
    fn run(&self) -> Result<String, String> {
        let manifests = manifests::read(&self.file)?;
        let mut text = String::new();
        for machine in manifests.machines()? {
            let facts = self.given.facts(&manifests, &machine)?;
            let rendered = bootstrap::render(&facts).map_err(|e| format!("{}: {e}", machine.origin))?;
            match &self.output {
                Some(directory) => text.push_str(&write(&directory.join(&machine.name), &facts, &rendered)?),
                None if !self.explain => text.push_str(&listing(&rendered)?),
                None => {}
            }
            if self.explain {
                text.push_str(&bootstrap::explain(&rendered.plan));
                text.push_str(&reserves::explain(&facts, &rendered.reserves));
                text.push_str(&finding::explain(&rendered.warnings));
            }
        }
        Ok(text)
    }
}

impl Given {
    /// The facts of a machine; missing values are placeholders.
    pub fn facts(&self, manifests: &Manifests, machine: &Machine) -> Result<BootstrapFacts, String> {
        let at = |e: &dyn std::fmt::Display| format!("{}: {e}", machine.origin);
        let version = self.kubernetes_version.as_deref().or(machine.version.as_deref()).ok_or_else(|| {
            at(&"the version of Kubernetes is not known: add the Machine or MachineDeployment that names it, or give --kubernetes-version v1.36.3")
        })?;
        let ca_pem = match &self.ca_file {
            Some(path) => fs::read_to_string(path).map_err(|e| format!("--ca-file {}: {e}", path.display()))?,
            None => PLACEHOLDER_CA.to_owned(),
        };
        let vm = VmUuid::of(&machine.name);
        let windows = machine.windows.as_ref();
        let hypervisor = windows.and_then(|spec| spec.hypervisor_ref.as_ref()).map_or("placeholder", |reference| &reference.name);
        let (pod_networks, service_networks) = manifests.networks();
        let mut secrets = Secrets::default();
        for used in machine.spec.secret_refs() {
            secrets.insert(used.reference.clone(), manifests.secret_value(used.reference).unwrap_or_else(|| placeholder(&used)));
        }
        if let Some(reference) = machine.spec.config_map_ref() {
            secrets.insert_public(reference.clone(), manifests.config_map_value(reference).unwrap_or_else(|| PLACEHOLDER_CA.into()));
        }
        Ok(BootstrapFacts {
            machine_uid: vm.to_string(),
            machine_name: machine.name.clone(),
            generation: 1,
            host_name: windows.map(|spec| HostName::choose(&machine.name, vm, spec.host_name)).transpose().map_err(|e| at(&e))?,
            provider_id: windows.map(|_| ProviderId { hypervisor: hypervisor.to_owned(), vm }.to_string()),
            kubernetes: KubernetesVersion::parse(version).map_err(|e| at(&e))?,
            api_server_minor: manifests.api_server_minor(),
            endpoint: self.endpoint.clone().or_else(|| manifests.endpoint()).unwrap_or_else(|| PLACEHOLDER_ENDPOINT.into()),
            ca_hash: ca_hash(&ca_pem).map_err(|e| format!("--ca-file: {e}"))?,
            ca_pem,
            token: SecretString::from(PLACEHOLDER_TOKEN),
            cpus: windows.and_then(|spec| u32::try_from(spec.cpus).ok()),
            memory_mib: windows.map(|spec| mebibytes(&spec.memory)).transpose().map_err(|e| at(&e))?,
            system_disk_gib: windows
                .and_then(|spec| spec.system_disk.as_deref())
                .map(mebibytes)
                .transpose()
                .map_err(|e| at(&e))?
                .map(|mib| mib >> 10),
            cluster_dns: machine.spec.kubelet.cluster_dns.clone(),
            cluster_domain: manifests.service_domain().unwrap_or_else(|| "cluster.local".into()),
            pod_networks,
            service_networks,
            // Only the cluster shows the size of a node's block.
            pods_per_node: None,
            secrets,
            spec: machine.spec.clone(),
        })
    }
}

/// The placeholder for a Secret's value, if the Secret is not among the documents.
fn placeholder(used: &SecretUse<'_>) -> Vec<u8> {
    match used.field.as_str() {
        field if field.contains("caBundle") => PLACEHOLDER_CA.as_bytes().to_vec(),
        field if field.contains("clientCertificate.certificateFrom") => PLACEHOLDER_CA.as_bytes().to_vec(),
        field if field.contains("clientCertificate.keyFrom") => b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_vec(),
        field if field.contains("productKey") => b"PLACE-HOLDE-R0000-00000-00000".to_vec(),
        _ => format!("placeholder for {} of Secret {}", used.reference.key, used.reference.name).into_bytes(),
    }
}

/// The files of the payload, unpacked in the way of a guest, so that they show what a guest gets.
fn payload(rendered: &Bootstrap) -> Result<Payload, String> {
    Payload::from_user_data(rendered.user_data.as_bytes()).map_err(|e| format!("what was rendered cannot be read: {e}; please report this"))
}

/// Formats the texts, without the scripts that are the same for every machine.
fn listing(rendered: &Bootstrap) -> Result<String, String> {
    let mut files = payload(rendered)?.files;
    files.extend(rendered.answer.as_ref().map(|answer| ("unattend.xml".to_owned(), answer.as_bytes().to_vec())));
    let shown = files.iter().filter(|(path, _)| !path.starts_with("runner/"));
    Ok(shown.map(|(path, bytes)| format!("==> {path} <==\n{}\n", String::from_utf8_lossy(bytes))).collect())
}

/// Writes all files below `directory`; returns the path, and the used share of the channel's limit.
fn write(directory: &Path, facts: &BootstrapFacts, rendered: &Bootstrap) -> Result<String, String> {
    let channel = facts.spec.channel;
    let answer = rendered.answer.as_ref().map(|answer| answer.as_bytes()).unwrap_or_default();
    let user_data = rendered.user_data.as_bytes();
    let instance = Instance { vm: VmUuid::of(&facts.machine_uid), host_name: facts.host_name.as_ref(), user_data, answer };
    let mut files = payload(rendered)?.files;
    files.insert("user_data".into(), user_data.to_vec());
    if rendered.answer.is_some() {
        files.insert("unattend.xml".into(), answer.to_vec());
    }
    match SeedImage::from(&delivery::build(channel, &instance)) {
        SeedImage::Drive(image) => files.insert("config-drive.iso".into(), image),
        SeedImage::GuestInfo(values) => files.insert("guestinfo.json".into(), serde_json::to_vec_pretty(&values).map_err(|e| e.to_string())?),
    };
    for (name, bytes) in &files {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let DataSize { bytes, limit, limit_name } = rendered.user_data.size(channel);
    Ok(format!("{}: {} files, {bytes} of {limit} bytes ({channel}: {limit_name})\n", directory.display(), files.len()))
}

#[cfg(test)]
mod tests;
