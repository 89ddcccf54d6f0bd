use crate::kinds::machine::reconcile::tests::*;
use crate::testing::reach;

/// The requests to the workload cluster after the VM of a Cluster API machine was removed, and the last write of the machine.
async fn end_of_vm(of_core: Value, seconds: i64, refused: Option<&str>) -> (Vec<String>, Value) {
    let node = node();
    let id = node["spec"]["providerID"].clone();
    let server = Arc::new(Mutex::new(Server { others: vec![node], refused: refused.map(str::to_owned), ..Server::holding([]) }));
    let mut machine = serde_json::to_value(&*caches().machines.get("lab", "win-1").unwrap()).unwrap();
    json_patch::merge(&mut machine, &of_core);
    let names_node = machine["status"]["nodeRef"].is_object();
    let mut exchanges = if names_node { vec![] } else { vec![kubeconfig()] };
    let released = refused.is_none() || seconds > 60;
    exchanges.push(step(if released { OBJECT } else { STATUS }, owned(json!({}))));
    let (shared, script) = shared_to(Caches { machines: holding(vec![machine]), ..caches() }, seconds, exchanges, connect(&server));
    let ctx = shared.machine();
    admit(&ctx, Empty::default());
    if !names_node {
        reach(&ctx.clusters, &ClusterRef::cluster_api("lab", "c1")).await;
    }
    // The clock of the API server is an hour behind.
    let mut leaving =
        owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1"}, "deletionTimestamp": "2025-12-31T23:00:00Z"}));
    leaving["spec"]["providerID"] = id;
    pass(&ctx, leaving).await;
    let asked = server.lock().asked.iter().filter(|line| line.contains("nodes")).cloned().collect();
    (asked, script.seen().last().unwrap().body.clone())
}

/// Core searches once for a Node that it does not know, and leaves the Node if its connection to the workload cluster is down at that time.
#[tokio::test]
async fn a_node_that_its_machine_does_not_name_goes_with_the_vm() {
    let (get, delete) = ("GET /api/v1/nodes/win-1", "DELETE /api/v1/nodes/win-1");
    let (asked, written) = end_of_vm(json!({}), 1, None).await;
    assert_eq!((asked, &written["metadata"]["finalizers"]), (vec![get.to_owned(), delete.to_owned()], &json!([])));
    let (asked, written) = end_of_vm(json!({}), 200, None).await;
    assert_eq!((asked.len(), &written["metadata"]["finalizers"]), (2, &json!([])), "it is not left because CAPW has only just started");
    let (asked, written) = end_of_vm(json!({"status": {"nodeRef": {"name": "win-1"}}}), 1, None).await;
    assert_eq!((asked, &written["metadata"]["finalizers"]), (vec![], &json!([])), "core deletes it");
    let (asked, written) = end_of_vm(json!({}), 1, Some(delete)).await;
    assert_eq!(asked, [get, delete]);
    assert!(written["status"]["conditions"].to_string().contains("the Node must go first, and cannot"), "{written:#}");
    let (_, written) = end_of_vm(json!({}), 200, Some(delete)).await;
    assert_eq!(written["metadata"]["finalizers"], json!([]), "the Node is left in the end");
}
