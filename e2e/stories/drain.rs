//! Story *drain*: machines of a pool without Cluster API are drained as `kubectl drain` does it. A pod that a PodDisruptionBudget protects waits for
//! another replica, DaemonSet pods stay, a pod without an owner is evicted, a hung pod is deleted by force, and a time limit ends the drain. The Node
//! is deleted before its VM is stopped.
//!
//! The real controllers and the real scheduler create and place the pods. The story plays the parts of the kubelet that it needs.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::standalone::{install_rights, wait_settled};
use crate::world::{self, AuditMark, Capw, ControlPlane, Kind, Options, beside, condition, simulated_vms, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
const SAMPLE: &str = include_str!("../../config/samples/standalone.yaml");
const POOL: &str = "default/windows";
const POD: Kind = Kind::new("v1", "pods");
const BUDGET: Kind = Kind::new("policy/v1", "poddisruptionbudgets");
/// Pods with this annotation do not end on their own.
const HANGS: &str = "example.com/hangs";

#[test]
fn a_machine_leaves_when_its_pods_have_left() {
    world::run(async {
        let options = Options { scheduler: true, ..Options::standalone() };
        let cp = ControlPlane::start(options.named("drain")).await;
        install_rights(&cp).await;
        let capw = Capw::start(&cp, &[]).await;
        cp.apply(SAMPLE).await;
        let names = wait_settled(&cp, &cp, POOL, 2).await;
        beside(async || look_after_pods(&cp).await, async {
            let victim = place_pods(&cp).await;
            assert!(names.contains(&victim), "{victim} of {names:?}");
            let mark = cp.audit_mark();
            beside(async || the_node_goes_first(&cp, &capw, &victim).await, pods_leave(&cp, &capw, &victim)).await;
            let left = wait_settled(&cp, &cp, POOL, 1).await;
            assert!(!left.contains(&victim));
            what_was_asked(&cp, mark, &victim);
            step("another replica came up, and the machine went: Node first, then VM");

            a_time_limit(&cp, &capw, left.first().expect("one is left")).await;
        })
        .await;
    });
}

/// Creates a pod with a budget, a pod of a DaemonSet, a pod without an owner and a pod that will hang, all on the returned node.
async fn place_pods(cp: &ControlPlane) -> String {
    cp.apply_objects(&[agent(), web(1), budget()]).await;
    let web_pod = wait_running(cp, "web", 1).await.remove(0);
    wait_running(cp, "agent", 2).await;
    let victim = text(&web_pod, "/spec/nodeName").to_owned();
    cp.apply_objects(&[lonely("lonely", &victim, json!({})), lonely("hung", &victim, json!({HANGS: "true"}))]).await;
    wait_running(cp, "lonely", 1).await;
    wait_running(cp, "hung", 1).await;
    step(format!("pods run on {victim}: one of a budget, one of a DaemonSet, one without an owner, one that will hang"));
    victim
}

/// Follows a machine from the request to remove it until it is deleted.
async fn pods_leave(cp: &ControlPlane, capw: &Capw, victim: &str) {
    // CAPW reports a hung pod from 5 s after the grace period.
    cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &json!({"spec": {"drain": {"hungPodSeconds": 15}}})).await.expect("the margin");
    let machine = format!("default/{victim}");
    let history = cp.history(Kind::WINDOWS_MACHINE, &machine).await;
    remove(cp, victim, 1).await;
    let says = |what: &'static [&'static str]| {
        move |object: &Value| {
            let deleting = condition(object, "Deleting").filter(|c| c["reason"] == "DrainingNode")?;
            let message = text(deleting, "/message");
            what.iter().all(|part| message.contains(part)).then(|| message.to_owned())
        }
    };
    history.said("it names the budget", LIMIT, says(&["default/web-", "disruption budget"])).await;
    history.said("it names the pod that hangs", LIMIT, says(&["pod default/hung is still there", "deleted by force"])).await;
    wait_gone(cp, "lonely").await;
    wait_gone(cp, "hung").await;
    assert_eq!(simulated_vms(capw.state()).len(), 2, "a VM went while a budget kept its pod");
    step("the pod without an owner went, the hung one was forced, and the budget holds the machine");

    cp.apply_objects(&[web(2)]).await;
    cp.wait_gone(Kind::WINDOWS_MACHINE, &machine, LIMIT).await;
}

/// A budget that never allows an eviction, and a time limit: the machine is deleted with its remaining pods, and reports that.
async fn a_time_limit(cp: &ControlPlane, capw: &Capw, last: &str) {
    wait_running(cp, "web", 2).await;
    cp.patch(BUDGET, "default/web", &json!({"spec": {"minAvailable": 2}})).await.expect("the budget");
    let machine = format!("default/{last}");
    let history = cp.history(Kind::WINDOWS_MACHINE, &machine).await;
    cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &json!({"spec": {"replicas": 0, "drain": {"timeoutSeconds": 15}}})).await.expect("the limit");
    let told = |object: &Value| condition(object, "Deleting").filter(|c| text(c, "/message").contains("whatever is left")).map(drop);
    history.said("it says when it goes", LIMIT, told).await;
    cp.wait_gone(Kind::WINDOWS_MACHINE, &machine, LIMIT).await;
    wait_for("no VM and no Node are left", LIMIT, || async {
        let (vms, nodes) = (simulated_vms(capw.state()), cp.list(Kind::NODE, None).await);
        if vms.is_empty() && nodes.is_empty() { Ok(()) } else { Err(format!("{} VMs, {} Nodes", vms.len(), nodes.len())) }
    })
    .await;
    let events = cp.events("default", last).await;
    assert!(events.iter().any(|event| event.starts_with("Warning DrainTimedOut") && event.contains("15 s")), "{events:?}");
    step("a time limit ended a drain that a budget would have held forever");
}

/// Checks the requests in the audit log: cordon, then evictions without DaemonSet pods, force for the hung pod only, then the Node.
fn what_was_asked(cp: &ControlPlane, mark: AuditMark, node: &str) {
    let mut asked = cp.audit_since(mark);
    asked.retain(|event| event.user == Capw::USER && event.is_write());
    let of_node = |verb: &str| asked.iter().position(|e| e.resource == "nodes" && e.name == node && e.verb == verb && e.code < 300);
    let evictions: Vec<usize> = (0..asked.len()).filter(|n| asked[*n].subresource == "eviction").collect();
    let (first, last) = (evictions[0], evictions[evictions.len() - 1]);
    assert!(of_node("patch").is_some_and(|cordoned| cordoned < first), "evicted before it was cordoned");
    assert!(of_node("delete").is_some_and(|deleted| deleted > last), "the Node went before its pods");
    let evicted = |name: &str| evictions.iter().any(|n| asked[*n].name.starts_with(name) && asked[*n].code < 300);
    assert!(evicted("web-") && evicted("lonely") && evicted("hung") && !evictions.iter().any(|n| asked[*n].name.starts_with("agent")));
    let forced: Vec<&str> = asked.iter().filter(|e| e.resource == "pods" && e.verb == "delete").map(|e| e.name.as_str()).collect();
    assert_eq!(forced, ["hung"]);
    let refused: Vec<&str> = asked.iter().filter(|event| event.code == 403).map(|event| event.uri.as_str()).collect();
    assert!(refused.is_empty(), "CAPW was refused: {refused:#?}");
}

/// Checks that the VM runs while its Node exists. It reads the VM first, because a Node that is read later existed at that time.
async fn the_node_goes_first(cp: &ControlPlane, capw: &Capw, name: &str) {
    let vm = simulated_vms(capw.state()).into_iter().find(|vm| vm.name == name && vm.is_whole());
    let runs = vm.as_ref().is_some_and(|vm| vm.power == "On");
    let node = cp.get(Kind::NODE, name).await;
    assert!(runs || node.is_none(), "Node {name} is there and its VM is not On: {vm:?}");
}

async fn remove(cp: &ControlPlane, name: &str, left: usize) {
    let annotations = json!({"infrastructure.cluster.x-k8s.io/remove-machines": name});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": left}});
    cp.patch(Kind::WINDOWS_NODE_POOL, POOL, &patch).await.expect("a write of the pool");
}

fn pod_template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": pod_spec()})
}

fn pod_spec() -> Value {
    json!({"tolerations": [{"key": "os", "operator": "Exists"}], "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "none.invalid/none"}]})
}

fn web(replicas: usize) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod_template("web")}})
}

fn agent() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": pod_template("agent")}})
}

fn budget() -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})
}

fn lonely(name: &str, node: &str, annotations: Value) -> Value {
    let mut spec = pod_spec();
    spec["nodeName"] = json!(node);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": name}, "annotations": annotations}, "spec": spec})
}

async fn wait_running(cp: &ControlPlane, app: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} pods of {app} run"), LIMIT, || async {
        let mut pods = cp.list(POD, Some("default")).await;
        pods.retain(|pod| text(pod, "/metadata/labels/app") == app && text(pod, "/metadata/deletionTimestamp").is_empty());
        let running = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running").count();
        if running == count && pods.len() == count {
            return Ok(pods);
        }
        Err(pods.iter().map(|pod| format!("{}: {}", text(pod, "/metadata/name"), pod["status"])).collect::<Vec<_>>().join("; "))
    })
    .await
}

async fn wait_gone(cp: &ControlPlane, pod: &str) {
    cp.wait_gone(POD, &format!("default/{pod}"), LIMIT).await;
}

/// Plays the part of a kubelet that the story needs: pods run, and end when they are deleted.
async fn look_after_pods(cp: &ControlPlane) {
    for pod in cp.list(POD, Some("default")).await {
        let name = format!("default/{}", text(&pod, "/metadata/name"));
        let hangs = pod.pointer("/metadata/annotations").is_some_and(|a| a.get(HANGS).is_some());
        if text(&pod, "/spec/nodeName").is_empty() {
            continue;
        }
        if !text(&pod, "/metadata/deletionTimestamp").is_empty() {
            if !hangs {
                // The pod may have been deleted already.
                let _ = cp.api(POD, Some("default")).delete(text(&pod, "/metadata/name"), &DeleteParams::default().grace_period(0)).await;
            }
        } else if text(&pod, "/status/phase") != "Running" {
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let _ = cp.patch_status(POD, &name, &status).await;
        }
    }
}
