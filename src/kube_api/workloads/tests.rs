use serde_json::json;

use crate::kube_api::error::ApiError;
use crate::kube_api::mock::{Exchange, Script, refuse, step};
use crate::kube_api::workload::tests::{base64, good};
use crate::kube_api::workloads::*;

const SECRET: &str = "GET /api/v1/namespaces/lab/secrets/c1-kubeconfig";

fn secret(kubeconfig: &str) -> Exchange {
    step(SECRET, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": { "value": base64(kubeconfig) } }))
}

#[tokio::test(start_paused = true)]
async fn a_client_is_kept_while_the_secret_does_not_change() {
    let (first, second) = (good("one"), good("two"));
    let (client, _script) = Script::new(vec![secret(&first), secret(&first), secret(&second), secret(&second)]);
    let workloads = Workloads::new(Cluster::new(client));
    let one = workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.unwrap();
    assert!(Arc::ptr_eq(&one, &workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.unwrap()), "no second read");
    tokio::time::advance(RECHECK).await;
    assert!(Arc::ptr_eq(&one, &workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.unwrap()), "read again, the same");
    tokio::time::advance(RECHECK).await;
    let two = workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.unwrap();
    assert_ne!(one.fingerprint, two.fingerprint);
    workloads.note_error(&ClusterRef::cluster_api("lab", "c1"), &WorkloadError::Unauthorized { endpoint: String::new() }).await;
    assert!(Arc::ptr_eq(&two, &workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.unwrap()), "read at once after a refusal");
}

/// Secrets with one kubeconfig lead to one API server: while it is known not to answer, no requests are sent for any of them.
#[tokio::test(start_paused = true)]
async fn secrets_with_the_same_kubeconfig_share_a_gate_until_nothing_uses_it() {
    let (same, other) = (good("one"), good("two"));
    let of = |namespace: &str, kubeconfig: &str| {
        let path = format!("GET /api/v1/namespaces/{namespace}/secrets/c1-kubeconfig");
        step(&path, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": { "value": base64(kubeconfig) } }))
    };
    let steps = vec![of("a", &same), of("b", &same), of("c", &other), of("d", &same)];
    let (client, _script) = Script::new(steps);
    let workloads = Workloads::new(Cluster::new(client));
    let get = async |namespace: &str| workloads.get(&ClusterRef::cluster_api(namespace, "c1")).await;
    let is_sent = async |workload: &Workload| workload.gate.pass(async { Ok(()) }).await.is_ok();

    let one = get("a").await.unwrap();
    for _ in 0..20 {
        one.gate.pass(async { Err::<(), _>(ApiError::Unreachable("connection refused".into())) }).await.unwrap_err();
    }
    assert!(!is_sent(&one).await && !is_sent(&*get("b").await.unwrap()).await);
    assert!(is_sent(&*get("c").await.unwrap()).await, "other credentials: another tenant may own them");
    drop(one);
    for namespace in ["a", "b"] {
        workloads.forget(&ClusterRef::cluster_api(namespace, "c1")).await;
    }
    assert!(is_sent(&*get("d").await.unwrap()).await);
}

#[tokio::test]
async fn a_missing_secret_or_key_is_named() {
    let empty = step(SECRET, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {} }));
    let (client, _script) = Script::new(vec![refuse(SECRET, 404, "NotFound"), empty, refuse(SECRET, 503, "ServiceUnavailable")]);
    let workloads = Workloads::new(Cluster::new(client));
    for _ in 0..2 {
        let error = workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.err().unwrap();
        assert_eq!(error, WorkloadError::KubeconfigMissing { secret: "lab/c1-kubeconfig".into(), key: "value".into() });
    }
    assert!(matches!(workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.err().unwrap(), WorkloadError::Management(ApiError::Unreachable(_))));
}

#[tokio::test]
async fn the_own_cluster_is_for_the_namespaces_that_are_named() {
    let info = "GET /api/v1/namespaces/kube-public/configmaps/cluster-info";
    let (client, script) = Script::new(vec![refuse(info, 403, "Forbidden")]);
    let workloads = Workloads::connected(Cluster::new(client), Arc::new(Client::try_from), Namespaces::one("trusted"));
    let own = |namespace: &str| ClusterRef { namespace: namespace.into(), source: ClusterSource::InCluster };
    let error = workloads.get(&own("lab")).await.err().unwrap();
    assert_eq!(error, WorkloadError::OwnClusterRefused { namespace: "lab".into() });
    assert!(error.to_string().contains("--own-cluster-namespaces=lab") && script.seen().is_empty(), "refused without a request: {error}");
    assert!(matches!(workloads.get(&own("trusted")).await, Err(WorkloadError::Forbidden { .. })), "asked for, as it may");
}

/// Each cluster has a share of its own, and no cluster takes more than what the others have left.
#[tokio::test]
async fn clusters_that_are_kept_or_opened_and_the_own_one_share_what_watches_may_show() {
    const SHARE: usize = 96 << 20;
    let own = "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {server: 'https://10.0.0.2:6443', certificate-authority-data: Q0E=}\n";
    let info = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": { "kubeconfig": own } });
    let (client, _script) = Script::new(vec![secret(&good("one")), step("GET /api/v1/namespaces/kube-public/configmaps/cluster-info", info)]);
    let workloads = Workloads::new(Cluster::new(client));
    let own = ClusterRef { namespace: "lab".into(), source: ClusterSource::InCluster };
    let clusters = [
        workloads.get(&ClusterRef::cluster_api("lab", "c1")).await.unwrap(),
        workloads.get(&own).await.unwrap(),
        Arc::new(workloads.open("a file", good("two").as_bytes()).await.unwrap()),
    ];
    for (nth, cluster) in clusters.iter().enumerate() {
        let others = clusters.iter().enumerate().filter(|(other, _)| *other != nth);
        let shown: Vec<_> = others.map(|(_, other)| other.keeping.take(SHARE).unwrap()).collect();
        let crowded = cluster.keeping.take(1).map(drop).unwrap_err().to_string();
        assert!(crowded.starts_with("what watches of all workload clusters show"), "{nth}: {crowded}");
        drop(shown);
        cluster.keeping.take(SHARE).unwrap();
        assert!(cluster.keeping.take(SHARE + 1).is_err(), "{nth}: its own share");
    }
}
