//! What the model of a disk makes of a plan: whole, killed anywhere, and with something missing.

use super::*;
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::name::HostName;
use crate::bootstrap::facts::KubernetesVersion;
use crate::bootstrap::plan::{Plan, When};
use crate::bootstrap::{BootstrapFacts, ca_hash, render};

fn plan() -> Plan {
    let ca_pem = include_str!("../../../bootstrap/sample-ca.pem").to_owned();
    let facts = BootstrapFacts {
        machine_uid: "u".into(),
        machine_name: "win-1".into(),
        generation: 1,
        host_name: Some(HostName::parse("win-1").unwrap()),
        provider_id: None,
        kubernetes: KubernetesVersion::parse("v1.36.3").unwrap(),
        endpoint: "127.0.0.1:6443".into(),
        ca_hash: ca_hash(&ca_pem).unwrap(),
        ca_pem,
        token: "abcdef.0123456789abcdef".to_owned().into(),
        cpus: Some(4),
        memory_mib: Some(8192),
        system_disk_gib: None,
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        pod_networks: Vec::new(),
        service_networks: Vec::new(),
        secrets: Default::default(),
        spec: WindowsBootstrapConfigSpec::default(),
    };
    render(&facts).unwrap().plan
}

/// Carries out the rest of a plan, at most `limit` acts; true when the plan is done.
fn carry_out(disk: &mut Disk, plan: &Plan, mut limit: usize) -> bool {
    for item in &plan.items {
        while !disk.finished(item) {
            if limit == 0 {
                return false;
            }
            limit -= 1;
            match disk.act(item) {
                Act::Done => disk.finish(item),
                Act::Restart => disk.start(),
                Act::Join { configuration } => {
                    assert_eq!(configuration, paths::JOIN_CONFIG);
                    assert!(disk.holds(&Check::Pipe(paths::CRI_PIPE.into())), "the kubelet needs containerd");
                    assert!(disk.has_file(paths::KUBELET_PATCH));
                    disk.joined();
                }
                Act::Never(reason) => panic!("{}: {reason}", item.id),
            }
        }
    }
    true
}

fn machine() -> Disk {
    let mut disk = Disk::of_image("win-1", 20_348);
    disk.start();
    disk
}

#[test]
fn the_rendered_plan_makes_a_node_and_leaves_no_secret() {
    let (plan, mut disk) = (plan(), machine());
    assert!(carry_out(&mut disk, &plan, 1000));
    assert_eq!(disk.boot, 2, "one restart, for the feature");
    assert!(disk.has_file(paths::SENTINEL) && disk.has_file(paths::KUBELET_KUBECONFIG));
    assert!(!disk.has_file(paths::JOIN_CONFIG) && !disk.has_file(paths::BOOTSTRAP_KUBECONFIG));
    assert_eq!(disk.flag("kubelet", "hostname-override"), Some("win-1"));
    disk.start();
    assert!(disk.holds(&Check::Url("http://127.0.0.1:10248/healthz".into())), "the kubelet starts with Windows");
    assert!(plan.items.iter().all(|item| disk.finished(item)), "nothing is done twice");
}

#[test]
fn a_kill_after_any_step_leads_to_the_same_end() {
    let plan = plan();
    let mut whole = machine();
    assert!(carry_out(&mut whole, &plan, 1000));
    for steps in 0.. {
        let mut disk = machine();
        let done = carry_out(&mut disk, &plan, steps);
        let mut disk: Disk = serde_json::from_slice(&serde_json::to_vec(&disk).unwrap()).unwrap();
        assert!(carry_out(&mut disk, &plan, 1000), "after {steps} steps");
        assert_eq!(disk, whole, "after {steps} steps");
        if done {
            break;
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    let item = |kind| Item { id: "x".into(), kind, code: 1, seconds: 1, attempts: 1, unless: None, optional: false, why: Default::default() };
    let mut disk = machine();
    for (kind, named) in [
        (Kind::Running { name: "containerd".into(), after: vec![] }, "containerd"),
        (Kind::Wait { check: Check::File(r"C:\none.exe".into()) }, "none.exe"),
        (
            Kind::Command {
                argv: vec![paths::KUBEADM.into(), "join".into(), "--config".into(), r"C:\none.yaml".into()],
                directory: String::new(),
                check: Some(Check::File(paths::KUBELET_KUBECONFIG.into())),
                exit_codes: Default::default(),
                undo: vec![],
            },
            "none.yaml",
        ),
    ] {
        let item = item(kind);
        assert!(matches!(disk.act(&item), Act::Never(reason) if reason.contains(named)), "{named}");
    }
    assert_eq!(disk.act(&item(Kind::Reboot { when: When::Pending })), Act::Done, "nothing asks for a restart");
    assert_eq!(disk.computer_name(), "win-1");
}
