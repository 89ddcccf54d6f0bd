//! The part of the story about a new node: a pod there is bound to it in spite of its taint, and has to reach what pods need. The kubelet's part is
//! played here.

use serde_json::{Value, json};

use super::{BROUGHT, COMPONENTS, LIMIT, PODS, is_unverified, says};
use crate::world::{ControlPlane, Kind, step, text, wait_for};

/// Says that all containers of a pod have ended so.
async fn ended(cp: &ControlPlane, pod: &str, node: Option<&str>, code: i64, phase: &str) {
    let name = format!("{BROUGHT}/{pod}");
    wait_for(&format!("{name} has ended with {code}"), LIMIT, || async {
        let pod = cp.get(PODS, &name).await.ok_or("no pod")?;
        if node.is_some_and(|node| text(&pod, "/spec/nodeName") != node) {
            return Err("the scheduler has not bound it");
        }
        let terminated = json!({"exitCode": code, "message": "TIMEOUT\n"});
        let status = |container: &Value| {
            json!({"name": container["name"], "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}})
        };
        let statuses: Vec<Value> = pod["spec"]["containers"].as_array().into_iter().flatten().map(status).collect();
        let status = json!({"phase": phase, "podIP": "10.244.9.4", "podIPs": [{"ip": "10.244.9.4"}], "containerStatuses": statuses});
        cp.patch_status(PODS, &name, &json!({"status": status})).await.map_err(|_| "it is gone again")
    })
    .await;
}

/// At first it does not, and then a pod on a Linux node does not reach it.
pub async fn it_reaches_what_pods_need(cp: &ControlPlane, name: &str, node: &str) {
    let (there, back) = (format!("probe-{node}"), format!("probe-back-{node}"));
    ended(cp, &there, Some(node), 1, "Running").await;
    let words = [node, "does not reach the API server by the address of its Service: TIMEOUT", "read the log of kube-proxy"];
    says(cp, name, COMPONENTS, "NodeNotVerified", &words).await;
    ended(cp, &there, Some(node), 0, "Succeeded").await;
    // Linux nodes of recordings have no kubelets, and take nothing.
    ended(cp, &back, None, 1, "Running").await;
    says(cp, name, COMPONENTS, "NodeNotVerified", &["a pod on a Linux node does not reach a pod there (10.244.9.4:9376): TIMEOUT"]).await;
    assert!(cp.get(Kind::NODE, node).await.is_some_and(|node| is_unverified(&node)), "the taint stays until it does");
    ended(cp, &back, None, 0, "Succeeded").await;
    for pod in [there, back] {
        cp.wait_gone(PODS, &format!("{BROUGHT}/{pod}"), LIMIT).await;
    }
    step("a pod on a new node has reached what pods need, and one on a Linux node has reached it");
}
