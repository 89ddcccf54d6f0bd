//! The facts about a node that is to be created, from the current objects.

use kube::ResourceExt;
use secrecy::SecretString;

use crate::api::bootstrap_config::{Taint, TaintEffect, WindowsBootstrapConfig, WindowsBootstrapConfigSpec};
use crate::api::capi::{CidrBlocks, Endpoint};
use crate::api::components::UNVERIFIED_TAINT;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::machine::WindowsMachine;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::render::kubelet::lasting_taints;
use crate::bootstrap::{self, RenderError, Secrets};
use crate::domain::identity::{future_provider_id, host_name};
use crate::domain::owner::{NodeRequest, TargetCluster};
use crate::domain::pod_network::PodNetwork;
use crate::kinds::machine::decide::step::vm_spec;
use crate::kube_api::workload::Workload;

/// The well-known label of the zone that a Node is in.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Why facts or bytes are unavailable from the current objects.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("{0}")]
    Facts(String),
}

/// Everything that rendering depends on, except the token.
pub struct Sources<'a> {
    pub object: &'a WindowsBootstrapConfig,
    pub request: &'a NodeRequest,
    pub target: &'a TargetCluster,
    /// The WindowsMachine, if CAPW provides the machine.
    pub windows_machine: Option<&'a WindowsMachine>,
    pub endpoint: &'a Endpoint,
    pub workload: &'a Workload,
    /// `None` if the API server cannot be queried.
    pub api_server_minor: Option<u32>,
    pub secrets: &'a Secrets,
}

impl Sources<'_> {
    /// Returns the facts. An error names the field that is missing or wrong.
    pub fn facts(&self, token: SecretString) -> Result<BootstrapFacts, DataError> {
        let wrong = |text: String| DataError::Facts(text);
        let Some(version) = self.request.version.as_deref() else {
            return Err(wrong(format!(
                "Machine {}: spec.version is not set; name the Kubernetes version of the node, e.g. v1.36.3",
                self.request.name
            )));
        };
        let kubernetes = KubernetesVersion::supported(version).map_err(|e| wrong(format!("Machine spec.version: {e}")))?;
        let Some(ca_pem) = self.workload.ca_pem.clone() else {
            return Err(wrong(format!(
                "the kubeconfig of Cluster {} has no certificate-authority-data: nodes need the CA of their cluster",
                self.target.cluster
            )));
        };
        let ca_hash = bootstrap::ca_hash(&ca_pem).map_err(|e| wrong(format!("the CA in the kubeconfig of Cluster {}: {e}", self.target.cluster)))?;
        let ours = self.windows_machine.filter(|_| self.request.is_for_windows_machine());
        let vm = ours.map(vm_spec).transpose().map_err(|e| wrong(e.to_string()))?;
        let network = self.target.network.clone();
        let blocks = |networks: Option<CidrBlocks>| networks.map(|n| n.cidr_blocks).unwrap_or_default();
        let spec = with_zone(self.object.spec.clone(), self.request.failure_domain.as_deref());
        Ok(BootstrapFacts {
            machine_uid: self.object.uid().unwrap_or_default(),
            machine_name: self.request.name.clone(),
            generation: self.object.metadata.generation.unwrap_or(1),
            host_name: ours.map(host_name).transpose().map_err(|e| wrong(e.to_string()))?,
            provider_id: ours.and_then(future_provider_id).map(|id| id.to_string()),
            kubernetes,
            api_server_minor: self.api_server_minor,
            endpoint: format!("{}:{}", self.endpoint.host, self.endpoint.port),
            ca_pem,
            ca_hash,
            token,
            cpus: vm.as_ref().map(|v| v.cpus),
            memory_mib: vm.as_ref().map(|v| v.memory_mib),
            system_disk_gib: vm.as_ref().and_then(|v| v.system_disk_gib),
            cluster_dns: self.object.spec.kubelet.cluster_dns.clone(),
            cluster_domain: network.service_domain.filter(|d| !d.is_empty()).unwrap_or_else(|| "cluster.local".into()),
            pod_networks: blocks(network.pods),
            service_networks: blocks(network.services),
            pods_per_node: self.target.pods_per_node,
            secrets: self.secrets.clone(),
            spec: match self.target.pod_network {
                Some(PodNetwork::Brought) => brought(spec)?,
                Some(PodNetwork::Refused) => tainted(spec),
                Some(PodNetwork::ByOthers) | None => spec,
            },
        })
    }
}

/// The spec with the Node's zone: the failure domain of its Machine, unless the user has set a zone, a cloud provider sets one, or the name
/// is too long for a label.
fn with_zone(mut spec: WindowsBootstrapConfigSpec, failure_domain: Option<&str>) -> WindowsBootstrapConfigSpec {
    if let Some(zone) = failure_domain.filter(|zone| zone.len() <= 63 && spec.kubelet.cloud_provider.is_none()) {
        spec.kubelet.node_labels.entry(ZONE_LABEL.to_owned()).or_insert_with(|| zone.to_owned());
    }
    spec
}

/// The spec of a Node whose network and kube-proxy CAPW brings: it has a taint until they work.
fn brought(spec: WindowsBootstrapConfigSpec) -> Result<WindowsBootstrapConfigSpec, DataError> {
    if spec.kube_proxy.is_some() {
        let why = "spec.kubeProxy: leave it out: the WindowsCluster has components.mode Auto, so CAPW runs kube-proxy in pods, and two of them would \
                   write the same load balancers";
        return Err(DataError::Facts(why.into()));
    }
    Ok(tainted(spec))
}

/// The spec of a Node with the taint that keeps pods away until its network works.
fn tainted(mut spec: WindowsBootstrapConfigSpec) -> WindowsBootstrapConfigSpec {
    let mut taints = lasting_taints(&spec);
    taints.retain(|taint| taint.key != UNVERIFIED_TAINT);
    taints.push(Taint { key: UNVERIFIED_TAINT.into(), value: None, effect: TaintEffect::NoSchedule });
    spec.kubelet.taints = Some(taints);
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::capi::{Cluster, ClusterSpec, Machine};
    use crate::bootstrap::sample::CA;
    use crate::kube_api::mock::Script;
    use crate::testing::read;

    #[test]
    fn the_zone_of_a_node_is_the_failure_domain_of_its_machine_unless_the_user_or_a_cloud_says_otherwise() {
        let longest = "x".repeat(63);
        for (kubelet, failure_domain, zone) in [
            (json!({}), Some("h1"), Some("h1")),
            (json!({"nodeLabels": {ZONE_LABEL: "own"}}), Some("h1"), Some("own")),
            (json!({"cloudProvider": "External"}), Some("h1"), None),
            (json!({}), Some(&*longest), Some(&*longest)),
            (json!({}), Some(&*"x".repeat(64)), None),
            (json!({}), None, None),
        ] {
            let spec = with_zone(serde_json::from_value(json!({"kubelet": kubelet})).unwrap(), failure_domain);
            assert_eq!(spec.kubelet.node_labels.get(ZONE_LABEL).map(String::as_str), zone, "{kubelet} {failure_domain:?}");
        }
    }

    #[tokio::test]
    async fn the_facts_of_a_machine_have_its_zone() {
        let machine: Machine =
            read(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab"},
            "spec": {"clusterName": "c1", "version": "v1.36.3", "failureDomain": "h1",
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": "win-1"}}}));
        let (client, _script) = Script::new(vec![]);
        let sources = Sources {
            object: &WindowsBootstrapConfig::new("win-1", WindowsBootstrapConfigSpec::default()),
            request: &NodeRequest::of_machine(&machine),
            target: &TargetCluster::of_cluster(&Cluster::new("c1", ClusterSpec::default()), None),
            windows_machine: None,
            endpoint: &Endpoint { host: "10.0.0.1".into(), port: 6443 },
            workload: &Workload { ca_pem: Some(CA.into()), ..Workload::of(client) },
            api_server_minor: None,
            secrets: &Secrets::default(),
        };
        let facts = sources.facts("abcdef.0123456789abcdef".to_owned().into()).unwrap();
        assert_eq!(facts.spec.kubelet.node_labels.get(ZONE_LABEL).map(String::as_str), Some("h1"));
    }

    #[test]
    fn a_node_that_gets_its_network_has_a_taint_and_no_kube_proxy_of_its_own() {
        let brought = |spec| {
            brought(serde_json::from_value(spec).unwrap()).map(|spec| spec.kubelet.taints.unwrap().into_iter().map(|t| t.key).collect::<Vec<_>>())
        };
        for (spec, taints) in [
            (json!({}), vec!["os", UNVERIFIED_TAINT]),
            (json!({"kubelet": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}}), vec!["gpu", UNVERIFIED_TAINT]),
            (json!({"kubelet": {"taints": [{"key": UNVERIFIED_TAINT, "effect": "NoSchedule"}]}}), vec![UNVERIFIED_TAINT]),
        ] {
            assert_eq!(brought(spec.clone()).unwrap(), taints, "{spec}");
        }
        let error = brought(json!({"kubeProxy": {"networkName": "cbr0"}})).unwrap_err().to_string();
        assert!(error.starts_with("spec.kubeProxy: leave it out"), "{error}");
    }
}
