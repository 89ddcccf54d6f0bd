//! Facts for tests.

use proptest::prelude::*;
use secrecy::SecretString;

use super::digest::ca_hash;
use super::error::RenderError;
use super::facts::BootstrapFacts;
use super::plan::Plan;
use super::rendered::{Bootstrap, render};
use crate::api::bootstrap_config::{
    CaBundleSource, Channel, CommandStep, ConfigMapKeyRef, EnvironmentStep, FeatureStep, Proxy, RegistryStep, SecretKeyRef, Step, StepCheck,
    StepExitCodes, Steps, WindowsBootstrapConfigSpec, WindowsRelease,
};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::name::{HostName, ProviderId, VmUuid};

/// The secret half of the token; tests search for it in all rendered data.
pub(crate) const TOKEN_SECRET: &str = "s3cr3ts3cr3ts3cr";

/// A self-signed certificate that never changes, so that snapshots stay the same.
pub(crate) const CA: &str = include_str!("sample-ca.pem");

pub(crate) fn facts() -> BootstrapFacts {
    BootstrapFacts {
        machine_uid: "5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".into(),
        machine_name: "workers-7k2fq".into(),
        generation: 1,
        host_name: Some(HostName::parse("win-7k2fq").unwrap()),
        provider_id: Some(ProviderId { hypervisor: "lab".into(), vm: VmUuid::of("u") }.to_string()),
        kubernetes: KubernetesVersion::supported("v1.36.3").unwrap(),
        api_server_minor: None,
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
        pods_per_node: None,
        secrets: Default::default(),
        spec: WindowsBootstrapConfigSpec::default(),
    }
}

/// One text per secret input, which must appear only in the expected places.
pub(crate) const CANARIES: [(&str, &str); 4] = [
    ("djoin", "canary-djoin-0d7b2a4c3e5e9c1f"),
    ("proxy", "http://capw:canary-proxy-5e9c1f0d7b2a@proxy.example.com:3128"),
    ("licence", "canary-licence-7b2a4c3e5e9c"),
    ("mirror-key", "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5LW1pcnJvci1rZXktNWU5YzFm\n-----END PRIVATE KEY-----"),
];
/// A password that appears only in a header: user and password in base64.
pub(crate) const CANARY_PASSWORD: (&str, &str) = ("canary-password-2a4c3e5e9c1f", "cmVhZGVyOmNhbmFyeS1wYXNzd29yZC0yYTRjM2U1ZTljMWY=");

/// Returns the reference to the ConfigMap where [`full`] repeats the same certificates.
fn ca_map() -> ConfigMapKeyRef {
    ConfigMapKeyRef { name: "authorities".into(), key: "ca.crt".into() }
}

/// Returns facts with every setting of Windows.
pub(crate) fn full() -> BootstrapFacts {
    let mut facts = facts();
    facts.spec = serde_saphyr::from_str(include_str!("sample-full.yaml")).unwrap();
    let mut give = |key: &str, value: &[u8]| facts.secrets.insert(SecretKeyRef { name: "windows".into(), key: key.into() }, value.to_vec());
    for (key, value) in CANARIES {
        give(key, value.as_bytes());
    }
    give("ca.pem", CA.as_bytes());
    give("mirror-user", b"reader\n");
    give("mirror-password", CANARY_PASSWORD.0.as_bytes());
    facts.secrets.insert_public(ca_map(), CA.into());
    facts
}

fn any_step(number: usize) -> impl Strategy<Value = Step> {
    let check = prop_oneof![
        Just(None),
        Just(Some(StepCheck { service: Some("w32time".into()), ..StepCheck::default() })),
        Just(Some(StepCheck { file: Some(r"C:\done".into()), ..StepCheck::default() })),
    ];
    (0..5u8, 1..4i32, any::<bool>(), any::<bool>(), check).prop_map(move |(kind, attempts, optional, restart, check)| {
        let mut step = Step { name: format!("s{number}"), attempts, continue_on_error: optional, timeout_seconds: 60, ..Step::default() };
        match kind {
            0 => {
                let codes = StepExitCodes { success: vec![0], restart: if restart { vec![3010] } else { vec![] } };
                step.command = Some(CommandStep { argv: vec!["a.exe".into()], raw_arguments: None, directory: None, check, exit_codes: Some(codes) });
            }
            1 => {
                step.registry = Some(RegistryStep {
                    key: r"HKLM:\SOFTWARE\Example".into(),
                    name: format!("v{number}"),
                    dword: Some(1),
                    restart,
                    ..RegistryStep::default()
                });
            }
            2 => step.feature = Some(FeatureStep { names: vec![format!("Feature{number}")], ..FeatureStep::default() }),
            3 => step.environment = Some(EnvironmentStep { name: format!("V{number}"), value: "1".into() }),
            _ => step.firewall = Some(serde_json::from_value(serde_json::json!({"name": format!("r{number}"), "ports": ["80"]})).unwrap()),
        }
        step
    })
}

/// Settings of the kubelet, containerd and kube-proxy that can be combined freely.
const CHOICES: [&str; 14] = [
    r#"{"kubelet": {"systemReserved": {"cpu": "250m", "memory": "1Gi"}}}"#,
    r#"{"kubelet": {"kubeReserved": {"memory": "600Mi"}}}"#,
    r#"{"kubelet": {"evictionHard": {"memory.available": "300Mi", "imagefs.available": "20%"}}}"#,
    r#"{"kubelet": {"reserveProfile": "Safe"}}"#,
    r#"{"kubelet": {"extraConfig": {"imageGCHighThresholdPercent": 90, "serializeImagePulls": false, "imageMaximumGCAge": "168h"}}}"#,
    r#"{"kubelet": {"extraConfig": {"registryPullQPS": 0, "containerLogMaxSize": "20Mi"}}}"#,
    r#"{"kubelet": {"extraArgs": [{"name": "v", "value": "4"}]}}"#,
    r#"{"kubelet": {"nodeIPs": ["10.0.0.21", "fd00::21"], "cloudProvider": "External", "clusterDNS": ["10.96.0.99"]}}"#,
    r#"{"kubelet": {"servingCertificate": "ClusterSigned", "priorityClass": "HIGH_PRIORITY_CLASS", "logQuery": true}}"#,
    r#"{"kubelet": {"nodeLabels": {"example.com/pool": "a"}, "taints": [{"key": "gpu", "effect": "NoExecute"}]}}"#,
    r#"{"containerd": {"hyperV": {"processors": 2, "memoryMiB": 2048}, "metricsAddress": "[::1]:1338"}}"#,
    r#"{"containerd": {"directory": "D:\\containerd", "scratchSizeGiB": 40, "pullProgressTimeoutMinutes": 60}}"#,
    r#"{"containerd": {"sandboxImage": "registry.example.com/pause:3.10.2"}}"#,
    r#"{"kubeProxy": {"networkName": "vxlan0", "networkType": "Overlay", "sourceVIP": "10.244.3.2"}}"#,
];

/// Returns the facts with some minor of Kubernetes, channel and [`CHOICES`].
pub(crate) fn any_node(facts: impl Strategy<Value = BootstrapFacts>) -> impl Strategy<Value = BootstrapFacts> {
    let choices = prop::sample::subsequence(CHOICES.to_vec(), 0..=CHOICES.len());
    (facts, 31..=37u32, prop::sample::select(Channel::ALL.to_vec()), choices).prop_map(|(mut facts, minor, channel, choices)| {
        let mut spec = serde_json::to_value(&facts.spec).unwrap();
        for choice in choices {
            json_patch::merge(&mut spec, &serde_json::from_str(choice).unwrap());
        }
        facts.spec = serde_json::from_value(spec).unwrap();
        facts.spec.channel = channel;
        facts.kubernetes.minor = minor;
        if minor < 34 {
            // The rules reject service account tokens for credential providers before 1.34.
            let providers = facts.spec.kubelet.image_credential_provider.iter_mut().flat_map(|spec| &mut spec.providers);
            providers.for_each(|provider| provider.token_attributes = None);
        }
        facts
    })
}

/// Renders facts that must be valid; `None` if they are too large for their channel.
pub(crate) fn rendered(facts: &BootstrapFacts) -> Option<Bootstrap> {
    match render(facts) {
        Ok(bootstrap) => {
            let size = bootstrap.user_data.size(facts.spec.channel);
            assert!(size.bytes <= size.limit, "{size:?}");
            Some(bootstrap)
        }
        Err(RenderError::TooLarge { size, .. }) if facts.spec.channel == Channel::GuestInfo && size.bytes > size.limit => None,
        Err(error) => panic!("{error}: {:#?}", facts.spec),
    }
}

/// Returns facts with any subset of the settings of [`full`], and any steps.
pub(crate) fn any_windows() -> impl Strategy<Value = BootstrapFacts> {
    let steps = (0..4usize, 0..4usize).prop_flat_map(|(before, after)| {
        let before: Vec<_> = (0..before).map(any_step).collect();
        let after: Vec<_> = (10..10 + after).map(any_step).collect();
        (before, after)
    });
    any_node((prop::collection::vec(any::<bool>(), 20), 0..3u8, steps).prop_map(|(on, release, (before_join, after_join))| {
        let mut facts = full();
        let spec = &mut facts.spec;
        spec.windows_release = [WindowsRelease::Server2019, WindowsRelease::Server2022, WindowsRelease::Server2025][usize::from(release)];
        let clear = |on: bool| !on;
        let (windows, network) = (&mut spec.windows, &mut spec.network);
        windows.hyper_v_isolation = on[0];
        windows.defender_exclusions = on[1];
        windows.registry_overrides = on[2];
        windows.hardening.lsa_protection = on[3];
        windows.hardening.smb1_off = on[4];
        if clear(on[5]) {
            windows.gmsa = None;
        } else if clear(on[6]) {
            windows.gmsa.as_mut().unwrap().domain = None;
        }
        if clear(on[7]) {
            network.time_servers.clear();
        }
        if clear(on[8]) {
            network.ca_bundle_from = None;
        } else if on[11] {
            network.ca_bundle_from = Some(CaBundleSource { secret_key_ref: None, config_map_key_ref: Some(ca_map()) });
        }
        if clear(on[9]) {
            network.proxy = None;
        } else if on[10] {
            let url = Some("http://proxy.example.com:3128".to_owned());
            network.proxy = Some(Proxy { https: url.clone(), http: url.filter(|_| on[11]), ..Proxy::default() });
        }
        if clear(on[12]) {
            network.firewall_rules.clear();
            network.dynamic_ports = None;
        }
        if clear(on[13]) {
            network.routes.clear();
            network.reserved_ports.clear();
        }
        network.block_metadata = on[14];
        network.open_ports.vxlan = on[15];
        windows.network_clean_up = on[16];
        if clear(on[18]) {
            spec.programs.downloads.clear();
        }
        if clear(on[19]) {
            spec.containerd.registries.clear();
            spec.kubelet.image_credential_provider = None;
        }
        if clear(on[17]) {
            windows.time_zone = None;
            network.clock_tolerance_seconds = 0;
        }
        spec.steps = Steps { before_join, after_join };
        facts
    }))
}

/// Returns the plan of an ordinary machine, for tests of code that reads plans.
pub(crate) fn sample_plan() -> Plan {
    render(&facts()).map(|bootstrap| bootstrap.plan).unwrap()
}
