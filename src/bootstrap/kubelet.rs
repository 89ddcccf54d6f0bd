//! What the kubelet is told: our fields of the KubeletConfiguration, its flags, its service.
//!
//! kubeadm downloads the cluster's configuration, which is made for Linux, and lays our patch over it: our fields win, the
//! cluster's own choices stay. Flags are kept to what has no field. Nothing on Windows reads kubeadm-flags.env, so the service's
//! command line carries the flags itself (`windows-bootstrap.md` §1.8, §2).

use std::collections::BTreeMap;

use serde::Serialize;

use super::error::RenderError;
use super::facts::BootstrapFacts;
use super::reserve::{Amount, reserves};
use super::{paths, yaml};
use crate::api::bootstrap_config::{PriorityClass, Taint, TaintEffect};

/// Cluster API removes it once it has set the labels of the Machine on the Node.
pub const UNINITIALIZED_TAINT: &str = "node.cluster.x-k8s.io/uninitialized";
/// Longest command line that cmd.exe can carry; tools that show or edit a service use it.
const COMMAND_LINE: usize = 8191;

/// The fields that we set, and no others.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfiguration {
    api_version: &'static str,
    kind: &'static str,
    #[serde(rename = "cgroupsPerQOS")]
    cgroups_per_qos: bool,
    enforce_node_allocatable: [&'static str; 1],
    resolv_conf: &'static str,
    container_runtime_endpoint: &'static str,
    #[serde(rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    cluster_dns: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster_domain: String,
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    register_with_taints: Vec<Taint>,
    max_pods: u32,
    system_reserved: BTreeMap<&'static str, String>,
    kube_reserved: BTreeMap<&'static str, String>,
    eviction_hard: BTreeMap<&'static str, String>,
    rotate_certificates: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    shutdown_grace_period: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shutdown_grace_period_critical_pods: Option<&'static str>,
}

/// `kubeletconfiguration+strategic.yaml`.
pub(super) fn patch(facts: &BootstrapFacts) -> Result<String, RenderError> {
    let reserves = reserves(facts)?;
    // On by default and effective for native services from 1.34 (WindowsGracefulNodeShutdown).
    let graceful = facts.kubernetes.minor >= 34;
    let configuration = KubeletConfiguration {
        api_version: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        cgroups_per_qos: false,
        // An empty list would be dropped when kubeadm writes the file again.
        enforce_node_allocatable: ["none"],
        resolv_conf: "",
        container_runtime_endpoint: paths::CRI_SOCKET,
        cluster_dns: facts.cluster_dns.clone(),
        cluster_domain: facts.cluster_domain.clone(),
        provider_id: facts.provider_id.clone(),
        register_with_taints: taints(facts),
        max_pods: reserves.max_pods,
        system_reserved: resources(reserves.system),
        kube_reserved: resources(reserves.kube),
        eviction_hard: reserves.eviction_hard,
        rotate_certificates: true,
        shutdown_grace_period: graceful.then_some("60s"),
        shutdown_grace_period_critical_pods: graceful.then_some("20s"),
    };
    yaml::document("the kubelet's configuration", &configuration)
}

fn resources(amount: Amount) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("cpu", format!("{}m", amount.milli_cpu)),
        ("memory", format!("{}Mi", amount.memory_mib)),
        ("ephemeral-storage", format!("{}Mi", amount.ephemeral_mib)),
    ])
}

/// What the Node registers with: the user's or the community's `os=windows`, and Cluster API's own.
pub(super) fn taints(facts: &BootstrapFacts) -> Vec<Taint> {
    let windows = || vec![Taint { key: "os".into(), value: Some("windows".into()), effect: TaintEffect::NoSchedule }];
    let mut taints = facts.spec.kubelet.taints.clone().unwrap_or_else(windows);
    taints.retain(|taint| taint.key != UNINITIALIZED_TAINT);
    taints.push(Taint { key: UNINITIALIZED_TAINT.into(), value: None, effect: TaintEffect::NoSchedule });
    taints
}

/// Flags that have no field in the configuration: name and value, for kubeadm and for the service.
pub(super) fn flags(facts: &BootstrapFacts) -> Vec<(&'static str, String)> {
    let mut flags = Vec::new();
    if let Some(name) = &facts.host_name {
        flags.push(("hostname-override", name.to_string()));
    }
    let labels: Vec<String> = facts.spec.kubelet.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !labels.is_empty() {
        flags.push(("node-labels", labels.join(",")));
    }
    let class = match facts.spec.kubelet.priority_class.unwrap_or(PriorityClass::AboveNormal) {
        PriorityClass::Normal => "NORMAL_PRIORITY_CLASS",
        PriorityClass::AboveNormal => "ABOVE_NORMAL_PRIORITY_CLASS",
        PriorityClass::High => "HIGH_PRIORITY_CLASS",
    };
    flags.push(("windows-priorityclass", class.to_owned()));
    flags
}

/// Command line of the service. The kubelet writes to its standard error only, which a service has not: kube-log-runner gives
/// it a file.
pub(super) fn command_line(facts: &BootstrapFacts) -> Result<String, RenderError> {
    let mut parts = vec![
        paths::LOG_RUNNER.to_owned(),
        format!(r"--log-file={}\kubelet.log", paths::KUBELET_LOG),
        paths::KUBELET.to_owned(),
        "--windows-service".to_owned(),
        format!("--config={}", paths::KUBELET_CONFIG),
        // With the drive: without it the certificate's path is read as relative to that of kubelet.conf.
        format!("--cert-dir={}", paths::KUBELET_PKI),
        format!("--bootstrap-kubeconfig={}", paths::BOOTSTRAP_KUBECONFIG),
        format!("--kubeconfig={}", paths::KUBELET_KUBECONFIG),
        "--v=2".to_owned(),
    ];
    parts.extend(flags(facts).into_iter().map(|(name, value)| format!("--{name}={value}")));
    let line = parts.join(" ");
    if line.len() > COMMAND_LINE {
        let remedy = format!(
            "the kubelet's command line has {} characters, Windows allows {COMMAND_LINE}: set fewer labels here and the rest on the Machine",
            line.len()
        );
        return Err(RenderError::invalid("spec.kubelet.nodeLabels", format!("{} labels", facts.spec.kubelet.node_labels.len()), remedy));
    }
    Ok(line)
}
