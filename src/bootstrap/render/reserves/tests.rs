//! The formula as a table, beside the formulas of AKS, EKS, GKE and Karpenter; `docs/reserves.md` has the same table.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::{Reserves, explain, reserves};
use crate::api::bootstrap_config::{EvictionHard, Reserve, ReserveProfile};
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::sample::facts;

fn machine(cpus: u32, gib: u64) -> BootstrapFacts {
    BootstrapFacts { cpus: Some(cpus), memory_mib: Some(gib << 10), ..facts() }
}

fn with(cpus: u32, gib: u64, pods: i32, profile: ReserveProfile) -> Reserves {
    let mut facts = machine(cpus, gib);
    facts.spec.kubelet.max_pods = Some(pods);
    facts.spec.kubelet.reserve_profile = Some(profile);
    reserves(&facts).unwrap()
}

fn kept(r: &Reserves) -> u64 {
    r.system.memory_mib + r.kube.memory_mib + r.eviction_mib
}

/// The reserves of other providers: memory in MiB including the eviction threshold, and CPU in millicores where known.
mod peers {
    /// Sums a share of each tier of the memory: up to 4, 8, 16, 128 GiB and above, in MiB.
    fn tiers(mib: u64) -> u64 {
        let mut below = 0;
        let mut sum = 0;
        for (top, percent) in [(4 << 10, 25), (8 << 10, 20), (16 << 10, 10), (128 << 10, 6), (u64::MAX, 2)] {
            sum += (mib.min(top) - mib.min(below)) * percent / 100;
            below = top;
        }
        sum
    }

    /// AKS from Kubernetes 1.29: 20 MB for each pod and 50 MB, at most a quarter; 2 GB for Windows; 100Mi of eviction.
    /// <https://learn.microsoft.com/en-us/azure/aks/node-resource-reservations>
    pub fn aks(mib: u64, pods: u64) -> u64 {
        (20 * pods + 50).min(mib / 4) + 2048 + 100
    }

    /// The best practices of EKS for Windows. <https://docs.aws.amazon.com/eks/latest/best-practices/windows-oom.html>
    pub fn eks(_mib: u64, _pods: u64) -> u64 {
        1536 + 512 + 200
    }

    /// <https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes>
    pub fn gke(mib: u64, _pods: u64) -> u64 {
        tiers(mib) + 100
    }

    /// <https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/instancetype/types.go>
    pub fn karpenter(_mib: u64, pods: u64) -> u64 {
        11 * pods + 255 + 100
    }

    /// GKE: 6% of the first processor, 1% of the second, half a percent of the third and fourth, a quarter percent of the rest.
    pub fn gke_cpu(cpus: u64) -> u64 {
        let parts = [(1, 6000), (1, 1000), (2, 500), (u64::MAX, 250)];
        let mut left = cpus;
        let mut sum = 0;
        for (many, share) in parts {
            sum += left.min(many) * share;
            left -= left.min(many);
        }
        sum / 100
    }
}

/// CPUs, GiB of memory, pods; then page file, system, kube, eviction of both profiles in MiB, and CPU in millicores.
type Row = (u32, u64, i32, u64, u64, u64, u64, u64, u64);
const TABLE: [Row; 7] = [
    (2, 4, 30, 4096, 2211, 624, 500, 2548, 350),
    (2, 8, 30, 4096, 2375, 624, 500, 2548, 350),
    (2, 8, 110, 4096, 2375, 1607, 500, 2548, 350),
    (4, 16, 110, 4096, 2703, 1607, 500, 2548, 640),
    (8, 32, 110, 8192, 3358, 1607, 983, 5079, 680),
    (16, 64, 110, 16384, 4669, 1607, 1966, 10158, 760),
    (32, 128, 110, 16384, 6144, 1607, 3932, 12124, 920),
];

#[test]
fn each_term_of_the_formula() {
    for (cpus, gib, pods, page_file, system, kube, standard, safe, cpu) in TABLE {
        let r = with(cpus, gib, pods, ReserveProfile::Standard);
        assert_eq!((r.page_file_mib, r.system.memory_mib, r.kube.memory_mib, r.eviction_mib), (page_file, system, kube, standard), "{cpus} {gib}");
        assert_eq!(r.system.milli_cpu + r.kube.milli_cpu, cpu, "{cpus} processors");
        assert_eq!((r.system.ephemeral_mib, r.kube.ephemeral_mib), (1024, 1024));
        let kept_safe = 2211 + 624 + safe;
        if gib << 10 > kept_safe {
            assert_eq!(with(cpus, gib, pods, ReserveProfile::Safe).eviction_mib, safe, "{cpus} {gib}");
        }
    }
}

#[test]
fn a_small_machine_or_network_gets_few_pods_and_many_are_warned_about() {
    for (memory, pods) in [(Some(4 << 10), 30), (Some(8 << 10), 30), (Some((8 << 10) + 1), 110), (Some(64 << 10), 110), (None, 110)] {
        let facts = BootstrapFacts { memory_mib: memory, ..facts() };
        assert_eq!(reserves(&facts).unwrap().max_pods, pods, "{memory:?}");
    }
    for (addresses, pods) in [(Some(251), 110), (Some(60), 60), (Some(0), 1), (None, 110)] {
        let facts = BootstrapFacts { pods_per_node: addresses, ..machine(4, 16) };
        assert_eq!(reserves(&facts).unwrap().max_pods, pods, "{addresses:?}");
    }
    assert_eq!(with(2, 8, 30, ReserveProfile::Standard).warning, None);
    let warning = with(2, 8, 110, ReserveProfile::Standard).warning.unwrap();
    assert!(warning.contains("3710Mi of 8192Mi") && warning.contains("spec.kubelet.maxPods (now 110"), "{warning}");
}

#[test]
fn the_page_file_takes_at_most_its_share_of_the_disk() {
    for (disk, given, mib) in
        [(None, None, 16384), (Some(200), None, 16384), (Some(40), None, 6144), (Some(40), Some(1024), 1024), (None, Some(32768), 32768)]
    {
        let mut facts = BootstrapFacts { system_disk_gib: disk, ..machine(16, 64) };
        facts.spec.windows.page_file_mib = given;
        let r = reserves(&facts).unwrap();
        assert_eq!(r.page_file_mib, mib, "{disk:?} {given:?}");
        assert_eq!(r.terms.iter().any(|t| t.how.starts_with("given by spec.windows.pageFileMiB")), given.is_some());
    }
    let mut facts = BootstrapFacts { system_disk_gib: Some(40), ..machine(16, 64) };
    facts.spec.windows.page_file_mib = Some(30 << 10);
    let error = reserves(&facts).unwrap_err().to_string();
    assert!(error.contains("spec.windows.pageFileMiB") && error.contains("40960Mi"), "{error}");
}

#[test]
fn every_field_can_be_given_alone() {
    type Change = fn(&mut BootstrapFacts);
    type Show = fn(&Reserves) -> String;
    let cases: [(&str, Change, Show, &str); 11] = [
        ("maxPods", |f| f.spec.kubelet.max_pods = Some(50), |r| r.max_pods.to_string(), "50"),
        ("page file", |f| f.spec.windows.page_file_mib = Some(9000), |r| r.page_file_mib.to_string(), "9000"),
        ("systemReserved.cpu", |f| f.spec.kubelet.system_reserved.cpu = Some("1".into()), |r| r.system.milli_cpu.to_string(), "1000"),
        ("systemReserved.memory", |f| f.spec.kubelet.system_reserved.memory = Some("3Gi".into()), |r| r.system.memory_mib.to_string(), "3072"),
        (
            "systemReserved.ephemeralStorage",
            |f| f.spec.kubelet.system_reserved.ephemeral_storage = Some("5Gi".into()),
            |r| r.system.ephemeral_mib.to_string(),
            "5120",
        ),
        ("kubeReserved.cpu", |f| f.spec.kubelet.kube_reserved.cpu = Some("77m".into()), |r| r.kube.milli_cpu.to_string(), "77"),
        ("kubeReserved.memory", |f| f.spec.kubelet.kube_reserved.memory = Some("700Mi".into()), |r| r.kube.memory_mib.to_string(), "700"),
        (
            "kubeReserved.ephemeralStorage",
            |f| f.spec.kubelet.kube_reserved.ephemeral_storage = Some("2Gi".into()),
            |r| r.kube.ephemeral_mib.to_string(),
            "2048",
        ),
        (
            "evictionHard[memory.available]",
            |f| f.spec.kubelet.eviction_hard.memory_available = Some("5%".into()),
            |r| format!("{} {}", r.eviction_mib, r.eviction_hard["memory.available"]),
            "819 5%",
        ),
        (
            "evictionHard[nodefs.available]",
            |f| f.spec.kubelet.eviction_hard.nodefs_available = Some("8Gi".into()),
            |r| r.eviction_hard["nodefs.available"].clone(),
            "8Gi",
        ),
        (
            "evictionHard[imagefs.available]",
            |f| f.spec.kubelet.eviction_hard.imagefs_available = Some("20%".into()),
            |r| r.eviction_hard["imagefs.available"].clone(),
            "20%",
        ),
    ];
    let base = machine(4, 16);
    let computed = reserves(&base).unwrap();
    for (name, change, seen, wanted) in cases {
        let mut facts = base.clone();
        change(&mut facts);
        let given = reserves(&facts).unwrap();
        assert_eq!(seen(&given), wanted, "{name}");
        assert_ne!(seen(&computed), wanted, "{name}: the example is what is computed anyway");
        // The other amounts keep value and calculation, unless they depend on this one.
        let said: Vec<&str> = given.terms.iter().filter(|t| t.how.starts_with("given by spec.")).map(|t| t.name.as_str()).collect();
        assert_eq!(said, [name]);
        assert_eq!(given.eviction_hard.len(), 3, "a kubelet takes those that are missing as 0");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_sum() {
    type Change = fn(&mut BootstrapFacts);
    let cases: [(Change, &[&str]); 9] = [
        (|f| f.memory_mib = Some(3 << 10), &["spec.memory", "3072Mi", "2170Mi", "need"]),
        (|f| f.spec.kubelet.system_reserved.memory = Some("16Gi".into()), &["spec.memory", "16384Mi"]),
        (|f| f.spec.kubelet.eviction_hard.memory_available = Some("90%".into()), &["spec.memory", "14745Mi"]),
        (|f| f.spec.kubelet.kube_reserved.cpu = Some("4".into()), &["spec.cpus", "4500m"]),
        (|f| f.cpus = Some(0), &["spec.cpus"]),
        (|f| f.spec.kubelet.max_pods = Some(0), &["spec.kubelet.maxPods", "1 to 250"]),
        (|f| f.spec.kubelet.max_pods = Some(-1), &["spec.kubelet.maxPods", "-1"]),
        (
            |f| {
                f.system_disk_gib = Some(40);
                f.spec.kubelet.kube_reserved.ephemeral_storage = Some("39Gi".into());
            },
            &["spec.systemDisk", "40Gi", "40960Mi"],
        ),
        (|f| f.spec.kubelet.eviction_hard.nodefs_available = Some("0%".into()), &["spec.kubelet.evictionHard[nodefs.available]", "0%"]),
    ];
    for (change, wanted) in cases {
        let mut facts = machine(4, 16);
        change(&mut facts);
        let error = reserves(&facts).unwrap_err().to_string();
        assert!(wanted.iter().all(|part| error.contains(part)), "{error} lacks one of {wanted:?}");
    }
}

#[test]
fn the_arithmetic_is_shown() {
    let mut facts = machine(4, 16);
    facts.system_disk_gib = Some(60);
    facts.spec.kubelet.reserve_profile = Some(ReserveProfile::Safe);
    facts.spec.kubelet.kube_reserved = Reserve { memory: Some("1Gi".into()), ..Reserve::default() };
    facts.spec.kubelet.eviction_hard = EvictionHard { nodefs_available: Some("5Gi".into()), ..EvictionHard::default() };
    insta::assert_snapshot!(explain(&facts, &reserves(&facts).unwrap()));
}

/// Returns one line of the table in `docs/reserves.md`.
fn compared(cpus: u32, gib: u64, pods: i32) -> String {
    let mib = gib << 10;
    let pods_u = u64::try_from(pods).unwrap();
    let left = |kept: u64| if kept < mib { format!("{:.1}", (mib - kept) as f64 / 1024.0) } else { "none".into() };
    let standard = with(cpus, gib, pods, ReserveProfile::Standard);
    let mut safe = machine(cpus, gib);
    safe.spec.kubelet.max_pods = Some(pods);
    safe.spec.kubelet.reserve_profile = Some(ReserveProfile::Safe);
    let safe = reserves(&safe).map_or_else(|_| "none".into(), |r| left(kept(&r)));
    format!(
        "| {cpus} / {gib} GiB / {pods} | {} | {safe} | {} | {} | {} | {} | {}m | {}m |",
        left(kept(&standard)),
        left(peers::aks(mib, pods_u)),
        left(peers::eks(mib, pods_u)),
        left(peers::gke(mib, pods_u)),
        left(peers::karpenter(mib, pods_u)),
        standard.system.milli_cpu + standard.kube.milli_cpu,
        peers::gke_cpu(u64::from(cpus)),
    )
}

#[test]
fn the_page_about_reserves_has_the_table_of_the_code() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reserves.md")).unwrap();
    let rows: Vec<String> = TABLE.iter().map(|row| compared(row.0, row.1, row.2)).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.lines().any(|line| line == row.as_str())).collect();
    assert!(missing.is_empty(), "docs/reserves.md lacks:\n{}", rows.join("\n"));
}

proptest! {
    #[test]
    fn what_is_kept_is_less_than_there_is(cpus in 1u32..=256, mib in 1024u64..=(4 << 20), disk in prop::option::of(32u64..4096), pods in prop::option::of(1i32..=250), safe in any::<bool>()) {
        let mut facts = BootstrapFacts { cpus: Some(cpus), memory_mib: Some(mib), system_disk_gib: disk, ..facts() };
        facts.spec.kubelet.max_pods = pods;
        facts.spec.kubelet.reserve_profile = safe.then_some(ReserveProfile::Safe);
        match reserves(&facts) {
            Ok(r) => {
                prop_assert!(kept(&r) < mib && r.system.milli_cpu + r.kube.milli_cpu < u64::from(cpus) * 1000);
                prop_assert!(r.system.memory_mib >= 2048, "Windows needs 2 GiB");
                prop_assert!(r.eviction_mib >= 500);
                prop_assert!(disk.is_none_or(|gib| r.page_file_mib <= (gib << 10) * 15 / 100) && r.page_file_mib <= 16 << 10);
                let left = r.terms.iter().find(|t| t.name == "allocatable memory").unwrap();
                prop_assert_eq!(&left.value, &format!("{}Mi", mib - kept(&r)));
            }
            // Only machines that are too small for a Windows node fail.
            Err(error) => prop_assert!(error.to_string().contains("spec.memory") && mib < 16 << 10, "{}", error),
        }
    }

    #[test]
    fn more_machine_never_leaves_less(cpus in 1u32..=64, mib in 9000u64..=(1 << 20), more in 0u64..65536) {
        let left = |mib| {
            let mut facts = BootstrapFacts { cpus: Some(cpus), memory_mib: Some(mib), ..facts() };
            facts.spec.kubelet.max_pods = Some(110);
            reserves(&facts).map(|r| mib - kept(&r)).unwrap_or(0)
        };
        // Rounding may lose one MiB.
        prop_assert!(left(mib + more) + 1 >= left(mib));
    }
}
