//! The facts of a machine, from manifests, flags and placeholders.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use secrecy::SecretString;

use super::manifests::{Machine, Manifests};
use crate::api::bootstrap_config::SecretUse;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::name::{HostName, ProviderId, VmUuid, mebibytes};
use crate::bootstrap::{BootstrapFacts, Secrets, ca_hash};

/// A token that no cluster accepts.
const PLACEHOLDER_TOKEN: &str = "000000.placeholdertoken";
const PLACEHOLDER_ENDPOINT: &str = "placeholder.invalid:6443";
/// A certificate without a key: nothing can be signed with it.
const PLACEHOLDER_CA: &str = include_str!("../../bootstrap/sample-ca.pem");

/// The text in place of missing documents.
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
            kubernetes: KubernetesVersion::supported(version).map_err(|e| at(&e))?,
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
