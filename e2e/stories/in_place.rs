//! Story *in place*: labels and taints of a pool's template change, and the Nodes show it. No VM, Machine or Node is recreated. Labels and taints
//! that the template no longer contains are removed, and labels and taints from others are not touched.

use std::time::Duration;

use serde_json::{Value, json};

use crate::pools::Pool;
use crate::standalone::{install_rights, wait_settled};
use crate::world::{self, Capw, ControlPlane, Kind, Options, simulated_vms, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
const SAMPLE: &str = include_str!("../../config/samples/standalone.yaml");
const POOL: &str = "default/windows";

#[test]
fn labels_and_taints_change_without_another_vm() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("in-place")).await;
        let capw = Capw::start(&cp, &[]).await;
        let mut pool = Pool::new("in-place", 2, &cp).await;
        pool.spec = template(json!({"labels": {"example.com/team": "one", "example.com/old": "1"}, "annotations": {"example.com/note": "first"}}));
        pool.workers.bootstrap = bootstrap(
            json!({"example.com/pool": "windows", "example.com/tier": "one", "example.com/old": "1"}),
            json!([taint("os", "windows"), taint("example.com/first", "1")]),
        );
        pool.apply(&cp).await;
        pool.wait_settled(&cp).await;
        let before = identities(&cp, &capw, &pool).await;
        for node in cp.list(Kind::NODE, None).await {
            let name = text(&node, "/metadata/name");
            cp.kubectl(&["label", "node", name, "example.com/theirs=1"]).await;
            cp.kubectl(&["taint", "node", name, "example.com/theirs=1:NoSchedule"]).await;
        }
        for machine in pool.windows_machines(&cp).await {
            let theirs = json!({"metadata": {"labels": {"example.com/theirs": "1"}, "annotations": {"example.com/theirs": "1"}}});
            cp.patch(Kind::WINDOWS_MACHINE, &pool.workers.name(text(&machine, "/metadata/name")), &theirs).await.expect("a label of others");
        }
        step("2 nodes are Ready, with labels and taints of the template and of others");

        pool.spec = template(json!({"labels": {"example.com/team": "two"}}));
        pool.workers.bootstrap = bootstrap(
            json!({"example.com/pool": "windows", "example.com/tier": "two", "example.com/new": "1"}),
            json!([taint("os", "windows"), taint("example.com/second", "1")]),
        );
        cp.apply_objects(&[pool.config(), pool.node_pool()]).await;
        nodes_show_it(&cp).await;
        machines_show_it(&cp, &pool).await;
        assert_eq!(identities(&cp, &capw, &pool).await, before, "something was made again");
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, &pool.name(), "MachinesUpToDate", "True", LIMIT).await;
        step("the template was changed, and the nodes that were there show it");

        // A later node registers with the same labels and taints.
        pool.scale(&cp, 3).await;
        pool.wait_settled(&cp).await;
        for node in cp.list(Kind::NODE, None).await {
            let labels = &node["metadata"]["labels"];
            assert_eq!((&labels["example.com/tier"], labels.get("example.com/old")), (&json!("two"), None), "{labels}");
        }
        step("so does a new one");
    });
}

fn template(metadata: Value) -> Value {
    json!({"template": {"metadata": metadata}})
}

fn bootstrap(labels: Value, taints: Value) -> Value {
    json!({"kubelet": {"nodeLabels": labels, "taints": taints}})
}

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

/// Returns the identities that must stay the same: of VMs, machine objects and Nodes.
async fn identities(cp: &ControlPlane, capw: &Capw, pool: &Pool) -> Vec<String> {
    let mut all: Vec<String> = simulated_vms(capw.state()).into_iter().map(|vm| vm.directory).collect();
    for kind in [Kind::MACHINE, Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG] {
        all.extend(cp.list(kind, Some(&pool.workers.namespace)).await.iter().map(|object| text(object, "/metadata/uid").to_owned()));
    }
    all.extend(cp.list(Kind::NODE, None).await.iter().map(|node| text(node, "/metadata/uid").to_owned()));
    all.sort();
    all
}

async fn nodes_show_it(cp: &ControlPlane) {
    let mine = |labels: &Value| -> Value {
        labels
            .as_object()
            .map(|l| l.iter().filter(|(key, _)| key.starts_with("example.com/")).map(|(k, v)| (k.clone(), v.clone())).collect())
            .unwrap_or_default()
    };
    let labels = json!({"example.com/pool": "windows", "example.com/tier": "two", "example.com/new": "1", "example.com/theirs": "1"});
    let mut keys = vec!["example.com/second", "example.com/theirs", "os"];
    keys.sort_unstable();
    wait_for("every Node has the new labels and taints and those of others", LIMIT, || async {
        let nodes = cp.list(Kind::NODE, None).await;
        let wrong = nodes.iter().find(|node| {
            let mut taints: Vec<&str> =
                node["spec"]["taints"].as_array().map(|all| all.iter().map(|t| text(t, "/key")).collect()).unwrap_or_default();
            taints.sort_unstable();
            mine(&node["metadata"]["labels"]) != labels || taints != keys
        });
        wrong.map_or(Ok(()), |node| Err(format!("{} {}", node["metadata"]["labels"], node["spec"]["taints"])))
    })
    .await;
}

async fn machines_show_it(cp: &ControlPlane, pool: &Pool) {
    wait_for("every WindowsMachine has the new labels and annotations and those of others", LIMIT, || async {
        let machines = pool.windows_machines(cp).await;
        let wrong = machines.iter().find(|machine| {
            let (labels, annotations) = (&machine["metadata"]["labels"], &machine["metadata"]["annotations"]);
            let set = labels["example.com/team"] == "two" && labels["example.com/theirs"] == "1" && annotations["example.com/theirs"] == "1";
            let kept = labels.get("cluster.x-k8s.io/cluster-name").is_some();
            !set || !kept || labels.get("example.com/old").is_some() || annotations.get("example.com/note").is_some()
        });
        wrong.map_or(Ok(()), |machine| Err(machine["metadata"].to_string()))
    })
    .await;
}

/// The story without Cluster API, with labels that a kubelet may not set on its own Node.
#[test]
fn labels_change_in_a_pool_that_stands_alone() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("in-place-alone")).await;
        install_rights(&cp).await;
        let capw = Capw::start(&cp, &[]).await;
        cp.apply(SAMPLE).await;
        let names = wait_settled(&cp, &cp, POOL, 2).await;
        cp.kubectl(&["label", "nodes", "--all", "node-role.kubernetes.io/theirs="]).await;
        wait_for("every Node has the label of its role", LIMIT, || labelled(&cp, &["node-role.kubernetes.io/windows", "example.com/pool"], &[]))
            .await;
        let vms = || simulated_vms(capw.state()).into_iter().map(|vm| vm.directory).collect::<Vec<_>>();
        let before = vms();

        cp.apply(&SAMPLE.replace("node-role.kubernetes.io/windows", "node-role.kubernetes.io/app").replace("example.com/pool", "example.com/tier"))
            .await;
        let wanted = ["node-role.kubernetes.io/app", "node-role.kubernetes.io/theirs", "example.com/tier", "kubernetes.io/os"];
        let gone = ["node-role.kubernetes.io/windows", "example.com/pool"];
        wait_for("every Node has the new labels and those of others", LIMIT, || labelled(&cp, &wanted, &gone)).await;
        assert_eq!((wait_settled(&cp, &cp, POOL, 2).await, vms()), (names, before), "something was made again");
        step("labels of the machine and of the kubelet changed on the nodes that were there");
    });
}

async fn labelled(cp: &ControlPlane, with: &[&str], without: &[&str]) -> Result<(), String> {
    let nodes = cp.list(Kind::NODE, None).await;
    let has = |node: &Value, key: &str| node["metadata"]["labels"].get(key).is_some();
    let wrong = nodes.iter().find(|node| !with.iter().all(|key| has(node, key)) || without.iter().any(|key| has(node, key)));
    wrong.map_or(Ok(()), |node| Err(node["metadata"]["labels"].to_string()))
}
