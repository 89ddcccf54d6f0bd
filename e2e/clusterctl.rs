//! Story *move*: `clusterctl move` takes a cluster to another management cluster. Nothing happens to its VMs and Nodes, nor to what
//! was brought for these; the Machines run on there, and there they can be deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::linux_side::gone;
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, SimulatedVm, Tools, condition, simulated_vms, step, text, wait_for};

/// For one wait. Nothing takes nearly as long on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "moving";

#[test]
fn a_cluster_moves_to_another_management_cluster() {
    world::run(async {
        let (from, to) =
            tokio::join!(ControlPlane::start(Options::plain().named("move-from")), ControlPlane::start(Options::plain().named("move-to")));
        tokio::join!(install(&from), install(&to));
        let here = Capw::start(&from, &[]).await;
        // Both see the same hypervisor, as two operators with logins to one vCenter do.
        let there = Capw::start(&to, &[&format!("--simulated-state={}", here.state().display())]).await;

        // The nodes are in the second cluster, so they outlive the first one.
        let workers = Workers { replicas: 2, ..Workers::new(NAMESPACE, &to).await };
        workers.apply(&from).await;
        let machines = workers.wait_settled(&from, &to, LIMIT).await;
        from.wait_condition(Kind::CLUSTER, "moving/c1", "Available", "True", LIMIT).await;
        let names = sorted_names(&machines);
        let (vms, nodes) = (records(&here), nodes(&to).await);
        assert_eq!((vms.len(), nodes.len()), (2, 2));
        from.patch(Kind::WINDOWS_CLUSTER, "moving/c1", &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
        // A RuntimeClass, and three policies with their bindings: no Linux node shows a network.
        let brought = wait_for("what pods need is brought", LIMIT, || async {
            let brought = gone::left(&to, "moving/c1").await;
            if brought.len() == 7 { Ok(brought) } else { Err(brought.join(", ")) }
        })
        .await;

        // What a user makes by hand, and no owner reference leads to, moves if he says so.
        let label = json!({"metadata": {"labels": {"clusterctl.cluster.x-k8s.io/move": ""}}});
        from.patch(Kind::SECRET, "moving/c1-external-kubeconfig", &label).await.expect("a Secret can be labelled");
        let target = to.kubeconfig().to_str().expect("a path in UTF-8").to_owned();
        from.clusterctl(&["move", "--to-kubeconfig", &target, "--namespace", NAMESPACE]).await;
        step("clusterctl has moved it");

        let moved = workers.wait_settled(&to, &to, LIMIT).await;
        assert_eq!(sorted_names(&moved), names);
        for (kind, name, ready) in [
            (Kind::CLUSTER, "moving/c1", "Available"),
            (Kind::WINDOWS_HYPERVISOR, "moving/lab", "Reachable"),
            (Kind::EXTERNAL_CONTROL_PLANE, "moving/c1", "Available"),
        ] {
            to.wait_condition(kind, name, ready, "True", LIMIT).await;
        }
        every_machine_is_ready(&to).await;
        assert_eq!(records(&there), vms, "a VM was touched by the move");
        assert_eq!(self::nodes(&to).await, nodes, "a Node was touched by the move");
        nothing_stays_behind(&from).await;
        to.wait_condition(Kind::WINDOWS_CLUSTER, "moving/c1", "ComponentsReady", "False", LIMIT).await;
        assert_eq!(gone::left(&to, "moving/c1").await, brought, "what was brought was touched by the move");

        // What belongs to it now obeys the second cluster.
        to.delete(Kind::CLUSTER, "moving/c1").await;
        workers.wait_gone(&to, LIMIT).await;
        workers::wait_nothing_left(&to, &there, LIMIT).await;
        gone::wait_gone(&to, "moving/c1").await;
        step("deleted where it was moved to");
    });
}

/// Cluster API and our providers as clusterctl installs them: it moves only between clusters that it knows.
async fn install(cp: &ControlPlane) {
    let core = format!("cluster-api:{}", Tools::ensure().cluster_api_version);
    let providers = ["--infrastructure", "windows", "--bootstrap", "windows", "--control-plane", "windows"];
    cp.clusterctl(&[&["init", "--core", &core][..], &providers].concat()).await;
    cp.start_core().await;
}

fn sorted_names(machines: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = machines.iter().map(|machine| text(machine, "/metadata/name").to_owned()).collect();
    names.sort();
    names
}

/// Everything that is known of each VM, with when and how often it was switched on.
fn records(capw: &Capw) -> BTreeMap<String, String> {
    let record = |vm: &SimulatedVm| {
        let path = capw.state().join(&vm.datacenter).join(&vm.directory).join("vm.json");
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    simulated_vms(capw.state()).iter().map(|vm| (vm.directory.clone(), record(vm))).collect()
}

/// UIDs of the Nodes: another one is another Node, whatever its name.
async fn nodes(cp: &ControlPlane) -> BTreeMap<String, String> {
    let nodes = cp.list(Kind::NODE, None).await;
    nodes.iter().map(|node| (text(node, "/metadata/name").to_owned(), text(node, "/metadata/uid").to_owned())).collect()
}

async fn every_machine_is_ready(cp: &ControlPlane) {
    for (kind, wanted) in [
        (Kind::WINDOWS_MACHINE, &["Ready", "VirtualMachineReady", "NodeJoined"][..]),
        (Kind::WINDOWS_BOOTSTRAP_CONFIG, &["Ready", "DataSecretAvailable"]),
    ] {
        wait_for(&format!("the {} are ready again", kind.plural), LIMIT, || async {
            let objects = cp.list(kind, Some(NAMESPACE)).await;
            let is = |object: &Value, wanted: &str| condition(object, wanted).is_some_and(|found| found["status"] == "True");
            let missing: Vec<String> = objects
                .iter()
                .filter(|object| !wanted.iter().all(|wanted| is(object, wanted)))
                .map(|object| format!("{} {:#}", text(object, "/metadata/name"), object["status"]["conditions"]))
                .collect();
            if objects.len() == 2 && missing.is_empty() { Ok(()) } else { Err(format!("{} objects: {}", objects.len(), missing.join("\n"))) }
        })
        .await;
    }
}

/// Nothing of the cluster is left where it was, not even something that a finalizer holds.
async fn nothing_stays_behind(cp: &ControlPlane) {
    for kind in [
        Kind::CLUSTER,
        Kind::MACHINE,
        Kind::WINDOWS_MACHINE,
        Kind::WINDOWS_BOOTSTRAP_CONFIG,
        Kind::WINDOWS_CLUSTER,
        Kind::EXTERNAL_CONTROL_PLANE,
        Kind::WINDOWS_HYPERVISOR,
        Kind::SECRET,
    ] {
        wait_for(&format!("no {} are left behind", kind.plural), LIMIT, || async {
            let left = cp.list(kind, Some(NAMESPACE)).await;
            let names: Vec<_> = left.iter().map(|object| text(object, "/metadata/name")).collect();
            if names.is_empty() { Ok(()) } else { Err(names.join(", ")) }
        })
        .await;
    }
}
