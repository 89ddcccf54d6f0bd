//! Tests of the whole rendering: the guest reads the rendered data, rendering is deterministic, and secrets appear only where they belong.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::Value;

use super::delivery::archive::gzip;
use super::delivery::read::Payload;
use super::facts::BootstrapFacts;
use super::plan::{Kind, Plan, explain};
use super::sample::{TOKEN_SECRET, any_node, facts, full, rendered};
use super::{paths, render};
use crate::api::bootstrap_config::{ContainerdLine, Encoding, File, Reserve, SecretKeyRef, Taint, TaintEffect, ValueSource, WindowsRelease};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::name::HostName;

fn payload(facts: &BootstrapFacts) -> Payload {
    Payload::from_user_data(render(facts).unwrap().user_data.as_bytes()).unwrap()
}

fn text(payload: &Payload, path: &str) -> String {
    String::from_utf8(payload.files[path].clone()).unwrap()
}

fn old() -> BootstrapFacts {
    let mut old = facts();
    old.kubernetes = KubernetesVersion::supported("v1.32.4").unwrap();
    old.host_name = None;
    old.provider_id = None;
    old.cpus = None;
    old.memory_mib = None;
    old.cluster_dns = Vec::new();
    old.cluster_domain = String::new();
    old.spec.windows_release = WindowsRelease::Server2019;
    old.spec.containerd.line = ContainerdLine::V1;
    old
}

fn big() -> BootstrapFacts {
    let mut big = facts();
    big.cpus = Some(32);
    big.memory_mib = Some(128 << 10);
    big.spec.windows_release = WindowsRelease::Server2025;
    big.spec.kubelet.node_labels = BTreeMap::from([("example.com/pool".into(), "big".into()), ("tier".into(), String::new())]);
    big.spec.kubelet.taints = Some(vec![Taint { key: "example.com/big".into(), value: None, effect: TaintEffect::NoExecute }]);
    big.spec.kubelet.max_pods = Some(200);
    big.spec.kubelet.system_reserved = Reserve { memory: Some("3Gi".into()), ..Reserve::default() };
    big.spec.files = vec![File { path: r"C:\k\audit.json".into(), content: Some("{}".into()), ..File::default() }];
    big
}

/// Describes how a plan differs from `base`: removed items (`-`), added items (`+`, after which item), and the fields that differ in the others.
fn difference(base: &Plan, plan: &Plan) -> String {
    let has = |plan: &Plan, id: &str| plan.items.iter().any(|item| item.id == id);
    let shared = |one: &Plan, other: &Plan| one.items.iter().map(|item| item.id.clone()).filter(|id| has(other, id)).collect::<Vec<_>>();
    assert_eq!(shared(plan, base), shared(base, plan), "the items of both plans come in the same order");
    let head = |plan: &Plan| serde_json::to_value(Plan { items: Vec::new(), ..plan.clone() }).unwrap();
    let mut text = fields("plan", &head(base), &head(plan));
    for item in base.items.iter().filter(|item| !has(plan, &item.id)) {
        text.push_str(&format!("\n- {}\n", item.id));
    }
    let mut before = "the start";
    for item in &plan.items {
        let json = serde_json::to_value(item).unwrap();
        match base.items.iter().find(|other| other.id == item.id) {
            Some(other) => text.push_str(&fields(&item.id, &serde_json::to_value(other).unwrap(), &json)),
            None => text.push_str(&format!("\nafter {before}:\n+ {json}\n")),
        }
        before = &item.id;
    }
    text
}

/// Describes the fields in which two objects differ; empty if they are equal.
fn fields(name: &str, old: &Value, new: &Value) -> String {
    let keys: BTreeSet<&String> = [old, new].into_iter().filter_map(Value::as_object).flat_map(|object| object.keys()).collect();
    let differ = keys.into_iter().filter(|key| old[*key] != new[*key]);
    let lines: String = differ.map(|key| format!("  {key}: {}\n  {:>width$}: {}\n", old[key], "now", new[key], width = key.len())).collect();
    if lines.is_empty() { lines } else { format!("\n{name}\n{lines}") }
}

#[test]
fn plans_and_configurations_of_different_machines() {
    let usual = render(&facts()).unwrap().plan;
    insta::assert_snapshot!("plan-4cpu-8gib-2022-1.36", usual.json().unwrap());
    for (name, facts) in [("unknown-2019-1.32-containerd-1.7", old()), ("32cpu-128gib-2025", big()), ("everything", full())] {
        insta::assert_snapshot!(format!("plan-{name}"), difference(&usual, &render(&facts).unwrap().plan));
    }
    for (name, facts) in [("4cpu-8gib-2022-1.36", facts()), ("unknown-2019-1.32-containerd-1.7", old()), ("32cpu-128gib-2025", big())] {
        let payload = payload(&facts);
        for (what, path) in [("kubelet", "files/kubelet-patch.yaml"), ("join", "secret/kubeadm-join.yaml"), ("containerd", "files/containerd.toml")] {
            insta::assert_snapshot!(format!("{what}-{name}"), text(&payload, path));
        }
    }
}

#[test]
fn a_guest_reads_what_was_rendered() {
    let facts = facts();
    let bootstrap = render(&facts).unwrap();
    let payload = Payload::from_user_data(bootstrap.user_data.as_bytes()).unwrap();
    assert_eq!(serde_json::to_value(&payload.plan).unwrap(), serde_json::to_value(&bootstrap.plan).unwrap());
    assert!(payload.file(&paths::KUBELET_PATCH.to_uppercase()).is_some(), "Windows ignores case");
    // The payload is also readable after cloudbase-init has unzipped it.
    assert_eq!(Payload::from_user_data(&gzip(bootstrap.user_data.as_bytes())).unwrap().files, payload.files);
}

#[test]
fn the_token_is_in_one_file_and_nowhere_else() {
    for facts in [facts(), old(), big()] {
        let rendered = render(&facts).unwrap();
        let payload = Payload::from_user_data(rendered.user_data.as_bytes()).unwrap();
        let holds = |bytes: &[u8]| bytes.windows(TOKEN_SECRET.len()).any(|window| window == TOKEN_SECRET.as_bytes());
        let with: Vec<&String> = payload.files.iter().filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect();
        assert_eq!(with, ["secret/kubeadm-join.yaml"]);
        assert!(holds(payload.file(paths::JOIN_CONFIG).unwrap()));
        for shown in [rendered.plan.json().unwrap(), explain(&rendered.plan), format!("{facts:?} {rendered:?} {payload:?}")] {
            assert!(!shown.contains(TOKEN_SECRET), "{shown}");
        }
        // The last item removes every path that contained the secret.
        let Some(Kind::Absent { paths: removed, .. }) = payload.plan.items.last().map(|item| &item.kind) else {
            panic!("the last item removes nothing")
        };
        for place in [paths::SECRET, paths::PAYLOAD_SECRET, paths::PAYLOAD_ARCHIVE, paths::BOOTSTRAP_KUBECONFIG] {
            assert!(removed.iter().any(|path| path == place));
        }
    }
}

#[test]
fn content_from_a_secret_is_in_one_protected_file() {
    const CANARY: &str = "canary-5e9c1f0d7b2a4c3e";
    let mut facts = facts();
    let reference = SecretKeyRef { name: "licence".into(), key: "key".into() };
    let from = Some(ValueSource { secret_key_ref: reference.clone() });
    facts.spec.files = vec![
        File { path: r"C:\k\licence.key".into(), content_from: from, ..File::default() },
        File { path: r"C:\k\logo.png".into(), content: Some("iVBO\nRw0=".into()), encoding: Some(Encoding::Base64), ..File::default() },
    ];
    let error = render(&facts).unwrap_err().to_string();
    assert!(error.contains("spec.files[0].contentFrom.secretKeyRef") && error.contains("licence/key"), "{error}");
    facts.secrets.insert(reference, CANARY.into());
    let rendered = render(&facts).unwrap();
    let payload = Payload::from_user_data(rendered.user_data.as_bytes()).unwrap();
    let holds = |bytes: &[u8]| bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    let with: Vec<&String> = payload.files.iter().filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect();
    assert_eq!(with, ["secret/user-00"]);
    assert_eq!(payload.file(r"C:\k\licence.key").unwrap(), CANARY.as_bytes());
    assert_eq!(payload.file(r"C:\k\logo.png").unwrap(), b"\x89PNG\r");
    for shown in [rendered.plan.json().unwrap(), explain(&rendered.plan), format!("{facts:?} {:?} {rendered:?} {payload:?}", facts.secrets)] {
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

/// The innermost limit ends first, so that each waiting program can report what it waited for.
#[test]
fn limits_enclose_each_other() {
    let mut facts = facts();
    facts.api_server_minor = Some(36);
    let plan = render(&facts).unwrap().plan;
    let join = plan.items.iter().find(|item| item.id == "join").unwrap();
    let text = String::from_utf8(payload(&facts).file(paths::JOIN_CONFIG).unwrap().to_vec()).unwrap();
    let limit = |name: &str| -> u32 {
        let (_, rest) = text.split_once(&format!("{name}: '")).unwrap_or_else(|| panic!("no {name} in\n{text}"));
        60 * rest.split_once('m').unwrap().0.parse::<u32>().unwrap()
    };
    // The five API calls: two ConfigMaps, the Node before and after the join, and its annotation.
    let kubeadm = limit("discovery") + limit("tlsBootstrap") + limit("kubeletHealthCheck") + 5 * limit("kubernetesAPICall");
    assert!(join.seconds > kubeadm, "kubeadm may need {kubeadm} s, the join has {}", join.seconds);
    assert!(plan.limits.minutes * 60 > join.seconds * join.attempts + 30 * 60, "the plan has {} minutes", plan.limits.minutes);
}

#[test]
fn invalid_facts_are_refused_with_their_field() {
    type Change = fn(&mut BootstrapFacts);
    let cases: [(Change, &str); 17] = [
        (|f| f.endpoint = "https://api:6443".into(), "controlPlaneEndpoint"),
        (|f| f.endpoint = "api".into(), "controlPlaneEndpoint"),
        (|f| f.endpoint = "api:0".into(), "controlPlaneEndpoint"),
        (|f| f.token = SecretString::from("A.b"), "bootstrap token"),
        (|f| f.ca_pem = "x".into(), "certificate authority"),
        (|f| f.ca_hash = format!("sha256:{}", "0".repeat(64)), "CA hash"),
        (|f| f.provider_id = Some("aws:///x".into()), "spec.providerID"),
        (|f| f.cluster_dns = vec!["dns".into()], "spec.kubelet.clusterDNS"),
        (|f| f.cluster_domain = "Cluster.local".into(), "serviceDomain"),
        (|f| f.spec.kubelet.max_pods = Some(251), "spec.kubelet.maxPods"),
        (|f| f.spec.kubelet.system_reserved.cpu = Some("4".into()), "spec.cpus"),
        (|f| f.spec.kubelet.kube_reserved.memory = Some("6Gi".into()), "spec.memory"),
        (|f| f.spec.kubelet.node_labels = BTreeMap::from([("a b".into(), "c".into())]), "spec.kubelet.nodeLabels"),
        (|f| f.spec.kubelet.node_labels = (0..400).map(|n| (format!("label-{n}"), "x".repeat(40))).collect(), "8191"),
        (|f| f.spec.kubelet.taints = Some(vec![Taint { key: "\"".into(), value: None, effect: TaintEffect::NoSchedule }]), "spec.kubelet.taints"),
        (|f| f.spec.containerd.sandbox_image = Some("a b".into()), "spec.containerd.sandboxImage"),
        (|f| f.api_server_minor = Some(35), "the API server is 1.35"),
    ];
    for (change, field) in cases {
        let mut facts = facts();
        change(&mut facts);
        let error = render(&facts).unwrap_err().to_string();
        assert!(error.contains(field), "{error} lacks {field}");
        assert!(!error.contains(TOKEN_SECRET));
    }
    for path in [
        r"C:\",
        r"C:\a\..\b",
        r"C:\a.",
        r"\a",
        r"C:/a",
        r"C:\ProgramData\CAPW\x",
        r"c:\etc\kubernetes\patches\kubeletconfiguration+strategic.yaml",
        r"C:\a*",
    ] {
        let mut facts = facts();
        facts.spec.files = vec![File { path: path.into(), content: Some(String::new()), ..File::default() }];
        assert!(render(&facts).unwrap_err().to_string().contains("spec.files[0].path"), "{path}");
    }
    let mut twice = facts();
    twice.spec.files = [r"C:\a\b", r"C:\A\B"].map(|path| File { path: path.into(), content: Some(String::new()), ..File::default() }).to_vec();
    assert!(render(&twice).unwrap_err().to_string().contains("twice"));
}

fn any_facts() -> impl Strategy<Value = BootstrapFacts> {
    let labels = prop::collection::btree_map("[a-z]{1,10}([.]io/[a-z]{1,5})?", "[a-zA-Z0-9]{0,20}", 0..4);
    let files = prop::collection::btree_map(r"D:\\[a-z\u{e9}]{1,10}", ".{0,200}", 0..4);
    let host = prop::option::of("[a-z][a-z0-9]{0,14}");
    let size = prop::option::of((1u32..=128, 4096u64..=1 << 20));
    let token = "[a-z0-9]{6}[.][a-z0-9]{16}";
    (0u8..3, any::<bool>(), labels, files, host, size, token, prop::option::of(1..=250)).prop_map(
        |(release, old_line, labels, files, host, size, token, pods)| {
            let mut facts = facts();
            facts.host_name = host.map(|name| HostName::parse(&name).unwrap());
            facts.token = SecretString::from(token);
            facts.cpus = size.map(|(cpus, _)| cpus);
            facts.memory_mib = size.map(|(_, memory)| memory);
            facts.spec.windows_release = [WindowsRelease::Server2019, WindowsRelease::Server2022, WindowsRelease::Server2025][usize::from(release)];
            facts.spec.containerd.line = if old_line && release < 2 { ContainerdLine::V1 } else { ContainerdLine::V2 };
            facts.spec.kubelet.node_labels = labels;
            facts.spec.kubelet.max_pods = pods.filter(|_| size.is_none_or(|(_, memory)| memory > 16 << 10));
            facts.spec.files = files.into_iter().map(|(path, content)| File { path, content: Some(content), ..File::default() }).collect();
            facts
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn valid_facts_render_the_same_way_each_time(facts in any_node(any_facts())) {
        let Some(rendered) = rendered(&facts) else { return Ok(()) };
        prop_assert_eq!(&render(&facts).unwrap().user_data, &rendered.user_data);
        let payload = Payload::from_user_data(rendered.user_data.as_bytes()).unwrap();
        prop_assert!(payload.files["node.json"].is_ascii());
        let ids: BTreeSet<&String> = payload.plan.items.iter().map(|item| &item.id).collect();
        prop_assert_eq!(ids.len(), payload.plan.items.len());
        for item in &rendered.plan.items {
            prop_assert!(item.id.len() <= 32 && item.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", item.id);
            prop_assert!((10..100).contains(&item.code.number()) && item.seconds > 0 && item.attempts > 0);
            prop_assert!(item.why.link.starts_with("https://") && !item.why.reason.is_empty() && !item.why.remedy.is_empty(), "{}", item.id);
            if let Kind::Running { after, .. } = &item.kind {
                prop_assert!(after.iter().all(|id| ids.contains(id)));
            }
        }
        for file in &facts.spec.files {
            prop_assert_eq!(payload.file(&file.path).unwrap(), file.content.as_deref().unwrap().as_bytes());
        }
        for item in payload.plan.items.iter().filter(|item| item.id == "kubelet-automatic") {
            let Kind::Service { command_line, .. } = &item.kind else { panic!() };
            prop_assert!(!command_line.contains("pod-infra-container-image") && !command_line.contains("=\"\""));
        }
    }
}
