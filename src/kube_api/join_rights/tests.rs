use serde_json::{Value, json};

use crate::kube_api::join_rights::*;
use crate::kube_api::mock::{Exchange, Script, refuse, step};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The path and content of every maintained object, in the order of the requests.
fn kept() -> Vec<(String, Value)> {
    let value = |v: Result<Value, serde_json::Error>| v.unwrap();
    vec![
        (
            format!("{RBAC}/clusterrolebindings/capw:node-bootstrapper"),
            value(serde_json::to_value(cluster_binding(NODE_BOOTSTRAPPER, "system:node-bootstrapper"))),
        ),
        (format!("{RBAC}/clusterroles/capw:get-nodes"), value(serde_json::to_value(get_nodes()))),
        (format!("{RBAC}/clusterrolebindings/capw:get-nodes"), value(serde_json::to_value(cluster_binding(GET_NODES, GET_NODES)))),
        (format!("{RBAC}/namespaces/kube-system/roles/capw:join-configuration"), value(serde_json::to_value(join_configuration()))),
        (format!("{RBAC}/namespaces/kube-system/rolebindings/capw:join-configuration"), value(serde_json::to_value(binding()))),
    ]
}

fn workload(steps: Vec<Exchange>) -> (Workload, Script) {
    let (client, script) = Script::new(steps);
    let workload = Workload::of(client);
    (workload, script)
}

#[tokio::test]
async fn missing_rights_are_made_and_present_ones_cost_no_write() {
    let make =
        kept().into_iter().flat_map(|(path, object)| [refuse(&format!("GET {path}"), 404, "NotFound"), step(&format!("PATCH {path}"), object)]);
    let (cluster, _script) = workload(make.collect());
    assert!(ensure(&cluster).await.unwrap());

    let (cluster, _script) = workload(kept().into_iter().map(|(path, object)| step(&format!("GET {path}"), object)).collect());
    assert!(!ensure(&cluster).await.unwrap());
}

#[tokio::test]
async fn kube_proxy_may_use_the_nodes_certificate() {
    let (path, object) = (format!("{RBAC}/clusterrolebindings/capw:node-proxier"), serde_json::to_value(proxy_binding()).unwrap());
    assert_eq!(object["subjects"][0]["name"], "system:nodes");
    let (cluster, _script) = workload(vec![refuse(&format!("GET {path}"), 404, "NotFound"), step(&format!("PATCH {path}"), object.clone())]);
    assert!(ensure_proxy(&cluster).await.unwrap());
    let (cluster, _script) = workload(vec![step(&format!("GET {path}"), object)]);
    assert!(!ensure_proxy(&cluster).await.unwrap());
}

#[tokio::test]
async fn a_changed_right_is_restored() {
    let mut steps: Vec<Exchange> = kept().into_iter().map(|(path, object)| step(&format!("GET {path}"), object)).collect();
    let (path, object) = kept().swap_remove(1);
    let mut changed = object.clone();
    changed["rules"][0]["verbs"] = json!(["list"]);
    steps[1] = step(&format!("GET {path}"), changed);
    steps.insert(2, step(&format!("PATCH {path}"), object));
    let (cluster, _script) = workload(steps);
    assert!(ensure(&cluster).await.unwrap());
}

#[tokio::test]
async fn a_binding_to_another_role_is_left_alone() {
    let (path, _) = kept().swap_remove(0);
    let (cluster, _script) = workload(vec![refuse(&format!("GET {path}"), 404, "NotFound"), refuse(&format!("PATCH {path}"), 422, "Invalid")]);
    assert!(matches!(ensure(&cluster).await, Err(WorkloadError::Foreign { .. })));
}
