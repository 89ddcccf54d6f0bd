//! A machine to render without a cluster: default facts, where only version and specification matter.

use capw::api::bootstrap_config::WindowsBootstrapConfigSpec;
use capw::api::kubernetes_version::KubernetesVersion;
use capw::api::name::HostName;
use capw::bootstrap::{BootstrapFacts, ca_hash};

/// A certificate that never changes.
pub const CA: &str = include_str!("../../src/bootstrap/sample-ca.pem");

/// The machine `win-1`, with 4 processors and 8 GiB.
pub fn facts(kubernetes: &str, spec: WindowsBootstrapConfigSpec) -> BootstrapFacts {
    BootstrapFacts {
        machine_uid: "5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".into(),
        machine_name: "win-1".into(),
        generation: 1,
        host_name: Some(HostName::parse("win-1").expect("a host name")),
        provider_id: Some("windows://lab/5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".into()),
        kubernetes: KubernetesVersion::supported(kubernetes).expect("a version"),
        api_server_minor: None,
        endpoint: "api.example.com:6443".into(),
        ca_pem: CA.into(),
        ca_hash: ca_hash(CA).expect("a certificate"),
        token: "abcdef.0123456789abcdef".to_owned().into(),
        cpus: Some(4),
        memory_mib: Some(8192),
        system_disk_gib: None,
        cluster_dns: vec!["10.96.0.10".into()],
        cluster_domain: "cluster.local".into(),
        pod_networks: vec!["10.244.0.0/16".into()],
        service_networks: vec!["10.96.0.0/12".into()],
        pods_per_node: None,
        secrets: Default::default(),
        spec,
    }
}
