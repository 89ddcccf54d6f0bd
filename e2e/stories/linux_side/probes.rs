//! The part of the story about a new node: a pod is bound to it in spite of its taint, and has to reach what pods need. The test plays the
//! kubelet.

use std::time::Duration;

use serde_json::{Value, json};

use super::{BROUGHT, COMPONENTS, LIMIT, PODS, SERVICES, is_unverified, says};
use crate::world::{ControlPlane, Kind, step, text, wait_for};

/// From the last connection to the removal of the taint, and from the last fix of the Linux side to the report that it is compatible. Without events
/// CAPW polls four times a minute, or every five minutes.
pub const SOON: Duration = Duration::from_secs(5);

/// Reports, as the kubelet, the exit code of a pod's connections, and that the pod is ready if all succeeded.
async fn ended(cp: &ControlPlane, pod: &str, node: Option<&str>, code: i64) -> Value {
    let name = format!("{BROUGHT}/{pod}");
    wait_for(&format!("{name} has ended with {code}"), LIMIT, || async {
        let pod = cp.get(PODS, &name).await.ok_or("no pod")?;
        if node.is_some_and(|node| text(&pod, "/spec/nodeName") != node) {
            return Err("the scheduler has not bound it");
        }
        let status = status(&pod, node.is_none(), code);
        cp.patch_status(PODS, &name, &json!({"status": status})).await.map_err(|_| "it is gone again")?;
        Ok(pod)
    })
    .await
}

/// The status that a kubelet reports for a pod whose connections ended with this code. `is_back`: the pod on a Linux node, which only connects.
pub fn status(pod: &Value, is_back: bool, code: i64) -> Value {
    let connected = json!({"terminated": {"exitCode": code, "message": "TIMEOUT\n"}});
    let statuses = |containers: &Value, state: &Value| {
        let of =
            |container: &Value| json!({"name": container["name"], "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        Value::from_iter(containers.as_array().into_iter().flatten().map(of))
    };
    let spec = &pod["spec"];
    if is_back {
        return json!({"phase": if code == 0 { "Succeeded" } else { "Running" }, "containerStatuses": statuses(&spec["containers"], &connected)});
    }
    let ready = if code == 0 { "True" } else { "False" };
    json!({"phase": if code == 0 { "Running" } else { "Pending" }, "podIP": "10.244.9.4", "podIPs": [{"ip": "10.244.9.4"}],
        "conditions": [{"type": "Ready", "status": ready}], "initContainerStatuses": statuses(&spec["initContainers"], &connected),
        "containerStatuses": statuses(&spec["containers"], &json!({"waiting": {"reason": "PodInitializing"}}))})
}

/// The connections fail at first; then a pod on a Linux node does not reach the new pod; in the end both succeed.
pub async fn it_reaches_what_pods_need(cp: &ControlPlane, name: &str, node: &str) {
    let (there, back) = (format!("probe-{node}"), format!("probe-back-{node}"));
    ended(cp, &there, Some(node), 1).await;
    let words = [node, "does not reach the API server by the address of its Service: TIMEOUT", "read the log of kube-proxy"];
    says(cp, name, COMPONENTS, "NodeNotVerified", &words).await;
    ended(cp, &there, Some(node), 0).await;
    // The Linux nodes of recordings have no kubelets, and accept no connections.
    let pod = ended(cp, &back, None, 1).await;
    says(cp, name, COMPONENTS, "NodeNotVerified", &["a pod on a Linux node does not reach a pod there (10.244.9.4:9376): TIMEOUT"]).await;
    assert!(cp.get(Kind::NODE, node).await.is_some_and(|node| is_unverified(&node)), "the taint stays until it does");
    let (service, object) = (format!("{BROUGHT}/{there}"), cp.get(Kind::NODE, node).await.expect("the Node"));
    let live = cp.get(SERVICES, &service).await.expect("a Service of the pod");
    let addresses = object["status"]["addresses"].as_array().expect("addresses");
    let address = addresses.iter().find(|address| address["type"] == "InternalIP").expect("its address");
    let expected = format!("{}:{}", text(address, "/address"), live["spec"]["ports"][0]["nodePort"]);
    assert_eq!(pod["spec"]["containers"][1]["args"][1], json!(expected), "the NodePort that the API server gave");
    ended(cp, &back, None, 0).await;
    cp.wait_object(Kind::NODE, node, "its taint is gone", SOON, |node| (!is_unverified(node)).then_some(())).await;
    cp.wait_gone(PODS, &format!("{BROUGHT}/{back}"), LIMIT).await;
    cp.wait_object(PODS, &service, "it is deleted", LIMIT, |pod| (!pod["metadata"]["deletionTimestamp"].is_null()).then_some(())).await;
    cp.kubectl(&["-n", BROUGHT, "delete", "pod", &there, "--force", "--grace-period=0"]).await;
    cp.wait_gone(SERVICES, &service, LIMIT).await;
    step("a pod on a new node has reached what pods need, and one on a Linux node has reached it, by a NodePort too");
}
