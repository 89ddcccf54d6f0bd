//! How long rendering takes, as a share of the 5 ms that it may take: `make render`. It renders the data of a machine for every compatible set of
//! minor, Windows release and containerd line, with no files and with many; and the checks and components for Windows nodes, for every recorded
//! cluster. Nothing is asserted: the numbers of one machine do not apply to another.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark: it prints what it measures and lives by the clock"
)]

use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use capw::api::bootstrap_config::{ContainerdLine, File, WindowsBootstrapConfigSpec, WindowsRelease};
use capw::api::components::Policies;
use capw::api::kubernetes_version::KubernetesVersion;
use capw::api::name::{HostName, ProviderId, VmUuid};
use capw::bootstrap::facts::{BootstrapFacts, MINORS};
use capw::bootstrap::{ca_hash, render};
use capw::components::{Parameters, judge, read, windows_pods, windows_side};
use serde_json::Value;

const CA: &str = include_str!("../../src/bootstrap/sample-ca.pem");
const GOAL: Duration = Duration::from_millis(5);
const ROUNDS: usize = 50;
/// The files of a large configuration: 16 of 4 KiB.
const FILES: usize = 16;

fn facts(minor: u32, spec: WindowsBootstrapConfigSpec) -> BootstrapFacts {
    let vm = VmUuid::of("bench");
    BootstrapFacts {
        machine_uid: vm.to_string(),
        machine_name: "bench".to_owned(),
        generation: 1,
        host_name: Some(HostName::parse("win-bench").expect("a host name")),
        provider_id: Some(ProviderId { hypervisor: "lab".to_owned(), vm }.to_string()),
        kubernetes: KubernetesVersion::supported(&format!("v1.{minor}.4")).expect("a version"),
        api_server_minor: None,
        endpoint: "api.example.com:6443".to_owned(),
        ca_hash: ca_hash(CA).expect("a CA"),
        ca_pem: CA.to_owned(),
        token: "a1b2c3.0123456789abcdef".to_owned().into(),
        cpus: Some(8),
        memory_mib: Some(32 << 10),
        system_disk_gib: Some(100),
        cluster_dns: vec!["10.96.0.10".to_owned()],
        cluster_domain: "cluster.local".to_owned(),
        pod_networks: Vec::new(),
        service_networks: Vec::new(),
        pods_per_node: None,
        secrets: Default::default(),
        spec,
    }
}

/// All bootstrap data that this release renders.
fn all() -> Vec<(String, BootstrapFacts)> {
    let mut all = Vec::new();
    for minor in MINORS {
        for windows_release in [WindowsRelease::Server2019, WindowsRelease::Server2022, WindowsRelease::Server2025] {
            for line in [ContainerdLine::V1, ContainerdLine::V2] {
                for files in [0, FILES] {
                    let mut spec = WindowsBootstrapConfigSpec { windows_release, ..Default::default() };
                    spec.containerd.line = line;
                    let content = Some("0123456789abcdef".repeat(256));
                    spec.files =
                        (0..files).map(|n| File { path: format!(r"C:\k\bench-{n}.txt"), content: content.clone(), ..Default::default() }).collect();
                    let facts = facts(minor, spec);
                    // Incompatible combinations are not rendered.
                    if render(&facts).is_ok() {
                        all.push((format!("1.{minor}, Windows {windows_release:?}, containerd {line:?}, {files} files"), facts));
                    }
                }
            }
        }
    }
    all
}

/// Every recorded cluster.
fn recordings() -> Vec<(String, Vec<Value>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures");
    let files = fs::read_dir(&folder).expect("the recordings").flatten().map(|file| file.path());
    let recordings = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    recordings
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a recording");
            (path.file_stem().expect("a name").to_string_lossy().into_owned(), serde_saphyr::from_multiple(&text).expect("YAML"))
        })
        .collect()
}

/// Runs the computation of a reconcile on the objects of a cluster, without the reports.
fn components(objects: &[Value]) {
    let parameters =
        Parameters { image: "registry.example.com/capw:v0".into(), api_server: "https://127.0.0.1:6443".into(), pull_secrets: Vec::new() };
    let (side, hosts) = (read(objects), BTreeSet::new());
    black_box((judge(&side), windows_side(&side, &parameters).ok(), windows_pods(&hosts, &Policies::default())));
}

/// Median and 95th percentile of `ROUNDS` rounds.
fn measured(what: impl Fn()) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            what();
            start.elapsed()
        })
        .collect();
    times.sort();
    let at = |share: usize| times.get((times.len() - 1) * share / 100).copied().expect("there are rounds");
    (at(50), at(95))
}

fn print(what: &str, mut all: Vec<((Duration, Duration), String)>) {
    all.sort();
    let share = |time: Duration| time.as_secs_f64() / GOAL.as_secs_f64();
    println!("\n{what}: {} combinations, {ROUNDS} times each; goal {} ms\n", all.len(), GOAL.as_millis());
    println!("| rendering | median | share of the goal | 95th percentile | share |\n|---|---:|---:|---:|---:|");
    let ends = all.first().into_iter().chain(all.get(all.len() / 2)).chain(all.last());
    for (which, ((median, late), name)) in ["fastest", "middle", "slowest"].iter().zip(ends) {
        println!("| {which}: {name} | {median:.2?} | {:.2} | {late:.2?} | {:.2} |", share(*median), share(*late));
    }
}

fn main() {
    let render = |facts: &BootstrapFacts| {
        black_box(render(facts).expect("it was rendered before"));
    };
    print("data of a machine", all().into_iter().map(|(name, facts)| (measured(|| render(&facts)), name)).collect());
    print("components of a cluster", recordings().into_iter().map(|(name, objects)| (measured(|| components(&objects)), name)).collect());
}
