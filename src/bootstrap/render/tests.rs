//! Tests of the configuration of kubelet, kubeadm and containerd with every field set.

use std::collections::BTreeMap;

use crate::api::bootstrap_config::{
    Argument, CloudProvider, Containerd, ContainerdLine, CredentialProvider, Download, Fallback, HYPER_V_HANDLER, HYPER_V_LABEL,
    ImageCredentialProvider, Mirror, Program, Registry, ServingCertificate, TokenAttributes, UtilityVm, WindowsRelease,
};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::bootstrap::delivery::read::Payload;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::render;
use crate::bootstrap::sample::{CA, facts};

/// Returns facts that set every field of the kubelet and containerd.
fn everything() -> BootstrapFacts {
    let mut all = facts();
    all.memory_mib = Some(16 << 10);
    all.spec.kubelet.node_ips = vec!["10.0.0.21".into()];
    all.spec.kubelet.cloud_provider = Some(CloudProvider::External);
    all.spec.kubelet.serving_certificate = ServingCertificate::ClusterSigned;
    all.spec.kubelet.log_query = Some(true);
    all.spec.kubelet.extra_config = BTreeMap::from([("containerLogMaxSize".into(), "50Mi".into()), ("registryPullQPS".into(), 10.into())]);
    all.spec.kubelet.extra_args = vec![Argument { name: "node-status-max-images".into(), value: "20".into() }];
    all.spec.containerd = Containerd {
        directory: Some(r"D:\containerd".into()),
        scratch_size_gib: Some(40),
        hyper_v: Some(UtilityVm { processors: Some(4), memory_mib: Some(2048) }),
        metrics_address: Some("127.0.0.1:1338".into()),
        pull_progress_timeout_minutes: Some(60),
        registries: vec![
            Registry {
                host: "docker.io".into(),
                mirrors: vec![
                    Mirror { url: "https://mirror.example.com/v2/hub".into(), override_path: true, ..Mirror::default() },
                    Mirror { url: "https://backup.example.com:5000".into(), ca_certificates: Some(CA.into()), ..Mirror::default() },
                ],
                fallback: Fallback::None,
            },
            Registry { host: "*".into(), mirrors: vec![mirror("https://all.example.com")], fallback: Fallback::Registry },
        ],
        ..Containerd::default()
    };
    all.spec.kubelet.image_credential_provider = Some(ImageCredentialProvider {
        directory: r"C:\k\credentials".into(),
        providers: vec![CredentialProvider {
            name: "acr-credential-provider".into(),
            match_images: vec!["*.azurecr.io".into()],
            default_cache_duration: "10m".into(),
            args: vec![r"C:\k\azure.json".into()],
            ..CredentialProvider::default()
        }],
    });
    all.spec.programs.base_url = Some("https://mirror.example.com/kubernetes".into());
    let download = |name, url: Option<&str>| Download { name, digest: format!("sha256:{}", "ab".repeat(32)), url: url.map(str::to_owned) };
    all.spec.programs.downloads = vec![
        download(Program::Kubelet, None),
        download(Program::KubeLogRunner, None),
        download(Program::Containerd, Some("https://mirror.example.com/containerd-2.3.7-windows-amd64.tar.gz")),
        download(Program::CniPlugins, Some("https://mirror.example.com/cni-plugins-windows-amd64-v1.9.0.tgz")),
        download(Program::Flanneld, Some("https://mirror.example.com/flannel-v0.28.9/flanneld.exe")),
        download(Program::FlannelCni, Some("https://mirror.example.com/cni-plugin-v1.9.1-flannel3/flannel-amd64.exe")),
    ];
    all
}

fn mirror(url: &str) -> Mirror {
    Mirror { url: url.into(), ..Mirror::default() }
}

fn payload(facts: &BootstrapFacts) -> Payload {
    Payload::from_user_data(render(facts).unwrap().user_data.as_bytes()).unwrap()
}

#[test]
fn a_node_with_every_field_set() {
    let mut old = everything();
    old.kubernetes = KubernetesVersion::supported("v1.33.13").unwrap();
    old.spec.windows_release = WindowsRelease::Server2019;
    old.spec.containerd.line = ContainerdLine::V1;
    for (name, facts) in [("1.36", everything()), ("1.33-containerd-1.7", old)] {
        let payload = payload(&facts);
        let programs = ["kubelet.exe", "kube-proxy.exe", "containerd.exe"];
        let lines = payload.plan.items.iter().filter_map(|item| match &item.kind {
            crate::bootstrap::plan::Kind::Service { name, command_line, .. } if programs.iter().any(|p| command_line.contains(p)) => {
                Some(format!("{name}: {}\n", command_line.replace(' ', "\n  ")))
            }
            _ => None,
        });
        let explained = crate::bootstrap::explain(&payload.plan);
        let programs: String = explained
            .lines()
            .filter(|line| ["Download", "Unpack", "program-"].iter().any(|word| line.contains(word)))
            .map(|line| format!("{line}\n"))
            .collect();
        insta::assert_snapshot!(format!("programs-{name}"), programs);
        let mut shown = lines.collect::<std::collections::BTreeSet<String>>().into_iter().collect::<String>();
        for (path, bytes) in &payload.files {
            if !path.starts_with("runner/") && path != "node.json" {
                shown.push_str(&format!("==> {path} <==\n{}\n", String::from_utf8_lossy(bytes)));
            }
        }
        insta::assert_snapshot!(format!("node-{name}"), shown);
    }
}

#[test]
fn invalid_settings_are_refused_with_their_field() {
    type Change = fn(&mut BootstrapFacts);
    let cases: [(Change, &str); 16] = [
        (|f| f.spec.containerd.registries[0].mirrors[1].ca_certificates = Some(pem("PRIVATE KEY")), "caCertificates"),
        (|f| f.spec.kubelet.node_ips = vec!["10.0.0.1".into(), "10.0.0.2".into()], "spec.kubelet.nodeIPs"),
        (|f| f.spec.kubelet.extra_args = vec![Argument { name: "--v".into(), value: "4".into() }], "spec.kubelet.extraArgs"),
        (|f| f.spec.kubelet.extra_args = vec![Argument { name: "v".into(), value: "4\n".into() }], "spec.kubelet.extraArgs[v]"),
        (|f| f.spec.kubelet.extra_config = BTreeMap::from([("a".into(), "x".repeat(20_000).into())]), "spec.kubelet.extraConfig"),
        (
            |f| {
                f.kubernetes.minor = 33;
                provider(f).token_attributes = Some(TokenAttributes::default());
            },
            "providers[acr-credential-provider].tokenAttributes",
        ),
        (|f| provider(f).match_images.clear(), "matchImages"),
        (|f| f.spec.programs.downloads[0].digest = "sha256:AB".into(), "spec.programs.downloads[kubelet].digest"),
        (|f| f.spec.programs.downloads[2].digest = String::new(), "spec.programs.downloads[containerd].digest"),
        (|f| f.spec.programs.downloads[2].url = Some("ftp://mirror.example.com/a".into()), "spec.programs.downloads[containerd].url"),
        (|f| f.spec.programs.downloads[2].url = None, "spec.programs.downloads[containerd].url"),
        (|f| f.spec.programs.downloads[4].url = None, "spec.programs.downloads[flanneld].url"),
        (|f| f.spec.programs.downloads[5].url = None, "spec.programs.downloads[flannel-cni].url"),
        (|f| f.spec.programs.base_url = Some("https://a:b@mirror.example.com".into()), "spec.programs.baseURL"),
        (|f| f.spec.programs.base_url = Some("https://[.a]/kubernetes".into()), "spec.programs.baseURL"),
        (|f| f.spec.programs.base_url = Some("https://a..b/kubernetes".into()), "spec.programs.baseURL"),
    ];
    for (change, field) in cases {
        let mut facts = everything();
        change(&mut facts);
        let error = render(&facts).unwrap_err().to_string();
        assert!(error.contains(field), "{error} lacks {field}");
    }
}

fn provider(facts: &mut BootstrapFacts) -> &mut CredentialProvider {
    &mut facts.spec.kubelet.image_credential_provider.as_mut().unwrap().providers[0]
}

fn pem(label: &str) -> String {
    format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")
}

/// RuntimeClasses select nodes for Hyper-V isolation by this label.
#[test]
fn nodes_whose_pods_may_have_hyper_v_isolation_have_a_label() {
    let label = |value: &str| BTreeMap::from([(HYPER_V_LABEL.to_owned(), value.to_owned())]);
    for (is_on, given, expected) in [(false, BTreeMap::new(), None), (true, BTreeMap::new(), Some("true")), (true, label("not-yet"), Some("not-yet"))]
    {
        let mut facts = facts();
        (facts.spec.windows.hyper_v_isolation, facts.spec.kubelet.node_labels) = (is_on, given);
        let explained = crate::bootstrap::explain(&payload(&facts).plan);
        let flag = expected.map_or_else(|| "--node-labels=".to_owned(), |value| format!("--node-labels={HYPER_V_LABEL}={value} "));
        assert_eq!(explained.contains(&flag), expected.is_some(), "{explained}");
    }
}

#[test]
fn sample_runtime_classes_name_existing_handlers() {
    let text = include_str!("../../../config/samples/runtime-classes.yaml");
    let classes: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).unwrap();
    let handlers: Vec<&str> = classes.iter().map(|class| class["handler"].as_str().unwrap()).collect();
    assert!(classes.len() > 2 && handlers.contains(&HYPER_V_HANDLER));
    let toml = payload(&facts()).files["files/containerd.toml"].clone();
    for handler in handlers {
        assert!(String::from_utf8_lossy(&toml).contains(&format!("runtimes.{handler}]")), "{handler}");
    }
}
