//! Story *standalone*: a cluster without Cluster API. A pool joins its machines to its own cluster, or to the cluster of a kubeconfig. It is scaled,
//! loses only the machines that are named, and leaves nothing behind.

mod network;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::doctor::FOUND;
use crate::pools::names;
use crate::workers::{self, is_ready};
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
const SAMPLE: &str = include_str!("../../config/samples/standalone.yaml");
const POOL: &str = "default/windows";

#[test]
fn a_pool_without_cluster_api() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("standalone-pool")).await;
        install_rights(&cp).await;
        let capw = Capw::start(&cp, &["--image=registry.example.com/capw:v0"]).await;
        cp.apply(SAMPLE).await;
        let first = wait_settled(&cp, &cp, POOL, 2).await;
        step("2 nodes are Ready");
        what_is_said(&cp).await;
        let (exit, answer, errors) = capw.diagnose(&cp, &["machine", first.first().expect("a machine"), "-n", "default"]).await;
        let well = exit == 0 && answer.contains("Nothing known to be wrong was found.") && !answer.contains("not looked at");
        assert!(well, "{exit} {answer}{errors}");

        let three = scaled_by_a_horizontal_autoscaler(&cp, 3).await;
        assert!(first.is_subset(&three), "a machine was replaced: {first:?} {three:?}");
        step("2 -> 3");

        let named = named_removal(&cp, &three).await;
        capw.restart().await;
        let two = wait_settled(&cp, &cp, POOL, 2).await;
        assert_eq!(two, three.iter().filter(|name| **name != named).cloned().collect(), "only {named} had to go");
        wait_for("the name is struck out", LIMIT, || async {
            let pool = cp.get(Kind::WINDOWS_NODE_POOL, POOL).await.expect("the pool");
            let left = text(&pool, "/metadata/annotations/infrastructure.cluster.x-k8s.io~1remove-machines").to_owned();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
        step(format!("{named} was named and went, across a kill"));

        a_deleted_node_is_replaced(&cp, &two).await;
        step("a machine whose Node was deleted was replaced");

        scale(&cp, 1).await;
        let one = wait_settled(&cp, &cp, POOL, 1).await;
        vms_are(&capw, &one).await;
        step("2 -> 1");

        cp.delete(Kind::WINDOWS_NODE_POOL, POOL).await;
        cp.wait_gone(Kind::WINDOWS_NODE_POOL, POOL, LIMIT).await;
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        nothing_of_ours(&cp).await;
        let refused: Vec<String> =
            cp.audit().iter().filter(|event| event.user == Capw::USER && event.code == 403).map(|event| event.uri.clone()).collect();
        assert!(refused.is_empty(), "CAPW was refused: {refused:#?}");
        step("the pool is gone, and nothing is left");

        network::in_the_own_cluster(&cp).await;
        step("the pod network was brought to the own cluster, and is gone");
    });
}

/// With the kubeconfig of another cluster, the nodes are in that cluster and the objects in this one, with the same result.
#[test]
fn a_pool_for_the_cluster_of_a_kubeconfig() {
    world::run(async {
        let (cp, other) =
            (ControlPlane::start(Options::standalone().named("standalone-here")).await, ControlPlane::start(Options::plain().named("there")).await);
        let capw = Capw::start(&cp, &[]).await;
        cp.apply(&SAMPLE.replace("cluster: {}", "cluster: {kubeconfigSecretRef: {name: there}}")).await;
        let says = |reason: &'static str| {
            move |pool: &Value| condition(pool, "Ready").filter(|ready| ready["reason"] == reason).map(|ready| ready["message"].clone())
        };
        let missing = cp.wait_object(Kind::WINDOWS_NODE_POOL, POOL, "it says that the Secret is missing", LIMIT, says("KubeconfigMissing")).await;
        assert!(missing.to_string().contains("default/there"), "{missing}");
        assert!(simulated_vms(capw.state()).is_empty(), "a VM that cannot join");

        let kubeconfig = workers::remote_kubeconfig(&other).await;
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there", "namespace": "default"}, "stringData": {"value": kubeconfig}});
        let roles = without_listing_nodes(&other).await;
        cp.apply_objects(&[secret]).await;
        let lacking = cp.wait_object(Kind::WINDOWS_NODE_POOL, POOL, "it says which right is missing", LIMIT, says("WorkloadClusterForbidden")).await;
        assert!(lacking.as_str().is_some_and(|said| said.contains(r#"cannot list resource "nodes""#)), "{lacking}");
        assert!(simulated_vms(capw.state()).is_empty(), "a VM whose Node would not be seen");
        for (name, rules) in roles {
            other.patch(Kind::CLUSTER_ROLE, name, &rules).await.expect("a role of the account");
        }
        wait_settled(&cp, &other, POOL, 2).await;
        assert!(cp.list(Kind::NODE, None).await.is_empty(), "a node joined the wrong cluster");
        let patch = json!({"spec": {"cluster": {"kubeconfigSecretRef": {"name": "elsewhere"}}}});
        let refused = cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &patch).await.expect_err("nodes cannot move").to_string();
        assert!(refused.contains("the nodes of a pool stay in their cluster"), "{refused}");
        step("2 nodes are Ready in the other cluster");

        cp.delete(Kind::WINDOWS_NODE_POOL, POOL).await;
        cp.wait_gone(Kind::WINDOWS_NODE_POOL, POOL, LIMIT).await;
        workers::wait_nothing_left(&other, &capw, LIMIT).await;
        step("nothing is left in either");

        what_cluster_api_left_can_be_deleted(&cp).await;
    });
}

/// Removes the right to list Nodes from the kubeconfig's account. Returns the original roles.
async fn without_listing_nodes(cp: &ControlPlane) -> Vec<(&'static str, Value)> {
    let mut roles = Vec::new();
    for name in ["capw-remote-nodes", "capw-remote-cluster-api"] {
        let role = cp.get(Kind::CLUSTER_ROLE, name).await.expect("a role of the account");
        roles.push((name, json!({"rules": role["rules"]})));
        let mut rules = role["rules"].clone();
        for rule in rules.as_array_mut().expect("a role has rules") {
            if rule["resources"].as_array().is_some_and(|resources| resources.contains(&json!("nodes"))) {
                rule["verbs"].as_array_mut().expect("a rule has verbs").retain(|verb| verb != "list");
            }
        }
        cp.patch(Kind::CLUSTER_ROLE, name, &json!({"rules": rules})).await.expect("a role of the account");
    }
    roles
}

/// Deletes an object of a Cluster after Cluster API is removed, when a real API server answers with a page instead of Clusters.
async fn what_cluster_api_left_can_be_deleted(cp: &ControlPlane) {
    let metadata = json!({"name": "left", "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
        "finalizers": [capw::api::bootstrap_config::FINALIZER]});
    let config =
        json!({"apiVersion": Kind::WINDOWS_BOOTSTRAP_CONFIG.api_version, "kind": "WindowsBootstrapConfig", "metadata": metadata, "spec": {}});
    cp.apply_objects(&[config]).await;
    cp.delete(Kind::WINDOWS_BOOTSTRAP_CONFIG, "default/left").await;
    cp.wait_gone(Kind::WINDOWS_BOOTSTRAP_CONFIG, "default/left", LIMIT).await;
    step("what is left of a Cluster goes without Cluster API");
}

/// CAPW replaces a machine that never joins, as no other controller does. If all fail, the pool stops, reports why, and continues after the fix.
#[test]
fn machines_that_never_join() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("never-joined")).await;
        install_rights(&cp).await;
        let capw = Capw::start(&cp, &[]).await;
        let one_fails = SAMPLE.replace("simulated: {}", "simulated: {faults: [{names: '*', fault: NoBoot, count: 1}]}");
        cp.apply(&one_fails.replace("cpus: 4", "cpus: 4\n      joinDeadlineSeconds: 30")).await;
        let settled = wait_settled(&cp, &cp, POOL, 2).await;
        vms_are(&capw, &settled).await;
        let made: Vec<_> = cp.audit().into_iter().filter(|e| e.resource == "windowsmachines" && e.verb == "create" && e.code < 300).collect();
        assert_eq!(made.len(), 3, "one failed and was replaced");
        step("a machine that never joined was replaced");

        scale(&cp, 0).await;
        wait_settled(&cp, &cp, POOL, 0).await;
        let faults = |faults: Value| json!({"spec": {"simulated": {"faults": faults}}});
        cp.patch(Kind::WINDOWS_HYPERVISOR, "default/lab", &faults(json!([{"names": "*", "fault": "NoBoot"}]))).await.expect("a fault");
        let deadline = json!({"spec": {"replicas": 1, "template": {"machine": {"joinDeadlineSeconds": 10}}}});
        cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &deadline).await.expect("a shorter deadline");
        let stopped = |pool: &Value| {
            let ready = condition(pool, "Ready").filter(|ready| ready["reason"] == "RolloutStopped");
            ready.map(|ready| text(ready, "/message").to_owned())
        };
        let message = cp.wait_object(Kind::WINDOWS_NODE_POOL, POOL, "it stops", LIMIT, stopped).await;
        assert!(message.contains("after 2 before") && message.contains("NodeNeverJoined"), "{message}");
        let failed = names(&cp.list(Kind::WINDOWS_MACHINE, Some("default")).await);
        assert_eq!(failed.len(), 1, "{failed:?}");
        let (exit, answer, errors) = capw.diagnose(&cp, &["machine", failed.first().expect("a machine"), "-n", "default"]).await;
        assert!(exit == FOUND && answer.contains("   remedy  ") && !answer.contains("not looked at"), "{exit} {answer}{errors}");
        step("all fail: the pool stopped and says why, and so does the doctor");

        cp.patch(Kind::WINDOWS_HYPERVISOR, "default/lab", &faults(json!([]))).await.expect("no fault");
        let patience = json!({"spec": {"template": {"machine": {"joinDeadlineSeconds": 120}}}});
        cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &patience).await.expect("a longer deadline");
        for name in &failed {
            cp.delete(Kind::WINDOWS_MACHINE, &format!("default/{name}")).await;
        }
        let fixed = wait_settled(&cp, &cp, POOL, 1).await;
        assert!(fixed.is_disjoint(&failed));
        step("fixed, and the failed machine deleted: it goes on");
    });
}

/// A pool is handed to Cluster API and back, as docs/standalone.md describes, and its VMs stay untouched.
#[test]
fn a_pool_is_handed_to_cluster_api_and_back() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("adopted")).await;
        install_rights(&cp).await;
        let capw = Capw::start(&cp, &[]).await;
        cp.apply(SAMPLE).await;
        let machines = wait_settled(&cp, &cp, POOL, 2).await;
        cp.start_core().await;
        step("Cluster API is installed, and CAPW runs on");
        let vms = simulated_vms(capw.state());
        let same = |when: &str| {
            let now = simulated_vms(capw.state());
            assert_eq!(now.iter().map(|vm| &vm.directory).collect::<Vec<_>>(), vms.iter().map(|vm| &vm.directory).collect::<Vec<_>>(), "{when}");
        };

        let mut adopter = crate::pools::Pool::new("default", 2, &cp).await;
        let mut objects = adopter.workers.objects();
        objects.retain(|o| {
            !["MachineDeployment", "WindowsMachineTemplate", "WindowsBootstrapConfigTemplate", "WindowsHypervisor"].contains(&text(o, "/kind"))
        });
        let mut machine_pool = adopter.machine_pool();
        machine_pool["spec"]["template"]["spec"]["infrastructureRef"]["name"] = json!("windows");
        machine_pool["spec"]["template"]["spec"]["version"] = json!("v1.36.3");
        let pattern = json!({"apiVersion": Kind::WINDOWS_BOOTSTRAP_CONFIG.api_version, "kind": "WindowsBootstrapConfig",
            "metadata": {"name": "pool", "namespace": "default"}, "spec": {}});
        objects.extend([pattern, machine_pool]);
        cp.apply_objects(&objects).await;
        adopter.workers.replicas = 2;
        wait_for("core has a Running Machine for each", LIMIT, || async {
            let owned = cp.list(Kind::MACHINE, Some("default")).await;
            let running = owned.iter().filter(|m| text(m, "/status/phase") == "Running").count();
            if names(&owned) == machines && running == 2 { Ok(()) } else { Err(format!("{:?}, {running} Running", names(&owned))) }
        })
        .await;
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, POOL, "Ready", "True", LIMIT).await;
        same("a VM was recreated for Cluster API");
        step("Cluster API has the pool");

        hand_back(&cp, &machines).await;
        assert_eq!(wait_settled(&cp, &cp, POOL, 2).await, machines);
        same("a VM was recreated on the way back");
        cp.patch(Kind::CLUSTER, "default/c1", &json!({"spec": {"paused": false}})).await.expect("the Cluster");
        scale(&cp, 1).await;
        let one = wait_settled(&cp, &cp, POOL, 1).await;
        assert!(one.is_subset(&machines));
        vms_are(&capw, &one).await;
        step("the pool stands alone again, and scales");
    });
}

/// Runs the commands of the page.
async fn hand_back(cp: &ControlPlane, machines: &BTreeSet<String>) {
    cp.patch(Kind::CLUSTER, "default/c1", &json!({"spec": {"paused": true}})).await.expect("the Cluster");
    let mut objects: Vec<String> = machines.iter().map(|name| format!("machine.cluster.x-k8s.io/{name}")).collect();
    objects.push("machinepool.cluster.x-k8s.io/pool".to_owned());
    for object in &objects {
        cp.kubectl(&["delete", object, "--cascade=orphan", "--wait=false"]).await;
        let orphaned = ["get", object, "-o", "jsonpath={.metadata.finalizers}"];
        // The garbage collector removes its own finalizer once the owner references are removed.
        wait_for(&format!("{object} has no dependents"), LIMIT, || async {
            let left = cp.try_kubectl(&orphaned).await?;
            if left.contains("orphan") { Err(left) } else { Ok(()) }
        })
        .await;
        cp.kubectl(&["patch", object, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).await;
    }
}

/// Installs the part of `config/standalone` that extends `config/default`.
pub async fn install_rights(cp: &ControlPlane) {
    cp.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: capw-system}\n").await;
    cp.kubectl(&["apply", "-k", "config/rbac/standalone"]).await;
}

/// Waits until the pool has exactly this number of machines, each with a Ready Node. Returns their names.
pub async fn wait_settled(cp: &ControlPlane, to: &ControlPlane, pool: &str, replicas: usize) -> BTreeSet<String> {
    wait_for(&format!("{replicas} machines of {pool} have Ready Nodes"), LIMIT, || async {
        let machines = cp.list(Kind::WINDOWS_MACHINE, Some("default")).await;
        let nodes = to.list(Kind::NODE, None).await;
        let ready: BTreeSet<String> = names(&nodes.iter().filter(|node| is_ready(node)).cloned().collect::<Vec<_>>());
        let object = cp.get(Kind::WINDOWS_NODE_POOL, pool).await.expect("the pool");
        let available = object.pointer("/status/availableReplicas") == Some(&json!(replicas));
        let all = names(&machines);
        if all.len() == replicas && all == ready && nodes.len() == replicas && available {
            return Ok(all);
        }
        Err(format!("machines {all:?}, Ready {ready:?} of {} Nodes; {}", nodes.len(), object["status"]["conditions"]))
    })
    .await
}

/// Checks that conditions, counts and labels are the same as for a pool under Cluster API.
async fn what_is_said(cp: &ControlPlane) {
    cp.wait_condition(Kind::WINDOWS_NODE_POOL, POOL, "Ready", "True", LIMIT).await;
    let pool = cp.get(Kind::WINDOWS_NODE_POOL, POOL).await.expect("the pool");
    assert_eq!(pool["status"]["readyReplicas"], json!(2), "{:#}", pool["status"]);
    for machine in cp.list(Kind::WINDOWS_MACHINE, Some("default")).await {
        let name = format!("default/{}", text(&machine, "/metadata/name"));
        cp.wait_condition(Kind::WINDOWS_MACHINE, &name, "NodeJoined", "True", LIMIT).await;
        let owners = machine["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        assert_eq!((owners.len(), &owners[0]["kind"], &owners[0]["controller"]), (1, &json!("WindowsNodePool"), &json!(true)), "{owners:?}");
        assert!(machine.pointer("/metadata/labels/cluster.x-k8s.io~1cluster-name").is_none(), "{machine:#}");
    }
    for node in cp.list(Kind::NODE, None).await {
        assert_eq!(text(&node, "/metadata/labels/example.com~1pool"), "windows");
        let role = |node: &Value| node.pointer("/metadata/labels/node-role.kubernetes.io~1windows").map(drop);
        cp.wait_object(Kind::NODE, text(&node, "/metadata/name"), "the label of its role", LIMIT, role).await;
    }
    wait_for("no token is left", LIMIT, || async {
        let tokens = workers::tokens(cp).await;
        if tokens.is_empty() { Ok(()) } else { Err(tokens.join(", ")) }
    })
    .await;
}

/// Requests removal as cluster-autoscaler does: a lower number and a name, in one write. The policy would choose another machine.
async fn named_removal(cp: &ControlPlane, there: &BTreeSet<String>) -> String {
    let mut machines = cp.list(Kind::WINDOWS_MACHINE, Some("default")).await;
    machines.sort_by_key(|machine| text(machine, "/metadata/creationTimestamp").to_owned());
    let named = text(&machines[0], "/metadata/name").to_owned();
    let annotations = json!({"infrastructure.cluster.x-k8s.io/remove-machines": named});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": there.len() - 1}});
    cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &patch).await.expect("a write of the pool");
    named
}

/// A kubelet registers only once, so a machine whose Node was deleted is replaced.
async fn a_deleted_node_is_replaced(cp: &ControlPlane, there: &BTreeSet<String>) {
    let victim = there.first().expect("two machines").clone();
    cp.delete(Kind::NODE, &victim).await;
    cp.wait_gone(Kind::WINDOWS_MACHINE, &format!("default/{victim}"), LIMIT).await;
    let after = wait_settled(cp, cp, POOL, there.len()).await;
    assert_eq!(there.intersection(&after).count(), there.len() - 1, "exactly {victim} was replaced: {after:?}");
}

async fn vms_are(capw: &Capw, machines: &BTreeSet<String>) {
    wait_for("a VM for each machine and no other", LIMIT, || async {
        let vms: BTreeSet<String> = simulated_vms(capw.state()).into_iter().map(|vm| vm.name).collect();
        if vms == *machines { Ok(()) } else { Err(format!("{vms:?}")) }
    })
    .await;
}

/// Checks that the pool's namespace has no machine, no configuration and no bootstrap data.
pub async fn nothing_of_ours(cp: &ControlPlane) {
    wait_for("no object of the pool is left", LIMIT, || async {
        let mut left = Vec::new();
        for kind in [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG, Kind::SECRET] {
            left.extend(names(&cp.list(kind, Some("default")).await));
        }
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
}

/// Without metrics, the autoscaler requests its minimum. It only needs our `scale` subresource.
async fn scaled_by_a_horizontal_autoscaler(cp: &ControlPlane, replicas: usize) -> BTreeSet<String> {
    let kind = Kind::new("autoscaling/v2", "horizontalpodautoscalers");
    let autoscaler = json!({"apiVersion": kind.api_version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "windows", "namespace": "default"}, "spec": {
        "scaleTargetRef": {"apiVersion": Kind::WINDOWS_NODE_POOL.api_version, "kind": "WindowsNodePool", "name": "windows"},
        "minReplicas": replicas, "maxReplicas": replicas,
        "metrics": [{"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}}}],
    }});
    cp.apply(&autoscaler.to_string()).await;
    let machines = wait_settled(cp, cp, POOL, replicas).await;
    cp.wait_condition(kind, POOL, "AbleToScale", "True", LIMIT).await;
    cp.delete(kind, POOL).await;
    cp.wait_gone(kind, POOL, LIMIT).await;
    machines
}

async fn scale(cp: &ControlPlane, replicas: usize) {
    let replicas = format!("--replicas={replicas}");
    cp.kubectl(&["scale", "windowsnodepools.infrastructure.cluster.x-k8s.io", "windows", &replicas]).await;
}
