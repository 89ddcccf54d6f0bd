//! Our fields of the KubeletConfiguration, and the users' own fields.

use std::collections::BTreeMap;

use serde::Serialize;

use super::registration::taints;
use super::surface;
use crate::api::bootstrap_config::{ServingCertificate, Taint};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::render::reserves::{Amount, Reserves};
use crate::bootstrap::render::yaml;

/// The minor from which NodeLogQuery is stable.
const LOG_QUERY_STABLE: u32 = 36;
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// The fields of the KubeletConfiguration that we set.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::bootstrap) struct KubeletConfiguration {
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
    /// The eviction thresholds. `None` removes the field of the cluster's configuration.
    eviction_hard: BTreeMap<&'static str, Option<String>>,
    rotate_certificates: bool,
    #[serde(rename = "serverTLSBootstrap", skip_serializing_if = "std::ops::Not::not")]
    server_tls_bootstrap: bool,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: u32,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: u32,
    enable_system_log_handler: bool,
    enable_system_log_query: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    feature_gates: BTreeMap<&'static str, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shutdown_grace_period: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shutdown_grace_period_critical_pods: Option<&'static str>,
    /// The fields of the cluster's configuration that a kubelet on Windows must not get: `null` removes them.
    #[serde(flatten)]
    reset: BTreeMap<&'static str, ()>,
}

/// Returns `kubeletconfiguration+strategic.yaml`.
pub(in crate::bootstrap) fn patch(configuration: &KubeletConfiguration) -> Result<String, RenderError> {
    yaml::document("the kubelet's configuration", configuration)
}

/// Returns the users' own fields as a drop-in file, if there are any.
pub(in crate::bootstrap) fn drop_in(facts: &BootstrapFacts) -> Result<Option<String>, RenderError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct DropIn<'a> {
        api_version: &'static str,
        kind: &'static str,
        #[serde(flatten)]
        fields: &'a BTreeMap<String, serde_json::Value>,
    }
    let fields = &facts.spec.kubelet.extra_config;
    if fields.is_empty() {
        return Ok(None);
    }
    yaml::document("the kubelet's drop-in", &DropIn { api_version: API_VERSION, kind: KIND, fields }).map(Some)
}

pub(in crate::bootstrap::render) fn configuration(facts: &BootstrapFacts, reserves: &Reserves) -> KubeletConfiguration {
    let (minor, spec) = (facts.kubernetes.minor, &facts.spec.kubelet);
    // WindowsGracefulNodeShutdown is on by default, and works for native services, from 1.34 on.
    let graceful = minor >= 34;
    let log_query = spec.log_query.unwrap_or(minor >= LOG_QUERY_STABLE);
    // The field needs the gate, and the gate is locked once it is stable.
    let gates = (log_query && minor < LOG_QUERY_STABLE).then_some(("NodeLogQuery", true));
    KubeletConfiguration {
        api_version: API_VERSION,
        kind: KIND,
        cgroups_per_qos: false,
        // kubeadm would drop an empty list when it rewrites the file.
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
        eviction_hard: thresholds(&reserves.eviction_hard),
        rotate_certificates: true,
        server_tls_bootstrap: spec.serving_certificate == ServingCertificate::ClusterSigned,
        // The thresholds are lower than the defaults of 85 and 80: a Windows layer takes twice its size while it is unpacked.
        image_gc_high_threshold_percent: 75,
        image_gc_low_threshold_percent: 65,
        enable_system_log_handler: true,
        enable_system_log_query: log_query,
        feature_gates: gates.into_iter().collect(),
        shutdown_grace_period: graceful.then_some("60s"),
        shutdown_grace_period_critical_pods: graceful.then_some("20s"),
        reset: surface::reset_fields(minor).into_iter().map(|field| (field, ())).collect(),
    }
}

/// Sets every signal that Windows has and removes the others.
fn thresholds(windows: &BTreeMap<&'static str, String>) -> BTreeMap<&'static str, Option<String>> {
    let none = ["imagefs.inodesFree", "nodefs.inodesFree", "pid.available"].map(|signal| (signal, None));
    none.into_iter().chain(windows.iter().map(|(signal, value)| (*signal, Some(value.clone())))).collect()
}

fn resources(amount: Amount) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("cpu", format!("{}m", amount.milli_cpu)),
        ("memory", format!("{}Mi", amount.memory_mib)),
        ("ephemeral-storage", format!("{}Mi", amount.ephemeral_mib)),
    ])
}
