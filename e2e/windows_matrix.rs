//! Story *windows matrix*: what is rendered for each Kubernetes minor, containerd line, Windows release and pair of options is read by the
//! Windows program of that version, run by Wine, which must find no fault in it. Rendering only: no cluster, no guest.
//! The oldest and the newest minor; all of them with `CAPW_MATRIX=all`. Kubernetes 1.37 is not published as a Go module yet.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use capw::api::name::HostName;
use capw::bootstrap::facts::KubernetesVersion;
use capw::bootstrap::plan::Kind;
use capw::bootstrap::read::Payload;
use capw::bootstrap::{BootstrapFacts, ca_hash, paths, render};
use serde_json::{Value, json};

use crate::real_windows_node::faultless;
use crate::world::{step, wine};

const CA: &str = include_str!("../src/bootstrap/sample-ca.pem");
/// Lines of containerd, the version that judges each, and the Windows releases that it goes with.
const LINES: [(&str, &str, &[&str]); 2] = [("1.7", "1.7.29", &["2019", "2022"]), ("2", "2.3.7", &["2019", "2022", "2025"])];

/// Options and what each puts into the spec of a WindowsBootstrapConfig. One more is a line.
fn options() -> Vec<(&'static str, Value)> {
    vec![
        ("labels and taints", json!({"kubelet": {"nodeLabels": {"example.com/pool": "a"}, "taints": [{"key": "gpu", "effect": "NoExecute"}]}})),
        ("reserves", json!({"kubelet": {"systemReserved": {"cpu": "250m", "memory": "1Gi"}, "evictionHard": {"memoryAvailable": "300Mi"}}})),
        ("addresses and DNS", json!({"kubelet": {"clusterDNS": ["10.96.0.99"], "maxPods": 60, "priorityClass": "HIGH_PRIORITY_CLASS"}})),
        ("certificates by the cluster", json!({"kubelet": {"servingCertificate": "ClusterSigned", "logQuery": true}})),
        ("own fields", json!({"kubelet": {"extraConfig": {"imageGCHighThresholdPercent": 90, "serializeImagePulls": false}}})),
        ("mirrors", json!({"containerd": {"registries": [{"host": "docker.io", "mirrors": [{"url": "https://mirror.example.com"}]}]}})),
        ("isolation", json!({"containerd": {"hyperV": {"processors": 2, "memoryMiB": 2048}, "metricsAddress": "127.0.0.1:1338"}})),
        ("own files", json!({"files": [{"path": r"C:\k\hello.txt", "content": "hello"}]})),
    ]
}

#[test]
fn windows_matrix() {
    let all = std::env::var("CAPW_MATRIX").is_ok_and(|wanted| wanted == "all");
    let versions: &[&str] = if all { &["1.33.13", "1.34.4", "1.35.4", "1.36.3"] } else { &["1.33.13", "1.36.3"] };
    if let Some(lacks) = wine::lacks(versions) {
        return wine::skip("windows_matrix", &lacks);
    }
    let judge = Judge::new();
    let options = options();
    let mut specs = vec![json!({}), options.iter().fold(json!({}), |spec, (_, option)| merged(&spec, option))];
    for (at, (_, one)) in options.iter().enumerate() {
        specs.extend(options[at + 1..].iter().map(|(_, other)| merged(one, other)));
    }
    // Each file is judged once per program that reads it.
    let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut rendered = 0;
    for version in versions {
        let cluster = judge.cluster_configuration(version);
        for (line, containerd, releases) in LINES {
            for release in releases {
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
                    let (configuration, flags) = (kubelet_configuration(&cluster, &payload), kubelet_flags(&payload));
                    if news(format!("kubelet {version}"), format!("{configuration}{flags:?}")) {
                        judge.kubelet(version, &configuration, &flags, &payload, &what);
                    }
                    let toml = text(&payload, paths::CONTAINERD_CONFIG);
                    if news(format!("containerd {containerd}"), toml.clone()) {
                        judge.containerd(containerd, &toml, &what);
                    }
                }
            }
        }
    }
    step(format!("{rendered} payloads rendered, {} different files judged by their programs", seen.len()));
}

/// One object laid over another, as kubeadm lays a patch: lists are replaced, a null removes.
fn merged(under: &Value, over: &Value) -> Value {
    let Value::Object(over) = over else { return over.clone() };
    let mut all = under.as_object().cloned().unwrap_or_default();
    for (key, value) in over {
        let under = all.remove(key).unwrap_or_default();
        if !value.is_null() {
            all.insert(key.clone(), merged(&under, value));
        }
    }
    Value::Object(all)
}

fn payload(version: &str, spec: &Value) -> Payload {
    let facts = BootstrapFacts {
        machine_uid: "5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".into(),
        machine_name: "matrix".into(),
        generation: 1,
        host_name: Some(HostName::parse("win-matrix").expect("a host name")),
        provider_id: Some("windows://lab/5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".into()),
        kubernetes: KubernetesVersion::parse(version).expect("a version"),
        endpoint: "127.0.0.1:6443".into(),
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
        secrets: Default::default(),
        spec: serde_json::from_value(spec.clone()).unwrap_or_else(|error| panic!("{spec}: {error}")),
    };
    let bootstrap = render(&facts).unwrap_or_else(|error| panic!("{version}, {spec}: {error}"));
    Payload::from_user_data(bootstrap.user_data.as_bytes()).expect("a payload")
}

fn text(payload: &Payload, path: &str) -> String {
    String::from_utf8(payload.file(path).unwrap_or_else(|| panic!("the plan writes no {path}")).to_vec()).expect("text")
}

/// The cluster's configuration with the patch over it, as kubeadm lays it.
fn kubelet_configuration(cluster: &Value, payload: &Payload) -> Value {
    let patch: Value = serde_saphyr::from_str(&text(payload, paths::KUBELET_PATCH)).expect("the patch is YAML");
    merged(cluster, &patch)
}

/// What the service gives to kubelet.exe.
fn kubelet_flags(payload: &Payload) -> Vec<String> {
    let line = payload.plan.items.iter().find_map(|item| match &item.kind {
        Kind::Service { name, command_line, .. } if name == "kubelet" => Some(command_line.clone()),
        _ => None,
    });
    let line = line.expect("the plan has the service kubelet");
    let (_, flags) = line.split_once(paths::KUBELET).expect("the service runs the kubelet");
    flags.split(' ').filter(|flag| flag.starts_with("--") && *flag != "--windows-service").map(str::to_owned).collect()
}

/// A Wine prefix with the programs of all versions.
struct Judge {
    home: tempfile::TempDir,
}

impl Judge {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let judge = Self { home };
        let copied = std::process::Command::new("cp").arg("-a").arg(wine::programs().join("wine-prefix")).arg(judge.prefix()).status();
        assert!(copied.is_ok_and(|status| status.success()), "the prepared prefix is copied");
        judge
    }

    fn prefix(&self) -> PathBuf {
        self.home.path().join("prefix")
    }

    fn write(&self, windows: &str, text: &str) {
        let path = self.prefix().join("drive_c").join(windows.trim_start_matches("C:\\").replace('\\', "/"));
        fs::create_dir_all(path.parent().expect("a directory")).expect("the directory is made");
        fs::write(path, text).expect("the file is written");
    }

    /// Runs a program of a version to its end, at most `seconds`: everything that it prints.
    fn run(&self, program: &str, version: &str, arguments: &[&str], seconds: u32) -> (bool, String) {
        const INSIDE: &str = r#"sockets=/tmp/.wine-$(id -u); mkdir -p -m 700 "$sockets"; mount -t tmpfs -o mode=700 none "$sockets"
ip link set lo up; cd "$1"; shift; exec "$@""#;
        let name = format!("{program}-{version}.exe");
        let from = wine::programs().join(format!("{program}-windows-{version}/{program}.exe"));
        let to = self.prefix().join("drive_c").join(&name);
        if !to.exists() && fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        }
        let wine = if Path::new("/usr/lib/wine/wine64").exists() { "/usr/lib/wine/wine64" } else { "wine64" };
        let output = std::process::Command::new("unshare")
            .args(["--fork", "--pid", "--net", "--ipc", "--mount", "--mount-proc", "--kill-child", "sh", "-c", INSIDE, "sh"])
            .arg(self.prefix().join("drive_c"))
            .args(["timeout", &seconds.to_string(), wine, r"C:\windows\console.exe", &format!("C:\\{name}")])
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.home.path())
            .env("WINEPREFIX", self.prefix())
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "pdh=n")
            .env("DISPLAY", "")
            .stdin(std::process::Stdio::null())
            .output()
            .expect("unshare runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    /// kubeadm's KubeletConfiguration of a new cluster of this version: what our patch is laid over.
    fn cluster_configuration(&self, version: &str) -> Value {
        let (_, printed) = self.run("kubeadm", version, &["config", "print", "init-defaults", "--component-configs", "KubeletConfiguration"], 120);
        let document =
            printed.split("---").find(|text| text.contains("kind: KubeletConfiguration")).unwrap_or_else(|| panic!("kubeadm prints:\n{printed}"));
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}:\n{document}"))
    }

    fn join(&self, version: &str, configuration: &str, what: &str) {
        self.write(r"C:\join.yaml", configuration);
        let (well, said) = self.run("kubeadm", version, &["config", "validate", "--config", r"C:\join.yaml"], 120);
        assert!(well && said.contains("ok"), "kubeadm {version} refuses the JoinConfiguration of {what}:\n{said}");
        assert!(!said.contains("WARNING") && !said.contains("unknown field"), "{what}:\n{said}");
    }

    /// The kubelet checks flags and configuration, and then ends because there is no cluster to join.
    fn kubelet(&self, version: &str, configuration: &Value, flags: &[String], payload: &Payload, what: &str) {
        // JSON is YAML.
        self.write(paths::KUBELET_CONFIG, &configuration.to_string());
        self.write(paths::CLUSTER_CA, CA);
        fs::create_dir_all(self.prefix().join("drive_c/var/lib/kubelet/pki")).expect("the directory is made");
        for item in &payload.plan.items {
            match &item.kind {
                Kind::File { path, source, .. } if path.starts_with(paths::KUBERNETES) => {
                    self.write(path, &String::from_utf8_lossy(&payload.files[source]));
                }
                Kind::Directory { paths, .. } => paths.iter().filter(|path| path.starts_with("C:\\etc")).for_each(|path| {
                    let path = self.prefix().join("drive_c").join(path.trim_start_matches("C:\\").replace('\\', "/"));
                    fs::create_dir_all(path).expect("the directory is made");
                }),
                _ => {}
            }
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (_, said) = self.run("kubelet", version, &flags, 120);
        let said: String = said.lines().filter(|line| !line.contains("FLAG: --")).map(|line| format!("{line}\n")).collect();
        assert!(said.contains("bootstrap kubeconfig"), "the kubelet {version} did not come as far as joining with {what}:\n{said}");
        faultless(&said);
    }

    /// containerd shows what it understood: everything that was written must be in it. 2.x says that it moves version 3 to 4, which
    /// older 2.x refuse.
    fn containerd(&self, version: &str, written: &str, what: &str) {
        self.write(r"C:\config.toml", written);
        let (well, said) = self.run("containerd", version, &["--config", r"C:\config.toml", "config", "dump"], 120);
        assert!(well, "containerd {version} refuses the configuration of {what}:\n{said}");
        let warnings: Vec<&str> =
            said.lines().filter(|line| line.contains("level=") && !line.contains("Configuration migrated from version 3")).collect();
        assert!(warnings.is_empty(), "containerd {version} with {what}:\n{}", warnings.join("\n"));
        let dump: String = said.lines().filter(|line| !line.starts_with("time=")).map(|line| format!("{line}\n")).collect();
        let understood: toml::Value = toml::from_str(&dump).unwrap_or_else(|error| panic!("{error}:\n{dump}"));
        let mut written: toml::Table = toml::from_str(written).expect("TOML");
        if understood.get("version").and_then(toml::Value::as_integer) == Some(4) {
            migrated(&mut written);
        }
        let written = toml::Value::Table(written);
        let mut lost = Vec::new();
        missing(&written, &understood, "", &mut lost);
        lost.retain(|path| path != "/version");
        assert!(lost.is_empty(), "containerd {version} dropped or changed {lost:?} of {what}:\n{dump}");
    }
}

/// Schema 4, which containerd 2.3 makes of 3: the sections of its servers have become plug-ins, of which we write one.
fn migrated(written: &mut toml::Table) {
    if let Some(metrics) = written.remove("metrics") {
        let plugins = written.entry("plugins").or_insert_with(|| toml::Table::new().into());
        plugins.as_table_mut().expect("a table").insert("io.containerd.server.v1.metrics".into(), metrics);
    }
}

/// Paths of what is in one document and not, or not so, in the other.
fn missing(written: &toml::Value, understood: &toml::Value, at: &str, lost: &mut Vec<String>) {
    match (written, understood) {
        (toml::Value::Table(written), toml::Value::Table(understood)) => {
            for (key, value) in written {
                match understood.get(key) {
                    Some(found) => missing(value, found, &format!("{at}/{key}"), lost),
                    None => lost.push(format!("{at}/{key}")),
                }
            }
        }
        (written, understood) if written == understood => {}
        _ => lost.push(at.to_owned()),
    }
}
