//! The part of the story about a new node: a pod there is bound to it in spite of its taint, and has to reach what pods need. The kubelet's part is
//! played here.

use serde_json::{Value, json};

use super::{BROUGHT, COMPONENTS, LIMIT, PODS, is_unverified, says};
use crate::world::{ControlPlane, Kind, step, text, wait_for};

/// Says that all containers of the pod have ended so.
async fn ended(cp: &ControlPlane, node: &str, code: i64, phase: &str, message: &str) {
    let name = format!("{BROUGHT}/probe-{node}");
    wait_for(&format!("{name} has ended with {code}"), LIMIT, || async {
        let pod = cp.get(PODS, &name).await.ok_or("no pod")?;
        if text(&pod, "/spec/nodeName") != node {
            return Err("the scheduler has not bound it");
        }
        let terminated = json!({"exitCode": code, "message": message});
        let status = |container: &Value| {
            json!({"name": container["name"], "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}})
        };
        let statuses: Vec<Value> = pod["spec"]["containers"].as_array().into_iter().flatten().map(status).collect();
        cp.patch_status(PODS, &name, &json!({"status": {"phase": phase, "containerStatuses": statuses}})).await.map_err(|_| "it is gone again")
    })
    .await;
}

/// At first it does not.
pub async fn it_reaches_what_pods_need(cp: &ControlPlane, name: &str, node: &str) {
    ended(cp, node, 1, "Running", "TIMEOUT\n").await;
    let words = [node, "does not reach the API server by the address of its Service: TIMEOUT", "read the log of kube-proxy"];
    says(cp, name, COMPONENTS, "NodeNotVerified", &words).await;
    assert!(cp.get(Kind::NODE, node).await.is_some_and(|node| is_unverified(&node)), "the taint stays until it does");
    ended(cp, node, 0, "Succeeded", "").await;
    cp.wait_gone(PODS, &format!("{BROUGHT}/probe-{node}"), LIMIT).await;
    step("a pod on a new node has reached what pods need");
}
