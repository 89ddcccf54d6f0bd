//! Facts for tests.

use secrecy::SecretString;

use super::facts::{BootstrapFacts, KubernetesVersion, ca_hash};
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::name::{HostName, ProviderId, VmUuid};

/// The secret half is looked for in everything that is rendered.
pub(super) const TOKEN_SECRET: &str = "s3cr3ts3cr3ts3cr";

/// A self-signed certificate that never changes, so that snapshots do not.
pub(super) const CA: &str = include_str!("sample-ca.pem");

pub(super) fn facts() -> BootstrapFacts {
    BootstrapFacts {
        machine_uid: "5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".into(),
        machine_name: "workers-7k2fq".into(),
        generation: 1,
        host_name: Some(HostName::parse("win-7k2fq").unwrap()),
        provider_id: Some(ProviderId { hypervisor: "lab".into(), vm: VmUuid::of("u") }.to_string()),
        kubernetes: KubernetesVersion::parse("v1.36.3").unwrap(),
        endpoint: "api.example.com:6443".into(),
        ca_pem: CA.into(),
        ca_hash: ca_hash(CA).unwrap(),
        token: SecretString::from(format!("a1b2c3.{TOKEN_SECRET}")),
        cpus: Some(4),
        memory_mib: Some(8192),
        system_disk_gib: None,
        cluster_dns: vec!["10.96.0.10".into()],
        cluster_domain: "cluster.local".into(),
        pod_networks: vec!["10.244.0.0/16".into()],
        service_networks: vec!["10.96.0.0/12".into()],
        secrets: Default::default(),
        spec: WindowsBootstrapConfigSpec::default(),
    }
}
