//! Story *autoscaler, Cluster API*: pending Windows pods scale a MachineDeployment from 0 to what they need, and it goes back to 0
//! when they are gone. Linux pods scale nothing.

use std::time::Duration;

use serde_json::json;

use super::page::block;
use super::parts::{LIMIT, POD, autoscaler, program, take_one_pod_away, wait_bound, wait_nodes, wait_refused, want_pods, want_windows_pods};
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, Process, step, wait_for};

const WINDOWS: &str = "sales/windows";

#[test]
fn pending_windows_pods_scale_a_machine_deployment_from_zero_and_back() {
    let Some(program) = program() else { return };
    world::run(async {
        let cp = ControlPlane::start(Options { scheduler: true, ..Options::default().named("scaled") }).await;
        let capw = Capw::start(&cp, &[]).await;
        let workers = Workers { cluster: "sales".to_owned(), template: "windows".to_owned(), ..Workers::new("sales", &cp).await };
        let workers = Workers { bootstrap_template: "windows".to_owned(), ..workers };
        let mut objects = workers.objects();
        objects.retain(|object| object["kind"] != "MachineDeployment");
        workers::apply(&cp, &objects).await;
        cp.apply(&block("rights")).await;
        cp.apply(&block("rights for Cluster API")).await;
        cp.apply(&block("MachineDeployment")).await;
        assert_eq!(replicas(&cp, Kind::MACHINE_DEPLOYMENT).await, 0, "without replicas it begins at the least");

        let discovery = "--node-group-auto-discovery=clusterapi:namespace=sales,clusterName=sales";
        let scaler = autoscaler(&program, &cp, &["--cloud-provider=clusterapi".to_owned(), discovery.to_owned()]).await;
        scaler.start();
        // They would fit by size. The second is for Windows and keeps away from tainted nodes.
        want_pods(&cp, "linux", 2, "2", json!({"kubernetes.io/os": "linux"}), json!([{"operator": "Exists"}])).await;
        want_pods(&cp, "intolerant", 2, "2", json!({"kubernetes.io/os": "windows"}), json!([])).await;
        wait_refused(&cp, "linux", &scaler).await;
        wait_refused(&cp, "intolerant", &scaler).await;
        assert_eq!(replicas(&cp, Kind::MACHINE_DEPLOYMENT).await, 0, "a pod that fits on no Windows node scaled a group of them");

        want_windows_pods(&cp, "windows", 3).await;
        wait_bound(&cp, "windows", 3, &scaler).await;
        assert_eq!(replicas(&cp, Kind::MACHINE_DEPLOYMENT).await, 3, "more than the pods need");
        step("three pods, three nodes");

        // One pod less: its node goes, and no other.
        let (gone, kept) = take_one_pod_away(&cp).await;
        wait_nodes(&cp, &kept, &scaler).await;
        step(format!("{gone} went, {kept:?} stay"));

        want_windows_pods(&cp, "windows", 0).await;
        wait_empty(&cp, Kind::MACHINE_DEPLOYMENT, &scaler).await;
        assert!(!cp.list(POD, Some("default")).await.is_empty(), "the Linux pods still wait");
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        scaler.stop(Duration::from_secs(20));
    });
}

/// Waits until a group has come down to 0 machines.
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
