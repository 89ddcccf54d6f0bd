//! New nodes are probed before their taint is removed.

use crate::kinds::windows_cluster::windows_side::tests::*;

pub const PROBE: &str = "/api/v1/namespaces/capw-windows/pods/probe-win-1";
pub const BACK: &str = "/api/v1/namespaces/capw-windows/pods/probe-back-win-1";

const SERVICE: &str = "/api/v1/namespaces/capw-windows/services/probe-win-1";

/// A probe pod as it was created, whose containers have ended with the exit code: 0 if they connected.
pub fn probe_pod(server: &Arc<Mutex<Server>>, path: &str, code: i64) -> Value {
    let mut pod = server.lock().objects[path].clone();
    let ended = |name: &Value| json!({"name": name, "state": {"terminated": {"exitCode": code, "message": "TIMEOUT\n"}}});
    let statuses = |part: &str| Value::from_iter(pod["spec"][part].as_array().into_iter().flatten().map(|container| ended(&container["name"])));
    let (there, back) = (statuses("initContainers"), statuses("containers"));
    let ready = json!([{"type": "Ready", "status": if code == 0 { "True" } else { "False" }}]);
    pod["status"] = match path {
        PROBE => json!({"podIP": "10.244.3.4", "initContainerStatuses": there, "conditions": ready}),
        _ => json!({"containerStatuses": back}),
    };
    pod
}

/// From the first ready pods on: a probe pod is created, has not reached everything, has, and is removed after the taint.
#[tokio::test]
async fn the_taint_goes_when_a_pod_there_has_reached_what_pods_need() {
    let (parts, c1) = (["flannel", "kube-proxy"].map(ready_pod), windows_cluster("c1", true));
    let others = std::iter::once(tainted_node()).chain(parts).collect();
    let server = Arc::new(Mutex::new(Server { others, ..Server::default() }));
    let is_lifted = || server.lock().asked.contains(&TAINT_GOES.to_owned());
    brought(&server, RECORDING, &c1).await.unwrap();
    let first = brought(&server, RECORDING, &c1).await.unwrap();
    assert_eq!((first.verified.as_deref(), first.condition.reason), (Some("0/1"), Reason::NodeNotVerified));
    let made = server.lock().objects[PROBE].clone();
    assert_eq!(made["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/windows-cluster"], "lab/c1");

    let failing = probe_pod(&server, PROBE, 1);
    server.lock().others.push(failing);
    let second = brought(&server, RECORDING, &c1).await.unwrap();
    let words = "win-1: a pod there does not reach the API server by the address of its Service: TIMEOUT";
    assert!(second.condition.message.contains(words), "{}", second.condition.message);
    assert_eq!((second.verified.as_deref(), is_lifted()), (Some("0/1"), false));

    // A drain of the node finds no other pod after this one.
    let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    server.lock().others[0]["spec"]["taints"].as_array_mut().unwrap().push(taint);
    let failing = server.lock().others.pop().unwrap();
    let cordoned = brought(&server, RECORDING, &c1).await.unwrap();
    assert_eq!((cordoned.verified.as_deref(), cordoned.condition.reason, is_lifted()), (Some("0/1"), Reason::NodeNotVerified, false));
    server.lock().others[0]["spec"]["taints"].as_array_mut().unwrap().pop();
    server.lock().others.push(failing);

    let there = probe_pod(&server, PROBE, 0);
    *server.lock().others.last_mut().unwrap() = there;
    let third = brought(&server, RECORDING, &c1).await.unwrap();
    assert_eq!((third.verified.as_deref(), third.condition.reason, is_lifted()), (Some("0/1"), Reason::NodeNotVerified, false));
    let ports = server.lock().objects[BACK]["spec"]["containers"][1]["args"][1].clone();
    assert_eq!(ports, "192.168.0.9:30123");
    let back = probe_pod(&server, BACK, 0);
    server.lock().others.push(back);
    let last = brought(&server, RECORDING, &c1).await.unwrap();
    assert_eq!((last.verified.as_deref(), last.condition.reason, is_lifted()), (Some("1/1"), Reason::PartsReady, true));
    let server = server.lock();
    let writes: Vec<&String> = server.asked.iter().filter(|line| line.contains("win-1") && !line.starts_with("GET")).collect();
    let [make, make_service, make_back, go, go_back] =
        [("PATCH", PROBE), ("PATCH", SERVICE), ("PATCH", BACK), ("DELETE", PROBE), ("DELETE", BACK)].map(|(verb, path)| format!("{verb} {path}"));
    // The pod is applied twice because the second pass cannot see it. The Service follows once the pod exists, and the second pod once it is ready.
    assert_eq!(writes, [&make, &make, &make_service, &make_back, TAINT_GOES, &go, &go_back]);
}

/// While the taint is set, it keeps pods away; a failed request leaves it.
#[tokio::test]
async fn a_pod_that_cannot_be_made_leaves_the_taint() {
    let others = std::iter::once(tainted_node()).chain(["flannel", "kube-proxy"].map(ready_pod)).collect();
    let server = Arc::new(Mutex::new(Server { others, refused: Some(format!("PATCH {PROBE}")), ..Server::default() }));
    let refused = brought(&server, RECORDING, &windows_cluster("c1", true)).await.err().unwrap();
    assert!(refused.to_string().contains("pods capw-windows/probe-win-1"), "{refused}");
    assert!(!server.lock().asked.contains(&TAINT_GOES.to_owned()));
}
