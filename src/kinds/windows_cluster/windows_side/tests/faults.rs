//! Any request fails once, in any way: later passes end as if it had not failed, and nothing is created twice.

use super::probes::{BACK, PROBE, probe_pod};
use crate::kinds::windows_cluster::windows_side::tests::*;

#[tokio::test(start_paused = true)]
async fn whatever_request_fails_the_end_is_the_same() {
    let object = with_validation("Warn");
    let undisturbed = with_classes(None, None);
    brought(&undisturbed, RECORDING, &object).await.unwrap();
    let expected = undisturbed.lock().objects.clone();
    let bringing = std::mem::take(&mut undisturbed.lock().asked);
    take_away(&workload(&undisturbed), &object).await.unwrap();
    let removing = undisturbed.lock().asked.clone();
    for (nth, fault) in Fault::of(&bringing) {
        let (line, server) = (&bringing[nth], with_classes(Some((nth, fault)), None));
        assert!(brought(&server, RECORDING, &object).await.is_err(), "{line}");
        brought(&server, RECORDING, &object).await.unwrap();
        assert_eq!(server.lock().objects, expected, "{line}, {fault:?}");
        assert_eq!(brought(&server, RECORDING, &object).await.unwrap().condition.reason, Reason::PartsReady);
    }
    for (nth, fault) in Fault::of(&removing) {
        let line = &removing[nth];
        let server = Arc::new(Mutex::new(Server { objects: expected.clone(), failing: Some((nth, fault)), ..Server::default() }));
        assert!(take_away(&workload(&server), &object).await.is_err(), "{line}");
        take_away(&workload(&server), &object).await.unwrap();
        let left = server.lock().objects.keys().filter(|path| !path.contains("/namespaces/capw-windows/")).count();
        assert_eq!(left, 0, "{line}, {fault:?}");
    }
}

/// More passes than a node needs, including a failed one.
const MANY: usize = 12;

/// Runs passes until the node has no taint and no probe objects are left, with kubelets whose pods reach everything. Returns how many passes failed.
async fn verified(server: &Arc<Mutex<Server>>, object: &WindowsCluster) -> usize {
    let mut failed = 0;
    for _ in 0..MANY {
        failed += usize::from(brought(server, RECORDING, object).await.is_err());
        let there: Vec<Value> =
            [PROBE, BACK].into_iter().filter(|path| server.lock().objects.contains_key(*path)).map(|path| probe_pod(server, path, 0)).collect();
        let mut server = server.lock();
        let is_probe = |object: &Value| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("probe-"));
        server.others.retain(|object| !is_probe(object));
        let is_over = there.is_empty() && server.others[0]["spec"]["taints"] == json!([]);
        server.others.extend(there);
        if is_over {
            return failed;
        }
    }
    panic!("after {MANY} passes: {:#?}", server.lock().asked)
}

#[tokio::test(start_paused = true)]
async fn whatever_request_fails_a_node_is_verified() {
    let new = |failing| {
        let others = std::iter::once(tainted_node()).chain(["flannel", "kube-proxy"].map(ready_pod)).collect();
        Arc::new(Mutex::new(Server { others, failing, ..Server::default() }))
    };
    let (object, undisturbed) = (windows_cluster("c1", true), new(None));
    assert_eq!(verified(&undisturbed, &object).await, 0);
    let expected = undisturbed.lock().objects.clone();
    let asked = undisturbed.lock().asked.clone();
    assert!(asked.iter().any(|line| line == TAINT_GOES) && asked.iter().any(|line| line.starts_with("DELETE")), "{asked:#?}");
    for (nth, fault) in Fault::of(&asked).into_iter().filter(|(nth, _)| asked[*nth].contains("win-1")) {
        let (line, server) = (&asked[nth], new(Some((nth, fault))));
        assert_eq!(verified(&server, &object).await, 1, "{line}, {fault:?}");
        assert_eq!(server.lock().objects, expected, "{line}, {fault:?}");
    }
}

/// The node is in a cluster to which nothing is brought any more.
#[tokio::test(start_paused = true)]
async fn whatever_request_fails_a_node_loses_its_taint() {
    let taken_away = async |server: &Arc<Mutex<Server>>| free_nodes(&workload(server)).await;
    let new = |failing| Arc::new(Mutex::new(Server { others: vec![tainted_node()], failing, ..Server::default() }));
    let undisturbed = new(None);
    taken_away(&undisturbed).await.unwrap();
    let asked = undisturbed.lock().asked.clone();
    assert_eq!(asked.last().map(String::as_str), Some(TAINT_GOES));
    for (nth, fault) in Fault::of(&asked) {
        let (line, server) = (&asked[nth], new(Some((nth, fault))));
        assert!(taken_away(&server).await.is_err(), "{line}, {fault:?}");
        taken_away(&server).await.unwrap();
        assert_eq!(server.lock().others[0]["spec"]["taints"], json!([]), "{line}, {fault:?}");
    }
}
