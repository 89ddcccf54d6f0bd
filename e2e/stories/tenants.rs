//! Story *tenants*: CAPW with rights in one namespace only, and a kubeconfig in that namespace that suddenly leads to another cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
const SAMPLE: &str = include_str!("../../config/samples/standalone.yaml");
const POOL: &str = "tenant/windows";
const CLUSTER_ROLE_BINDING: Kind = Kind::new("rbac.authorization.k8s.io/v1", "clusterrolebindings");

#[test]
fn a_tenant_needs_no_right_outside_of_its_namespace() {
    world::run(async {
        let (cp, other) = (ControlPlane::start(Options::plain().named("tenants")).await, ControlPlane::start(Options::plain().named("theirs")).await);
        cp.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: tenant}\n").await;
        cp.kubectl(&["apply", "-k", "config/namespaced"]).await;
        cp.kubectl(&["apply", "-k", "config/tenant"]).await;
        let bindings = cp.list(CLUSTER_ROLE_BINDING, None).await;
        let ours: Vec<&str> = bindings.iter().map(|binding| text(binding, "/metadata/name")).filter(|name| name.starts_with("capw")).collect();
        assert_eq!(ours, ["capw-system-auth-delegator"], "rights in all namespaces");
        let mark = cp.audit_mark();
        let capw = Capw::prepare(&cp, &["--namespaces=tenant"]).await;
        capw.start_again().await;

        give(&cp, &workers::remote_kubeconfig(&other).await).await;
        // CAPW ignores a pool in another namespace.
        for (namespace, cluster) in [("tenant", "cluster: {kubeconfigSecretRef: {name: theirs}}"), ("default", "cluster: {}")] {
            let objects = SAMPLE.replace("cluster: {}", cluster).replace("replicas: 2", "replicas: 1");
            cp.apply(&objects.replace("  name: ", &format!("  namespace: {namespace}\n  name: "))).await;
        }
        let available = |pool: &Value| (pool.pointer("/status/availableReplicas") == Some(&json!(1))).then_some(());
        cp.wait_object(Kind::WINDOWS_NODE_POOL, POOL, "its machine is available", LIMIT, available).await;
        let machine = the_machine(&cp).await;
        step("one Node is Ready, with rights in one namespace");

        give(&cp, &workers::remote_kubeconfig(&cp).await).await;
        let refused =
            |pool: &Value| condition(pool, "Ready").filter(|ready| ready["reason"] == "ClusterReplaced").map(|ready| ready["message"].clone());
        // The new process knows only the stored state.
        capw.restart().await;
        let message = cp.wait_object(Kind::WINDOWS_NODE_POOL, POOL, "it refuses another cluster", LIMIT, refused).await;
        assert!(message.to_string().contains("kube-system"), "{message}");
        assert_eq!(the_machine(&cp).await, machine, "the machine was taken for lost");
        give(&cp, &workers::remote_kubeconfig(&other).await).await;
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, POOL, "Ready", "True", LIMIT).await;
        assert_eq!(the_machine(&cp).await, machine);
        step("another cluster behind the same Secret was refused, and the first one is taken again");

        cp.delete(Kind::WINDOWS_NODE_POOL, POOL).await;
        cp.wait_gone(Kind::WINDOWS_NODE_POOL, POOL, LIMIT).await;
        workers::wait_nothing_left(&other, &capw, LIMIT).await;
        let untouched = cp.get(Kind::WINDOWS_NODE_POOL, "default/windows").await.expect("the pool elsewhere");
        assert!(untouched.get("status").is_none() && untouched["metadata"].get("finalizers").is_none(), "{untouched:#}");
        let events = cp.audit_since(mark);
        let refused: Vec<&str> = events.iter().filter(|e| e.user == Capw::USER && e.code == 403).map(|e| e.uri.as_str()).collect();
        assert!(refused.is_empty(), "CAPW was refused: {refused:#?}");
    });
}

async fn the_machine(cp: &ControlPlane) -> String {
    wait_for("there is one machine", LIMIT, || async {
        let machines = cp.list(Kind::WINDOWS_MACHINE, Some("tenant")).await;
        match machines.as_slice() {
            [one] => Ok(text(one, "/metadata/name").to_owned()),
            more => Err(format!("{} machines", more.len())),
        }
    })
    .await
}

async fn give(cp: &ControlPlane, kubeconfig: &str) {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": "tenant"}, "stringData": {"value": kubeconfig}});
    cp.apply_objects(&[secret]).await;
}
