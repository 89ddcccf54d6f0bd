//! Story *move*: `clusterctl move` moves a cluster to another management cluster. Its VMs, its Nodes and the components that CAPW brought stay
//! untouched. The Machines keep running in the new management cluster, and they can be deleted there.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::linux_side::gone;
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, SimulatedVm, Tools, condition, simulated_vms, step, text, wait_for};

/// The limit for one wait. No wait takes nearly as long on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "moving";

#[test]
fn a_cluster_moves_to_another_management_cluster() {
    world::run(async {
        let (from, to) =
            tokio::join!(ControlPlane::start(Options::plain().named("move-from")), ControlPlane::start(Options::plain().named("move-to")));
        tokio::join!(install(&from), install(&to));
        let here = Capw::start(&from, &[]).await;
        // Both operators use the same hypervisor, like two operators with logins to one vCenter.
        let there = Capw::start(&to, &[&format!("--simulated-state={}", here.state().display())]).await;

        // The nodes are in the second cluster, so they outlive the first cluster.
        let workers = Workers { replicas: 2, ..Workers::new(NAMESPACE, &to).await };
        workers.apply(&from).await;
        let machines = workers.wait_settled(&from, &to, LIMIT).await;
        from.wait_condition(Kind::CLUSTER, "moving/c1", "Available", "True", LIMIT).await;
        let names = sorted_names(&machines);
        let (vms, nodes) = (records(&here), nodes(&to).await);
        assert_eq!((vms.len(), nodes.len()), (2, 2));
        from.patch(Kind::WINDOWS_CLUSTER, "moving/c1", &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
        // CAPW brings a RuntimeClass, and three policies with their bindings. It brings no network, because no Linux node shows one.
        let brought = wait_for("what pods need is brought", LIMIT, || async {
            let brought = gone::left(&to, "moving/c1").await;
            if brought.len() == 7 { Ok(brought) } else { Err(brought.join(", ")) }
        })
        .await;

        // An object that a user created, and that no owner reference leads to, moves if the user labels it.
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

        // The workload cluster's objects now belong to the second management cluster.
        to.delete(Kind::CLUSTER, "moving/c1").await;
        workers.wait_gone(&to, LIMIT).await;
        workers::wait_nothing_left(&to, &there, LIMIT).await;
        gone::wait_gone(&to, "moving/c1").await;
        step("deleted where it was moved to");
    });
}

/// Installs Cluster API and our providers with clusterctl, which moves only between clusters where it finds its inventory.
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

/// Returns all recorded facts about each VM, including when and how often it was switched on.
fn records(capw: &Capw) -> BTreeMap<String, String> {
    let record = |vm: &SimulatedVm| {
        let path = capw.state().join(&vm.datacenter).join(&vm.directory).join("vm.json");
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    simulated_vms(capw.state()).iter().map(|vm| (vm.directory.clone(), record(vm))).collect()
}

/// Returns the UIDs of the Nodes. A different UID means a different Node, even with the same name.
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

/// Checks that the source cluster keeps no object of the cluster, not even an object that a finalizer holds.
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
