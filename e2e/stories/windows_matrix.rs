//! Story *windows matrix*: the files are rendered for each Kubernetes minor, containerd line, Windows release and pair of options. The Windows
//! program of that version, run by Wine, reads them and must find no fault. kube-proxy.exe does the same with its settings for each pod network. The
//! story only renders: it has no cluster and no guest.
//! It uses the newest minor and line with no option, each option and all options; with `CAPW_MATRIX=all` every minor, line and pair of options.
//! Kubernetes 1.37 is not published as a Go module yet.

mod judge;
mod networks;

use std::collections::BTreeMap;

use capw::api::bootstrap_config::WindowsBootstrapConfigSpec;
use capw::bootstrap::plan::{Kind, Variables};
use capw::bootstrap::read::Payload;
use capw::bootstrap::{BootstrapFacts, paths, render};
use serde_json::{Value, json};

use self::judge::{Judge, Kubelet};
use self::networks::judge_networks;
use crate::world::facts::facts;
use crate::world::{step, wine};

/// The containerd lines, the version that judges each, and the Windows releases that each supports.
const LINES: [(&str, &str, &[&str]); 2] = [("1.7", "1.7.29", &["2019", "2022"]), ("2", "2.3.7", &["2019", "2022", "2025"])];

/// Returns the options with their changes of a WindowsBootstrapConfig's spec. A new option is one more line.
fn options() -> Vec<(&'static str, Value)> {
    vec![
        ("labels and taints", json!({"kubelet": {"nodeLabels": {"example.com/pool": "a"}, "taints": [{"key": "gpu", "effect": "NoExecute"}]}})),
        ("reserves", json!({"kubelet": {"systemReserved": {"cpu": "250m", "memory": "1Gi"}, "evictionHard": {"memory.available": "300Mi"}}})),
        ("addresses and DNS", json!({"kubelet": {"clusterDNS": ["10.96.0.99"], "maxPods": 60, "priorityClass": "HIGH_PRIORITY_CLASS"}})),
        ("certificates by the cluster", json!({"kubelet": {"servingCertificate": "ClusterSigned", "logQuery": true}})),
        ("own fields", json!({"kubelet": {"extraConfig": {"imageGCHighThresholdPercent": 90, "serializeImagePulls": false}}})),
        ("mirrors", json!({"containerd": {"registries": [{"host": "docker.io", "mirrors": [{"url": "https://mirror.example.com"}]}]}})),
        ("isolation", json!({"containerd": {"hyperV": {"processors": 2, "memoryMiB": 2048}, "metricsAddress": "127.0.0.1:1338"}})),
        ("proxy", json!({"network": {"proxy": {"https": "http://proxy.example.com:3128", "noProxy": ["10.0.0.0/8"]}}})),
        (
            "gMSA",
            json!({"windows": {"gmsa": {"credentialPlugin": {"classId": "{CCC2A336-D7F3-4818-A213-272B7924213E}", "library": r"C:\Program Files\plugin\plugin.dll"}}}}),
        ),
        ("kube-proxy", json!({"kubeProxy": {"networkName": "cbr0"}})),
        (
            "kube-proxy in an overlay",
            json!({"kubeProxy": {"networkName": "vxlan0", "networkType": "Overlay", "sourceVIP": "10.244.3.2", "directServerReturn": false}}),
        ),
        (
            "credentials",
            json!({"kubelet": {"imageCredentialProvider": {"directory": r"C:\k", "providers": [{"name": "a", "matchImages": ["*.example.com"]}]}}}),
        ),
        ("own files", json!({"files": [{"path": r"C:\k\hello.txt", "content": "hello"}]})),
    ]
}

#[test]
fn windows_matrix() {
    let all = std::env::var("CAPW_MATRIX").is_ok_and(|wanted| wanted == "all");
    let versions: &[&str] = if all { &["1.33.13", "1.34.4", "1.35.4", "1.36.3"] } else { &["1.36.3"] };
    let lines = if all { &LINES[..] } else { &LINES[1..] };
    if let Some(lacks) = wine::lacks(versions) {
        return wine::skip("windows_matrix", &lacks);
    }
    let judge = Judge::new();
    let options = options();
    let mut specs = vec![json!({}), options.iter().fold(json!({}), |spec, (_, option)| merged(&spec, option))];
    specs.extend(options.iter().map(|(_, option)| option.clone()));
    for (at, (_, one)) in options.iter().enumerate().filter(|_| all) {
        specs.extend(options[at + 1..].iter().map(|(_, other)| merged(one, other)));
    }
    // Each file is judged once per program that reads it.
    let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut rendered = 0;
    for version in versions {
        let cluster = judge.cluster_configuration(version);
        for (line, containerd, releases) in lines {
            for release in *releases {
                for spec in &specs {
                    let spec = merged(spec, &json!({"windowsRelease": release, "containerd": {"line": line}}));
                    let payload = payload(version, &spec);
                    rendered += 1;
                    let what = format!("{version}, containerd {containerd}, Windows {release}, {spec}");
                    let mut news = |program: String, text: String| seen.insert((program, text), what.clone()).is_none();
                    let join = text(&payload, paths::JOIN_CONFIG);
                    if news(format!("kubeadm {version}"), join.clone()) {
                        judge.join(version, &join, &what);
                    }
                    let kubelet = Kubelet {
                        configuration: kubelet_configuration(&cluster, &payload),
                        flags: flags(&payload, "kubelet", paths::KUBELET),
                        variables: variables(&payload, "kubelet"),
                    };
                    if news(format!("kubelet {version}"), format!("{kubelet:?}")) {
                        judge.kubelet(version, &kubelet, &payload, &what);
                    }
                    let (toml, variables) = (text(&payload, paths::CONTAINERD_CONFIG), variables(&payload, "containerd"));
                    if news(format!("containerd {containerd}"), toml.clone()) {
                        judge.containerd(containerd, &toml, &what);
                    }
                    if news(format!("containerd {containerd} started"), format!("{toml}{variables:?}")) {
                        judge.containerd_starts(containerd, &toml, &variables, &what);
                    }
                    if spec.get("kubeProxy").is_some() {
                        let (configuration, flags) = (text(&payload, paths::KUBE_PROXY_CONFIG), flags(&payload, "kube-proxy", paths::KUBE_PROXY));
                        if news(format!("kube-proxy {version}"), format!("{configuration}{flags:?}")) {
                            judge.kube_proxy(version, paths::KUBE_PROXY_CONFIG, &configuration, &flags, &what);
                        }
                    }
                }
            }
        }
    }
    let of_networks = judge_networks(&judge, versions);
    step(format!("kube-proxy.exe judged {of_networks} files for pod networks"));
    step(format!("{rendered} payloads rendered, {} different files judged by their programs", seen.len()));
}

/// Merges one object over another as kubeadm applies a patch: lists are replaced, and a null removes a field.
fn merged(under: &Value, over: &Value) -> Value {
    let mut all = under.clone();
    json_patch::merge(&mut all, over);
    all
}

fn payload(version: &str, spec: &Value) -> Payload {
    // An IP address, so that no program resolves a name.
    let facts = BootstrapFacts { endpoint: "127.0.0.1:6443".into(), ..facts(version, whole(spec)) };
    let bootstrap = render(&facts).unwrap_or_else(|error| panic!("{version}, {spec}: {error}"));
    Payload::from_user_data(bootstrap.user_data.as_bytes()).expect("a payload")
}

/// Parses the spec, and fails if a field does not exist, because serde drops unknown fields.
fn whole(spec: &Value) -> WindowsBootstrapConfigSpec {
    let read: WindowsBootstrapConfigSpec = serde_json::from_value(spec.clone()).unwrap_or_else(|error| panic!("{spec}: {error}"));
    let unknown = unknown(spec, &serde_json::to_value(&read).expect("a spec"));
    assert!(unknown.is_empty(), "no such fields: {unknown:?}");
    read
}

/// Returns the names that were written and not read.
fn unknown(written: &Value, read: &Value) -> Vec<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            let of = |(name, value): (&String, &Value)| read.get(name).map_or_else(|| vec![name.clone()], |found| unknown(value, found));
            written.iter().flat_map(of).collect()
        }
        (Value::Array(written), Value::Array(read)) => written.iter().zip(read).flat_map(|(written, read)| unknown(written, read)).collect(),
        _ => Vec::new(),
    }
}

fn text(payload: &Payload, path: &str) -> String {
    String::from_utf8(payload.file(path).unwrap_or_else(|| panic!("the plan writes no {path}")).to_vec()).expect("text")
}

/// Merges the patch over the cluster's configuration, as kubeadm does.
fn kubelet_configuration(cluster: &Value, payload: &Payload) -> Value {
    let patch: Value = serde_saphyr::from_str(&text(payload, paths::KUBELET_PATCH)).expect("the patch is YAML");
    merged(cluster, &patch)
}

/// Returns the flags that a service passes to its program, without the flag that requires Windows' service manager.
fn flags(payload: &Payload, service: &str, program: &str) -> Vec<String> {
    let line = payload.plan.items.iter().find_map(|item| match &item.kind {
        Kind::Service { name, command_line, .. } if name == service => Some(command_line.clone()),
        _ => None,
    });
    let line = line.unwrap_or_else(|| panic!("the plan has no service {service}"));
    let (_, flags) = line.split_once(program).unwrap_or_else(|| panic!("{service} does not run {program}"));
    flags.split(' ').filter(|flag| flag.starts_with("--") && *flag != "--windows-service").map(str::to_owned).collect()
}

/// Returns the environment variables of a service.
fn variables(payload: &Payload, wanted: &str) -> Vec<(String, String)> {
    let lines = payload.plan.items.iter().find_map(|item| match &item.kind {
        Kind::ServiceEnvironment { service, variables: Variables::Plain(lines) } if service == wanted => Some(lines.clone()),
        _ => None,
    });
    let pair = |line: String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    lines.into_iter().flatten().filter_map(pair).collect()
}
