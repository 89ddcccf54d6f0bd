//! Tests that every rule applies in its minors, and that no rule objects to the documents that we render by default.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::findings::Findings;
use super::{check, node};
use crate::api::bootstrap_config::{Argument, Channel, ContainerdLine, ProxyNetwork, ServingCertificate, WindowsRelease};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::finding::LintFinding;
use crate::bootstrap::render::Documents;
use crate::bootstrap::render::kubelet::surface;
use crate::bootstrap::sample::facts;

fn at(minor: u32) -> BootstrapFacts {
    let mut facts = facts();
    facts.kubernetes = KubernetesVersion::supported(&format!("v1.{minor}.0")).unwrap();
    facts
}

fn with(minor: u32, extra: Value) -> BootstrapFacts {
    let mut facts = at(minor);
    facts.spec.kubelet.extra_config = serde_json::from_value(extra).unwrap();
    facts
}

fn judge(facts: &BootstrapFacts) -> Result<Vec<LintFinding>, RenderError> {
    check(facts, &Documents::new(facts)?)
}

/// Returns the rules that apply, in order: errors as `E:L4`, warnings as `W:L4`.
fn said(facts: &BootstrapFacts) -> Vec<String> {
    let (letter, findings) = match judge(facts) {
        Ok(findings) => ("W", findings),
        Err(RenderError::Lint(findings)) => ("E", findings),
        Err(other) => panic!("{other}"),
    };
    for finding in &findings {
        assert!(!finding.field.is_empty() && finding.remedy.len() > 5, "{finding}");
    }
    findings.iter().map(|finding| format!("{letter}:{}", finding.rule)).collect()
}

#[test]
fn defaults_break_no_rule() {
    for minor in 31..=37 {
        for release in [WindowsRelease::Server2019, WindowsRelease::Server2022, WindowsRelease::Server2025] {
            for line in [ContainerdLine::V1, ContainerdLine::V2] {
                for query in [None, Some(true), Some(false)] {
                    let mut facts = at(minor);
                    facts.spec.windows_release = release;
                    facts.spec.containerd.line = line;
                    facts.spec.kubelet.log_query = query;
                    facts.spec.kubelet.serving_certificate = ServingCertificate::ClusterSigned;
                    facts.spec.kubelet.node_ips = vec!["10.0.0.1".into()];
                    assert!(said(&facts).is_empty(), "1.{minor} {release:?} {line:?} {query:?}: {:?}", judge(&facts));
                }
            }
        }
    }
}

/// Users' fields, the minors, and the expected findings.
#[test]
fn fields_by_rule_and_minor() {
    type Case = (&'static str, Value, &'static [u32], &'static [&'static str]);
    let all: &[u32] = &[31, 32, 33, 34, 35, 36, 37];
    let cases: &[Case] = &[
        ("fine", json!({"containerLogMaxSize": "50Mi", "imageMaximumGCAge": "168h", "registryPullQPS": 10}), all, &[]),
        ("fine", json!({"authentication": {"anonymous": {"enabled": false}}, "logging": {"format": "json"}}), all, &[]),
        ("fine", json!({"imageGCHighThresholdPercent": 80, "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}), all, &[]),
        ("L1", json!({"cgroupsPerQOS": true}), all, &["E:L23", "E:L1"]),
        ("L1", json!({"enforceNodeAllocatable": ["pods"]}), all, &["E:L23", "E:L1"]),
        ("L2", json!({"resolvConf": "/etc/resolv.conf"}), all, &["E:L2"]),
        ("L2", json!({"resolvConf": "C:\\etc\\resolv.conf"}), all, &[]),
        ("L2", json!({"staticPodPath": "/etc/kubernetes/manifests"}), all, &["E:L2"]),
        ("L2", json!({"authentication": {"x509": {"clientCAFile": "/etc/ca.crt"}}}), all, &["E:L2"]),
        ("L4 unknown", json!({"featureGates": {"NoSuchGate": true}}), all, &["E:L4"]),
        ("L4 shape", json!({"featureGates": {"NodeLogQuery": "yes"}}), &[31], &["E:L4"]),
        ("L4 DSR free", json!({"featureGates": {"WinDSR": true}}), &[31, 32, 33], &[]),
        ("L4 DSR locked", json!({"featureGates": {"WinDSR": true}}), &[34, 35, 36, 37], &["W:L4"]),
        ("L4 DSR locked", json!({"featureGates": {"WinDSR": false}}), &[34, 35, 36, 37], &["E:L4"]),
        ("L4 new", json!({"featureGates": {"WindowsGracefulNodeShutdown": true}}), &[31], &["E:L4"]),
        ("L4 new", json!({"featureGates": {"WindowsGracefulNodeShutdown": true}}), &[32, 33, 34, 35, 36, 37], &[]),
        ("L4 gone", json!({"featureGates": {"DevicePluginCDIDevices": true}}), &[34, 35, 36, 37], &["E:L4"]),
        ("L4 deprecated", json!({"featureGates": {"WindowsHostNetwork": true}}), &[33, 34, 35, 36], &["W:L4"]),
        ("L4 query", json!({"enableSystemLogQuery": true}), &[31, 32, 33, 34, 35], &["E:L4"]),
        ("L4 query", json!({"enableSystemLogHandler": false}), &[36, 37], &["E:L4"]),
        ("L5", json!({"evictionHard": {"imagefs.available": null}}), all, &["E:L23", "E:L5"]),
        ("L5 merged", json!({"evictionHard": {"imagefs.available": null}, "mergeDefaultEvictionSettings": true}), &[33, 36], &["E:L23"]),
        ("L6", json!({"evictionSoft": {"nodefs.inodesFree": "5%"}, "evictionSoftGracePeriod": {"pid.available": "1m"}}), all, &["E:L6", "E:L6"]),
        ("L15", json!({"shutdownGracePeriodCriticalPods": "90s"}), &[34, 35, 36, 37], &["E:L15"]),
        ("L15", json!({"shutdownGracePeriod": "60s"}), &[31, 32, 33], &["W:L15"]),
        ("L15", json!({"shutdownGracePeriod": "60s", "featureGates": {"WindowsGracefulNodeShutdown": true}}), &[32, 33], &[]),
        ("L15", json!({"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}]}), &[34, 36], &["E:L15"]),
        ("L16", json!({"featureGates": {"LocalStorageCapacityIsolationFSQuotaMonitoring": true}}), &[31, 36], &["W:L16"]),
        ("L17", json!({"serverTLSBootstrap": true}), all, &["E:L17"]),
        ("L18", json!({"podCIDR": "10.0.0.0/27"}), all, &["E:L18"]),
        ("L19", json!({"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"}), &[35, 36, 37], &["E:L19"]),
        ("L19", json!({"imagePullCredentialsVerificationPolicy": "AlwaysVerify"}), &[35, 36, 37], &["W:L19"]),
        ("L19", json!({"imagePullCredentialsVerificationPolicy": "NeverVerify"}), &[33, 34], &["E:L19"]),
        ("L19", json!({"preloadedImagesVerificationAllowlist": ["a"]}), &[35, 36, 37], &["E:L19"]),
        (
            "L19 complete",
            json!({"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages", "preloadedImagesVerificationAllowlist": ["mcr.microsoft.com/*"]}),
            &[35, 36, 37],
            &[],
        ),
        ("L20 unknown", json!({"maxpods": 30}), all, &["E:L20"]),
        ("L20 nested", json!({"logging": {"fromat": "json"}}), all, &["E:L20"]),
        ("L20 new", json!({"crashLoopBackOff": {}}), &[31], &["E:L20"]),
        ("L20 new", json!({"crashLoopBackOff": {}}), &[32, 36], &[]),
        ("L20 new", json!({"tlsCurvePreferences": ["X25519"]}), &[31, 35], &["E:L20"]),
        ("L20 new", json!({"tlsCurvePreferences": ["X25519"]}), &[36, 37], &[]),
        ("L21", json!({"registryPullQPS": "10"}), all, &["E:L21"]),
        ("L21", json!({"imageMaximumGCAge": "7d"}), all, &["E:L21"]),
        ("L21", json!({"serializeImagePulls": "no", "tlsCipherSuites": "x", "logging": []}), all, &["E:L21", "E:L21", "E:L21"]),
        ("L22", json!({"podPidsLimit": 100, "seccompDefault": true}), all, &["W:L22", "W:L22"]),
        ("L22", json!({"singleProcessOOMKill": true}), &[32, 36], &["E:L22"]),
        ("L22", json!({"cpuManagerPolicy": "static"}), all, &["W:L22"]),
        ("L22", json!({"cpuManagerPolicy": "static", "featureGates": {"WindowsCPUAndMemoryAffinity": true}}), &[32, 36], &[]),
        ("L23", json!({"maxPods": 30, "kind": "KubeletConfiguration"}), all, &["E:L23", "E:L23"]),
    ];
    for (name, extra, minors, expected) in cases {
        for minor in *minors {
            let facts = with(*minor, extra.clone());
            assert_eq!(said(&facts), **expected, "{name} in 1.{minor}: {extra}: {:?}", judge(&facts));
        }
    }
}

#[test]
fn flags_by_rule_and_minor() {
    type Case = (&'static str, &'static str, &'static [u32], &'static [&'static str]);
    let all: &[u32] = &[31, 32, 33, 34, 35, 36, 37];
    let cases: &[Case] = &[
        ("root-dir", r"D:\kubelet", all, &[]),
        ("pod-infra-container-image", "registry.k8s.io/pause:3.10", &[31, 32, 33, 34], &[]),
        ("pod-infra-container-image", "registry.k8s.io/pause:3.10", &[35, 36, 37], &["E:L8"]),
        ("cloud-config", "x", &[31, 32, 33], &[]),
        ("cloud-config", "x", &[34, 35, 36, 37], &["E:L8"]),
        ("container-runtime", "remote", all, &["E:L8"]),
        ("network-plugin", "cni", all, &["E:L8"]),
        ("log-dir", r"C:\var\log", all, &["E:L8"]),
        ("no-such-flag", "1", all, &["E:L8"]),
        ("windows-priorityclass", "FAST", all, &["E:L3", "E:L23"]),
        ("node-labels", "a=b", all, &["E:L23"]),
        ("node-status-max-images", "20", all, &["W:L23"]),
    ];
    for (name, value, minors, expected) in cases {
        for minor in *minors {
            let mut facts = at(*minor);
            facts.spec.kubelet.extra_args = vec![Argument { name: (*name).into(), value: (*value).into() }];
            assert_eq!(said(&facts), **expected, "--{name} in 1.{minor}: {:?}", judge(&facts));
        }
    }
}

#[test]
fn other_documents() {
    let findings = |act: &dyn Fn(&mut Findings)| {
        let mut findings = Findings::default();
        act(&mut findings);
        findings.0.into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    let join = |version: &str, arguments: Value, socket: &str| json!({"apiVersion": format!("kubeadm.k8s.io/{version}"), "nodeRegistration": {"criSocket": socket, "kubeletExtraArgs": arguments}});
    const SOCKET: &str = "npipe:////./pipe/containerd-containerd";
    for (minor, join, expected) in [
        (31, join("v1beta4", json!([{"name": "a", "value": "b"}]), SOCKET), &[][..]),
        (36, join("v1beta3", json!({"a": "b"}), "npipe://./pipe/x"), &[]),
        (37, join("v1beta3", json!({"a": "b"}), SOCKET), &["L9"]),
        (30, join("v1beta4", json!([]), SOCKET), &["L9"]),
        (36, join("v1beta4", json!({"a": "b"}), SOCKET), &["L10"]),
        (36, join("v1beta4", json!([]), r"\\.\pipe\containerd-containerd"), &["L11"]),
        (36, json!({"apiVersion": "kubeadm.k8s.io/v1beta4", "nodeRegistration": {"criSocket": SOCKET}, "skipPhases": ["preflight"]}), &["L9"]),
    ] {
        assert_eq!(findings(&|f| node::check_join(minor, &join, f)), expected, "{join}");
    }
    for (line, text, expected) in [
        (ContainerdLine::V1, "version = 2\n[plugins.x.cni]\nbin_dir = 'a'\n", &[][..]),
        (ContainerdLine::V1, "version = 3\n", &["L12"]),
        (ContainerdLine::V2, "version = 4\n", &["L12"]),
        (ContainerdLine::V2, "version = 3\n[plugins.x.cni]\nbin_dir = 'a'\nbin_dirs = ['a']\n", &["L13"]),
        (ContainerdLine::V2, "version = 3\n[plugins.x.cni]\nconf_dir = 'a'\n", &["L13"]),
    ] {
        assert_eq!(findings(&|f| node::check_containerd(line, &text.parse().unwrap(), f)), expected, "{text}");
    }
    let proxy = |network: ProxyNetwork, source: Option<&str>, forward: bool| json!({"networkName": "cbr0", "networkType": network, "sourceVIP": source, "forwardHealthCheckVip": forward});
    use ProxyNetwork::{L2Bridge, Overlay};
    for (release, proxy, expected) in [
        (WindowsRelease::Server2022, proxy(L2Bridge, None, true), &[][..]),
        (WindowsRelease::Server2022, proxy(Overlay, Some("10.244.3.2"), false), &[]),
        (WindowsRelease::Server2022, proxy(Overlay, None, false), &["E:L14"]),
        (WindowsRelease::Server2022, proxy(Overlay, Some("1.2.3"), false), &["E:L14"]),
        (WindowsRelease::Server2022, proxy(L2Bridge, Some("10.244.3.2"), false), &["E:L14"]),
        (WindowsRelease::Server2019, proxy(L2Bridge, None, true), &["E:L14"]),
    ] {
        let mut facts = at(33);
        facts.spec.windows_release = release;
        facts.spec.kube_proxy = Some(serde_json::from_value(proxy.clone()).unwrap());
        assert_eq!(said(&facts), expected, "{proxy}");
    }
    let mut small = at(36);
    small.pod_networks = vec!["10.1.0.0/25".into(), "fd00::/64".into()];
    small.spec.kubelet.max_pods = Some(126);
    assert_eq!(said(&small), ["E:L18"]);
    small.spec.kubelet.max_pods = Some(125);
    assert!(said(&small).is_empty());
    // A node gets only a part of the Cluster's network.
    let mut share = at(36);
    share.spec.network.node_cidr_mask_size = 28;
    assert_eq!(said(&share), ["E:L18"], "30 pods by default, 13 addresses");
    share.spec.kubelet.max_pods = Some(13);
    assert!(said(&share).is_empty());
    for (memory, given, room, expected) in [
        // The default never exceeds the number of addresses.
        (16 << 10, None, Some(60), &[][..]),
        (8 << 10, None, Some(29), &[]),
        (16 << 10, None, Some(0), &["E:L18"]),
        (16 << 10, Some(60), Some(60), &[]),
        (16 << 10, Some(61), Some(60), &["E:L18"]),
        (16 << 10, Some(250), None, &[]),
    ] {
        let mut crowded = at(36);
        (crowded.memory_mib, crowded.spec.kubelet.max_pods, crowded.pods_per_node) = (Some(memory), given, room);
        assert_eq!(said(&crowded), expected, "{memory} {given:?} {room:?}");
    }
    let mut greedy = at(36);
    greedy.spec.kubelet.system_reserved.memory = Some("256Mi".into());
    assert_eq!(said(&greedy), ["W:L7"]);
}

#[test]
fn messages_name_rule_field_value_and_remedy() {
    let mut facts = with(36, json!({"featureGates": {"WinDSR": false}, "maxPods": 5}));
    facts.spec.kubelet.extra_args = vec![Argument { name: "pod-infra-container-image".into(), value: "p".into() }];
    let error = judge(&facts).unwrap_err().to_string();
    for text in [
        "L4: spec.kubelet.extraConfig.featureGates.WinDSR: \"false\": it is locked to true in 1.36",
        "L23: spec.kubelet.extraConfig.maxPods: \"5\": CAPW sets this field: use spec.kubelet.maxPods",
        "L8: spec.kubelet.extraArgs[pod-infra-container-image]: \"p\": the kubelet of 1.36 has no such flag",
    ] {
        assert!(error.contains(text), "{error} lacks {text}");
    }
}

#[test]
fn linux_fields_are_removed_from_the_clusters_configuration() {
    for minor in 31..=37 {
        let names: BTreeMap<&str, u32> = surface::reset_fields(minor).into_iter().map(|name| (name, minor)).collect();
        assert!(names.contains_key("cpuManagerPolicy") && names.contains_key("systemReservedCgroup"));
        assert_eq!(names.contains_key("userNamespaces"), minor >= 33);
        // The patch does not remove any field that we set.
        let mut facts = at(minor);
        facts.spec.kubelet.log_query = Some(true);
        let patch = serde_json::to_value(Documents::new(&facts).unwrap().kubelet).unwrap();
        assert!(names.keys().all(|name| patch[name].is_null()), "1.{minor}");
        assert!(patch["evictionHard"].as_object().unwrap()["nodefs.inodesFree"].is_null());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn any_unknown_field_is_refused(name in "[a-zA-Z.]{1,30}", value in "\\PC{0,20}", minor in 31u32..=37) {
        let facts = with(minor, json!({name: {"a": [value]}}));
        proptest::prop_assert!(judge(&facts).is_err());
    }

    #[test]
    fn any_flag_is_checked_without_panic(name in "[a-z-]{1,20}", value in "\\PC{0,20}", minor in 31u32..=37) {
        let mut facts = at(minor);
        facts.spec.kubelet.extra_args = vec![Argument { name, value }];
        let _ = judge(&facts);
    }
}

#[test]
fn credential_providers_by_minor() {
    let provider = |change: Value| {
        let mut provider = json!({"name": "a", "matchImages": ["*.example.com"]});
        json_patch::merge(&mut provider, &change);
        json!({"directory": "C:\\k", "providers": [provider]})
    };
    let token = json!({"tokenAttributes": {"serviceAccountTokenAudience": "a", "cacheType": "Token"}});
    for (change, minors, expected) in [
        (json!({}), 31..=37, &[][..]),
        (token.clone(), 31..=33, &["E:L24"][..]),
        (token, 34..=37, &[][..]),
        (json!({"name": "..\\a"}), 31..=37, &["E:L24"][..]),
        (json!({"matchImages": []}), 31..=37, &["E:L24"][..]),
        (json!({"matchImages": ["https://a"]}), 31..=37, &["E:L24"][..]),
    ] {
        for minor in minors {
            let mut facts = at(minor);
            facts.spec.kubelet.image_credential_provider = Some(serde_json::from_value(provider(change.clone())).unwrap());
            assert_eq!(said(&facts), expected, "1.{minor} {change}");
        }
    }
}

#[test]
fn secrets_in_the_text_of_a_script_are_a_warning() {
    for (channel, ours, expected) in [
        (Channel::ConfigDrive, true, &[][..]),
        (Channel::NoCloud, true, &[]),
        (Channel::Unattend, true, &[]),
        (Channel::GuestInfo, true, &["W:L25"]),
        (Channel::ConfigDrive, false, &["W:L25"]),
        (Channel::GuestInfo, false, &["W:L25"]),
    ] {
        let mut facts = facts();
        facts.spec.channel = channel;
        if !ours {
            facts.host_name = None;
        }
        assert_eq!(said(&facts), expected, "{channel} {ours}");
    }
}

#[test]
fn an_installer_that_restarts_windows_is_a_warning() {
    for (argv, raw, expected) in [
        (&["msiexec.exe", "/i", "a.msi", "/qn"][..], None, &["W:L26"][..]),
        (&[r"C:\Windows\System32\MSIEXEC.EXE", "/i", "a.msi"], Some("A=1"), &["W:L26"]),
        (&["msiexec", "/i", "a.msi", "/NoRestart"], None, &[]),
        (&["msiexec", "/i", "a.msi"], Some("/qn /norestart"), &[]),
        (&["msiexec", "/i", "a.msi", "REBOOT=ReallySuppress"], None, &[]),
        (&["setup.exe", "/i"], None, &[]),
    ] {
        let mut facts = facts();
        let step = json!({"name": "agent", "command": {"argv": argv, "rawArguments": raw}});
        facts.spec.steps.after_join = vec![serde_json::from_value(step).unwrap()];
        assert_eq!(said(&facts), expected, "{argv:?} {raw:?}");
    }
}

#[test]
fn a_proxy_without_the_networks_of_the_nodes_is_a_warning() {
    for (network, expected) in [
        (json!({"proxy": {"http": "http://proxy:3128"}}), &["W:L27"][..]),
        (json!({"proxy": {"http": "http://proxy:3128"}, "nodeNetworks": ["10.0.0.0/16"]}), &[]),
        (json!({"proxy": {"http": "http://proxy:3128", "noProxy": ["10.0.0.0/16"]}}), &[]),
        (json!({}), &[]),
    ] {
        let mut facts = facts();
        facts.spec.network = serde_json::from_value(network.clone()).unwrap();
        assert_eq!(said(&facts), expected, "{network}");
    }
}
