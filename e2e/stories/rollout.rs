//! Story *rollout*: a pool of ten machines with a surge of two, none unavailable, and a PodDisruptionBudget that delays the drains. By every version
//! of every Node, the available Nodes never fall below the promised number. A broken template stops after the first batch and reports why. After it
//! is set back, the old VMs remain.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::pools::{Pool, names};
use crate::workers::is_ready;
use crate::world::{self, Capw, ControlPlane, Kind, Options, beside, condition, simulated_vms, step, text, wait_for};

/// The limit for one wait: a drain is retried every 20 s.
const LIMIT: Duration = Duration::from_secs(420);
const MACHINES: usize = 10;

#[test]
fn a_rollout_keeps_what_it_promised() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("rollout")).await;
        let capw = Capw::start(&cp, &[]).await;
        let mut pool = Pool::new("rollout", MACHINES, &cp).await;
        pool.spec = json!({"strategy": {"maxSurge": 2, "maxUnavailable": 0}});
        pool.apply(&cp).await;
        let before = names(&pool.wait_settled(&cp).await);
        step("10 nodes are Ready");

        let available = cp.fewest(Kind::NODE, takes_pods).await;
        broken_then_set_back(&cp, &capw, &mut pool).await;
        let after = names(&pool.wait_settled(&cp).await);
        assert_eq!(after, before, "the machines from before, and no others");
        step("a broken template stopped after two machines; set back, the machines from before are left");
        all_are_replaced(&cp, &capw, &mut pool, &before).await;
        let fewest = available.so_far(&cp).await;
        assert!(fewest >= MACHINES, "only {fewest} of {MACHINES} were available during a rollout with maxUnavailable 0");
        step(format!("10 machines were replaced, never fewer than {fewest} Ready Nodes that take pods"));
    });
}

/// Applies another template, with pods that delay the drains.
async fn all_are_replaced(cp: &ControlPlane, capw: &Capw, pool: &mut Pool, before: &BTreeSet<String>) {
    let pods = guarded_pods(cp, pool).await;
    pool.workers.machine["cpus"] = json!(2);
    cp.apply_objects(&[pool.node_pool()]).await;
    let machines = beside(async || look_after_pods(cp).await, async {
        let machines = wait_for("every machine is replaced", LIMIT, || async { pool.workers.settled(cp, cp).await }).await;
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, &pool.name(), "MachinesUpToDate", "True", LIMIT).await;
        machines
    })
    .await;
    assert!(names(&machines).is_disjoint(before), "a machine outlived the change of its template");
    assert!(simulated_vms(capw.state()).iter().all(|vm| vm.cpus == 2));
    let evictions = cp.audit().iter().filter(|e| e.subresource == "eviction" && e.verb == "create").count();
    assert!(evictions >= pods, "{evictions} evictions for {pods} pods: they were not drained");
}

/// Whether a Node is Ready and schedulable.
fn takes_pods(node: &Value) -> bool {
    is_ready(node) && node["spec"]["unschedulable"] != json!(true)
}

/// Applies a template whose machines never join, then sets it back.
async fn broken_then_set_back(cp: &ControlPlane, capw: &Capw, pool: &mut Pool) {
    let good = pool.node_pool();
    let fault = |faults: Value| json!({"spec": {"simulated": {"faults": faults}}});
    cp.patch(Kind::WINDOWS_HYPERVISOR, "rollout/lab", &fault(json!([{"names": "*", "fault": "NoJoin"}]))).await.expect("a fault");
    pool.workers.machine["memory"] = json!("16Gi");
    cp.apply_objects(&[pool.node_pool()]).await;
    let stopped = cp
        .wait_object(Kind::WINDOWS_NODE_POOL, &pool.name(), "the rollout is stopped", LIMIT, |object| {
            condition(object, "MachinesUpToDate").filter(|c| c["reason"] == "RolloutStopped").cloned()
        })
        .await;
    assert!(text(&stopped, "/message").contains("JoinFailed") && text(&stopped, "/message").contains("set it back"), "{stopped}");
    assert_eq!(simulated_vms(capw.state()).len(), MACHINES + 2, "the first batch, and no more");
    cp.patch(Kind::WINDOWS_HYPERVISOR, "rollout/lab", &fault(json!(null))).await.expect("no fault");
    pool.workers.machine["memory"] = json!("8Gi");
    cp.apply_objects(&[good]).await;
    wait_for("only the VMs from before are left", LIMIT, || async {
        let count = simulated_vms(capw.state()).len();
        if count == MACHINES { Ok(()) } else { Err(count) }
    })
    .await;
}

/// Creates a pod on each of four Nodes, with a budget of one unavailable pod. Returns the number of pods.
async fn guarded_pods(cp: &ControlPlane, pool: &Pool) -> usize {
    let nodes: Vec<String> = names(&cp.list(Kind::NODE, None).await).into_iter().take(4).collect();
    let mut objects =
        vec![json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "one", "namespace": pool.workers.namespace},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "guarded"}}}})];
    for (n, node) in nodes.iter().enumerate() {
        objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("guarded-{n}"), "namespace": pool.workers.namespace, "labels": {"app": "guarded"}},
            "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "none.invalid/none"}]}}));
    }
    cp.apply_objects(&objects).await;
    nodes.len()
}

/// Plays the part of a kubelet that the story needs: pods run, and end when they are deleted. An evicted pod is recreated on another node, as a
/// controller and the scheduler would do.
async fn look_after_pods(cp: &ControlPlane) {
    let api: Api<Pod> = Api::namespaced(cp.client(), "rollout");
    let pods = api.list(&ListParams::default().labels("app=guarded")).await.expect("pods").items;
    for pod in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            again(cp, &name).await;
        } else if pod.status.and_then(|s| s.phase).as_deref() != Some("Running") {
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let _ = api.patch_status(&name, &Default::default(), &kube::api::Patch::Merge(status)).await;
        }
    }
}

/// Recreates the pod on a Node that stays.
async fn again(cp: &ControlPlane, name: &str) {
    let nodes = cp.list(Kind::NODE, None).await;
    let free = nodes.iter().filter(|node| takes_pods(node));
    // The newest Node has the new template.
    let Some(node) = free.max_by_key(|n| text(n, "/metadata/creationTimestamp").to_owned()) else { return };
    cp.apply_objects(&[json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}x"), "namespace": "rollout", "labels": {"app": "guarded"}},
        "spec": {"nodeName": text(node, "/metadata/name"), "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "none.invalid/none"}]}})]).await;
}
