//! Story *autoscaler, Cluster API*: pending Windows pods scale a MachineDeployment, or a MachinePool, from 0 to the number that they need,
//! and the group returns to 0 when the pods are deleted. Linux pods scale nothing.

use std::time::Duration;

use serde_json::json;

use super::page::block;
use super::parts::{LIMIT, POD, autoscaler, program, take_one_pod_away, wait_bound, wait_nodes, wait_refused, want_pods, want_windows_pods};
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, Process, step, wait_for};

const WINDOWS: &str = "sales/windows";
/// The kinds to omit for a MachineDeployment: the page provides them.
const OF_A_GROUP: [&str; 1] = ["MachineDeployment"];
/// The kinds to omit for a MachinePool: the page provides what replaces them.
const OF_A_DEPLOYMENT: [&str; 3] = ["MachineDeployment", "WindowsMachineTemplate", "WindowsBootstrapConfigTemplate"];

#[test]
#[ignore = "needs a cluster-autoscaler: make test-autoscaler CLUSTER_AUTOSCALER=FILE"]
fn pending_windows_pods_scale_a_machine_deployment_from_zero_and_back() {
    let program = program();
    world::run(async {
        let cp = ControlPlane::start(Options { scheduler: true, ..Options::default().named("scaled") }).await;
        let capw = Capw::start(&cp, &[]).await;
        beside_the_group(&cp, &OF_A_GROUP).await;
        cp.apply(&block("MachineDeployment")).await;
        story(&program, &cp, &capw, Kind::MACHINE_DEPLOYMENT).await;
    });
}

#[test]
#[ignore = "needs a cluster-autoscaler: make test-autoscaler CLUSTER_AUTOSCALER=FILE"]
fn pending_windows_pods_scale_a_machine_pool_from_zero_and_back() {
    let program = program();
    world::run(async {
        let cp = ControlPlane::start(Options { scheduler: true, ..Options::default().named("scaled-pool") }).await;
        let capw = Capw::start(&cp, &[]).await;
        beside_the_group(&cp, &OF_A_DEPLOYMENT).await;
        cp.apply(&block("MachinePool")).await;
        // The autoscaler's facts about a node that does not exist yet; they also show that Cluster API reconciles a pool without machines.
        cp.wait_object(Kind::WINDOWS_NODE_POOL, WINDOWS, "says what its nodes will be like", LIMIT, |pool| {
            let status = &pool["status"];
            let said = [&status["capacity"], &status["nodeInfo"], &status["infrastructureMachineKind"], &status["replicas"]];
            let wanted = [
                json!({"cpu": "4", "memory": "8Gi"}),
                json!({"architecture": "amd64", "operatingSystem": "windows"}),
                json!("WindowsMachine"),
                json!(0),
            ];
            (said == wanted.each_ref()).then_some(())
        })
        .await;
        cp.wait_object(Kind::MACHINE_POOL, WINDOWS, "Running without machines", LIMIT, |pool| (pool["status"]["phase"] == "Running").then_some(()))
            .await;
        story(&program, &cp, &capw, Kind::MACHINE_POOL).await;
        // The autoscaler named the machine besides lowering the number, and the pool removed that machine.
        let marked = cp.audit().iter().any(|event| {
            event.resource == "machines"
                && event.is_write()
                && event.code < 300
                && event.user == "system:serviceaccount:kube-system:cluster-autoscaler"
        });
        assert!(marked, "the autoscaler marked no Machine");
    });
}

/// Applies Cluster, hypervisor, templates unless `without` omits them, and the rights of the page.
async fn beside_the_group(cp: &ControlPlane, without: &[&str]) {
    let workers = Workers { cluster: "sales".to_owned(), template: "windows".to_owned(), ..Workers::new("sales", cp).await };
    let workers = Workers { bootstrap_template: "windows".to_owned(), ..workers };
    let mut objects = workers.objects();
    objects.retain(|object| !without.contains(&object["kind"].as_str().unwrap_or_default()));
    cp.apply_objects(&objects).await;
    cp.apply(&block("rights")).await;
    cp.apply(&block("rights for Cluster API")).await;
}

/// Scales from none to three, down by one, and back to none.
async fn story(program: &std::path::Path, cp: &ControlPlane, capw: &Capw, kind: Kind) {
    assert_eq!(replicas(cp, kind).await, 0, "without replicas it begins at the least");
    let discovery = "--node-group-auto-discovery=clusterapi:namespace=sales,clusterName=sales";
    let scaler = autoscaler(program, cp, &["--cloud-provider=clusterapi".to_owned(), discovery.to_owned()]).await;
    scaler.start();
    // The pods of both would fit by size. The second Deployment is for Windows and does not tolerate the nodes' taint.
    want_pods(cp, "linux", 2, "2", json!({"kubernetes.io/os": "linux"}), json!([{"operator": "Exists"}])).await;
    want_pods(cp, "intolerant", 2, "2", json!({"kubernetes.io/os": "windows"}), json!([])).await;
    wait_refused(cp, "linux", &scaler).await;
    wait_refused(cp, "intolerant", &scaler).await;
    assert_eq!(replicas(cp, kind).await, 0, "a pod that fits on no Windows node scaled a group of them");

    want_windows_pods(cp, "windows", 3).await;
    let start = std::time::Instant::now();
    wait_bound(cp, "windows", 3, &scaler).await;
    assert_eq!(replicas(cp, kind).await, 3, "more than the pods need");
    step(format!("three pods, three nodes, after {:.0} s", start.elapsed().as_secs_f32()));

    // With one pod less, the autoscaler removes that pod's node and keeps the others.
    let (gone, kept) = take_one_pod_away(cp).await;
    wait_nodes(cp, &kept, &scaler).await;
    step(format!("{gone} went, {kept:?} stay"));

    want_windows_pods(cp, "windows", 0).await;
    wait_empty(cp, kind, &scaler).await;
    assert!(!cp.list(POD, Some("default")).await.is_empty(), "the Linux pods still wait");
    workers::wait_nothing_left(cp, capw, LIMIT).await;
    scaler.stop(Duration::from_secs(20));
}

/// Waits until a group is down to 0 machines.
async fn wait_empty(cp: &ControlPlane, kind: Kind, scaler: &Process) {
    wait_for("nothing is asked for and nothing is there", LIMIT, || async {
        let asked = replicas(cp, kind).await;
        let machines = cp.list(Kind::MACHINE, Some("sales")).await.len();
        if (asked, machines) == (0, 0) { Ok(()) } else { Err(format!("{asked} asked for, {machines} Machines\n{}", scaler.log_end())) }
    })
    .await;
}

async fn replicas(cp: &ControlPlane, kind: Kind) -> i64 {
    let group = cp.get(kind, WINDOWS).await.unwrap_or_else(|| panic!("{WINDOWS} is gone"));
    group["spec"]["replicas"].as_i64().unwrap_or_else(|| panic!("no replicas: {}", json!(group["spec"])))
}
