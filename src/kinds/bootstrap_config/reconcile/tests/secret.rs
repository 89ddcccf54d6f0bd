use serde_json::{Value, json};

use crate::kinds::bootstrap_config::reconcile::tests::*;

#[tokio::test]
async fn the_configuration_of_a_machine_pool_gets_a_secret_that_joins_no_machine() {
    let object = config(json!({}), "MachinePool");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab"}});
    let (ctx, script) = stage(vec![step("POST /api/v1/namespaces/lab/secrets", secret), step(STATUS, object.clone())]);
    pass(&ctx, object).await;
    let data = script.seen()[0].body["data"].clone();
    assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["channel", "format", "value"], "no token");
    assert_eq!(script.seen()[1].body["status"]["dataSecretName"], "win-1");
}

/// A bootstrap Secret with these owner references.
fn secret(owners: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "s", "resourceVersion": "8", "ownerReferences": owners},
        "data": {"value": "", crate::api::bootstrap_config::CHANNEL_KEY: ""}})
}

/// Owner references of a Secret after they were removed, and after a restore, with the UID from before.
fn lost() -> [Value; 2] {
    let before = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig", "name": "win-1", "uid": "before"});
    [json!([]), json!([before])]
}

#[tokio::test]
async fn the_secret_gets_its_owner_back_when_the_object_does() {
    let made = |owned: bool| {
        let mut object = config(json!({"finalizers": [FINALIZER]}), "Machine");
        object["status"] = json!({"dataSecretName": "win-1", "conditions": []});
        if !owned {
            object["metadata"]["ownerReferences"] = json!([]);
        }
        object
    };
    for owners in lost() {
        let (ctx, script) = stage(vec![step(&format!("GET {SECRET}"), secret(owners.clone())), step(&format!("PUT {SECRET}"), secret(owners))]);
        for owned in [false, true, true] {
            pass(&ctx, made(owned)).await;
        }
        let metadata = &script.seen()[1].body["metadata"];
        assert_eq!((&metadata["ownerReferences"][0]["uid"], &metadata["uid"]), (&json!("c"), &json!("s")));
        assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), 1);
    }
}

/// While no process was running, the owner references of the configuration and of the Secret were removed, and only the references of the
/// configuration came back.
#[tokio::test]
async fn a_secret_that_lost_its_owner_while_capw_was_down_goes_with_its_configuration() {
    let mut leaving = config(json!({"finalizers": [FINALIZER], "labels": null, "deletionTimestamp": "2026-01-01T00:00:00Z"}), "Machine");
    leaving["status"] = json!({"dataSecretName": "win-1", "conditions": []});
    let (get, put) = (format!("GET {SECRET}"), format!("PUT {SECRET}"));
    for owners in lost() {
        let (ctx, script) = stage(vec![step(&get, secret(owners.clone())), step(&put, secret(owners)), step(OBJECT, leaving.clone())]);
        pass(&ctx, leaving.clone()).await;
        assert_eq!(script.seen()[1].body["metadata"]["ownerReferences"][0]["uid"], "c", "the garbage collector removes it");
        assert_eq!(script.seen()[2].body["metadata"]["finalizers"], json!([]));
    }
    let another = secret(json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}]));
    let (ctx, script) = stage(vec![step(&get, another), step(OBJECT, leaving.clone())]);
    pass(&ctx, leaving.clone()).await;
    assert_eq!(script.seen().len(), 2, "it belongs to another object");
    let (ctx, script) = stage(vec![step(OBJECT, leaving.clone())]);
    ctx.secret_owners.keep("c".into(), SecretOwner::Named);
    pass(&ctx, leaving).await;
    assert_eq!(script.seen().len(), 1, "this process knows its owner");
}

#[tokio::test]
async fn the_secret_of_a_machine_pool_gets_its_owner_back() {
    const SECRETS: &str = "/api/v1/namespaces/lab/secrets";
    let object = config(json!({}), "MachinePool");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab"}});
    let (ctx, script) = stage(vec![step(&format!("POST {SECRETS}"), secret), step(STATUS, object.clone())]);
    pass(&ctx, object.clone()).await;
    for owners in lost() {
        let mut made = script.seen()[0].body.clone();
        made["metadata"]["ownerReferences"] = owners;
        made["metadata"]["resourceVersion"] = json!("8");
        let (ctx, script) = stage(vec![
            refuse(&format!("POST {SECRETS}"), 409, "AlreadyExists"),
            step(&format!("GET {SECRETS}/win-1"), made.clone()),
            step(&format!("PUT {SECRETS}/win-1"), made),
            step(STATUS, object.clone()),
        ]);
        pass(&ctx, object.clone()).await;
        let owners = &script.seen()[2].body["metadata"]["ownerReferences"];
        assert_eq!((&owners[0]["uid"], owners.as_array().unwrap().len()), (&json!("c"), 1));
        assert_eq!(script.seen()[3].body["status"]["dataSecretName"], "win-1");
    }
}

/// The removal of that Secret triggers no pass.
#[tokio::test]
async fn a_secret_in_the_way_of_a_machine_pool_is_looked_at_again() {
    const SECRETS: &str = "/api/v1/namespaces/lab/secrets";
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab", "uid": "s"}, "type": "Opaque"});
    let object = config(json!({}), "MachinePool");
    let (ctx, script) = stage(vec![
        refuse(&format!("POST {SECRETS}"), 409, "AlreadyExists"),
        step(&format!("GET {SECRETS}/win-1"), foreign),
        step(STATUS, object.clone()),
        step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({})),
    ]);
    assert_eq!(pass(&ctx, object).await, Outcome::requeue_after(std::time::Duration::from_secs(10)));
    let conditions = &script.seen()[2].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Ready" && c["reason"] == "SecretConflict"), "{conditions}");
}
