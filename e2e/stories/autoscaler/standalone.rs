//! Story *autoscaler, standalone*: no Cluster API in the cluster, and the machines of the pool are real ones of the simulated hypervisor. cluster-autoscaler calls CAPW over TLS; whichever of the two is killed,
//! the end is the same, nothing is requested twice, and only nodes that were found to be empty are removed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::json;

use super::page::block;
use super::parts::{LIMIT, autoscaler, pods, program, take_one_pod_away, wait_bound, wait_nodes, wait_refused, want_pods, want_windows_pods};
use crate::standalone::{install_rights, nothing_of_ours, wait_settled};
use crate::workers;
use crate::world::{self, AuditEvent, AuditMark, Capw, ControlPlane, Kind, Options, Process, step, wait_for};

pub const POOL: Kind = Kind::new("infrastructure.cluster.x-k8s.io/v1alpha1", "windowsnodepools");
const WINDOWS: &str = "default/windows";

#[test]
#[ignore = "needs a cluster-autoscaler: make test-autoscaler CLUSTER_AUTOSCALER=FILE"]
fn pending_windows_pods_scale_a_pool_without_cluster_api_whichever_is_killed() {
    let program = program();
    world::run(async {
        let cp = ControlPlane::start(options()).await;
        let certificates = certificates(&cp);
        let address = format!("127.0.0.1:{}", world::free_port());
        let flags = [format!("--autoscaler-address={address}"), format!("--autoscaler-tls={}", certificates.join("server").display())];
        install_rights(&cp).await;
        cp.kubectl(&["apply", "-f", "config/autoscaler/rights.yaml"]).await;
        let capw = Capw::start(&cp, &flags.each_ref().map(String::as_str)).await;
        cp.apply(&block("rights")).await;
        let hypervisor = json!({"apiVersion": Kind::WINDOWS_HYPERVISOR.api_version, "kind": "WindowsHypervisor",
            "metadata": {"name": "lab", "namespace": "default"}, "spec": {"simulated": {}}});
        cp.apply_objects(&[hypervisor]).await;
        cp.apply(&block("WindowsNodePool")).await;

        let config = cloud_config(&certificates, &address);
        let provider = ["--cloud-provider=externalgrpc".to_owned(), format!("--cloud-config={}", config.display())];
        let scaler = autoscaler(&program, &cp, &provider).await;
        scaler.start();
        // The pool has no node yet, and none of these pods would fit on one: `greedy` requests the capacity that the reserves keep.
        let tolerations = json!([{"operator": "Exists"}]);
        want_pods(&cp, "linux", 2, "1", json!({"kubernetes.io/os": "linux"}), tolerations.clone()).await;
        want_pods(&cp, "intolerant", 2, "1", json!({"kubernetes.io/os": "windows"}), json!([])).await;
        want_pods(&cp, "greedy", 1, "3500m", json!({"kubernetes.io/os": "windows"}), tolerations.clone()).await;
        want_pods(&cp, "old", 1, "1", json!({"node.kubernetes.io/windows-build": "10.0.17763"}), tolerations).await;
        for name in ["linux", "intolerant", "greedy", "old"] {
            wait_refused(&cp, name, &scaler).await;
        }
        assert_eq!(replicas(&cp).await, 0, "a pod that fits on no node of the pool scaled it");

        want_windows_pods(&cp, "windows", 3).await;
        wait_replicas(&cp, 3, &scaler).await;
        step("three are asked for; both sides are killed");
        capw.kill();
        scaler.kill();
        capw.start_again().await;
        scaler.start();
        wait_bound(&cp, "windows", 3, &scaler).await;
        // An autoscaler that has just started does not count machines that were requested before it started (1.36: "no active scale-up
        // request"), and requests more while their Nodes are missing; later it removes the surplus.
        wait_replicas(&cp, 3, &scaler).await;
        let three = settled(&cp, 3).await;
        assert!(made(&cp) <= 5, "more than the pool's most: {}", made(&cp));
        capw.restart().await;
        assert_eq!(settled(&cp, 3).await, three, "the end is the same");
        let (before, mark) = (made(&cp), cp.audit_mark());

        let (gone, kept) = take_one_pod_away(&cp).await;
        wait_replicas(&cp, 2, &scaler).await;
        capw.restart().await;
        wait_nodes(&cp, &kept, &scaler).await;
        assert_eq!(removed(&cp, mark), [gone.clone()].into(), "another one went");
        step(format!("{gone} went, {kept:?} stay"));

        want_windows_pods(&cp, "windows", 0).await;
        wait_for("the number goes down", LIMIT, || async { (replicas(&cp).await < 2).then_some(()) }).await;
        scaler.kill();
        scaler.start();
        wait_nodes(&cp, &[], &scaler).await;
        assert_eq!((replicas(&cp).await, made(&cp)), (0, before), "one was made without being asked for");
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        nothing_of_ours(&cp).await;
        assert!(!pods(&cp, "linux").await.is_empty(), "the Linux pods still wait");
        let calls = |call: &str| capw.metric("capw_autoscaler_calls_total", &[&format!("call=\"{call}\""), "code=\"ok\""]);
        assert!(calls("Refresh") > 0.0 && calls("NodeGroupNodes") > 0.0, "{}", capw.metrics());
        scaler.stop(Duration::from_secs(20));
    });
}

fn options() -> Options {
    Options { scheduler: true, ..Options::standalone().named("standalone") }
}

/// The number of machines that were created, in total.
fn made(cp: &ControlPlane) -> usize {
    of_machines(cp.audit(), "create").len()
}

/// Names of the machines that were removed since the mark.
fn removed(cp: &ControlPlane, since: AuditMark) -> BTreeSet<String> {
    of_machines(cp.audit_since(since), "delete").into_iter().map(|event| event.name).collect()
}

fn of_machines(mut events: Vec<AuditEvent>, verb: &str) -> Vec<AuditEvent> {
    events.retain(|e| e.user == Capw::USER && e.resource == "windowsmachines" && e.verb == verb && e.code < 300);
    events
}

/// Waits until exactly `replicas` machines exist, each with a Ready Node; returns their names.
async fn settled(cp: &ControlPlane, replicas: usize) -> BTreeSet<String> {
    wait_settled(cp, cp, WINDOWS, replicas).await
}

/// Writes `server/`, laid out as a mounted Secret, and `client/` for the autoscaler.
fn certificates(cp: &ControlPlane) -> PathBuf {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let all = cp.directory().join("autoscaler");
    for (who, purpose) in [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "cluster-autoscaler".to_owned()]).expect("an address and a name");
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let dir = all.join(who);
        std::fs::create_dir_all(&dir).expect("a directory");
        for (name, text) in [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem()), ("ca.crt", authority.pem())] {
            std::fs::write(dir.join(name), text).expect("a file");
        }
    }
    all
}

/// The page's cloud config with the addresses of this machine.
fn cloud_config(certificates: &Path, address: &str) -> PathBuf {
    let text = block("cloud-config")
        .replace("capw-autoscaler.capw-system.svc:8086", address)
        .replace("/etc/cluster-autoscaler", &certificates.join("client").display().to_string());
    let path = certificates.join("cloud-config.yaml");
    std::fs::write(&path, text).expect("a file");
    path
}

async fn replicas(cp: &ControlPlane) -> i64 {
    cp.get(POOL, WINDOWS).await.expect("the pool")["spec"]["replicas"].as_i64().expect("replicas")
}

async fn wait_replicas(cp: &ControlPlane, wanted: i64, scaler: &Process) {
    wait_for(&format!("{wanted} machines are asked for"), LIMIT, || async {
        let now = replicas(cp).await;
        if now == wanted { Ok(()) } else { Err(format!("{now}; the autoscaler says\n{}", scaler.log_end())) }
    })
    .await;
}
