//! YAML with several documents: reading, selecting, and applying a few well-known kinds without kubectl.
//! It must not change what it applies, except where a caller requests it.

use std::time::Duration;

use capw_patience::wait_for;
use futures::future::join_all;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use serde_json::Value;

use super::client::{condition, write};
use super::tools::checkout;

/// The documents of a YAML text, empty ones left out.
pub fn documents(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap_or_else(|e| panic!("not YAML: {e}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// CAPW's Deployment, as users install it.
pub fn deployment() -> Value {
    let path = checkout().join("config/manager/deployment.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).expect("CAPW's Deployment")).expect("YAML")
}

/// Applies objects whose plural is the lower-case kind with an s: first namespaces and definitions, then the others,
/// each group concurrently. A definition counts as applied when it is served.
pub(super) async fn apply_all(client: &Client, objects: Vec<Value>) {
    let first = |object: &Value| matches!(object["kind"].as_str(), Some("Namespace" | "CustomResourceDefinition"));
    let (before, after): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(first);
    for lot in [before, after] {
        join_all(lot.into_iter().map(|object| apply_one(client, object))).await;
    }
}

/// Waits until the API server serves a definition that was just applied.
async fn established(api: &Api<DynamicObject>, name: &str) {
    wait_for(&format!("the definition {name} is established"), Duration::from_secs(30), || async {
        let definition = api.get(name).await.map_err(|e| e.to_string())?;
        match condition(&definition.data, "Established") {
            Some(found) if found["status"] == "True" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Applies objects one after the other as `kubectl apply --server-side --force-conflicts` does. The error names the object.
pub(super) async fn apply_as_kubectl(client: &Client, objects: &[Value]) -> Result<(), String> {
    let how = PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("kubectl").force() };
    for object in objects {
        let Target { kind, name, api } = target(client, object, Some("default"));
        let patch = Patch::Apply(object);
        write(&format!("apply {kind} {name}"), || api.patch(&name, &how, &patch)).await.map_err(|error| format!("{kind} {name}: {error}"))?;
        if kind == "CustomResourceDefinition" {
            established(&api, &name).await;
        }
    }
    Ok(())
}

/// Kinds that have no namespace.
const WITHOUT_NAMESPACE: [&str; 13] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FelixConfiguration",
    "IPAMConfiguration",
    "IPPool",
    "Installation",
    "Namespace",
    "Node",
    "PriorityClass",
    "RuntimeClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// The API of an object.
struct Target {
    kind: String,
    name: String,
    api: Api<DynamicObject>,
}

/// The target of an object; `namespace` is the default for objects that name none.
fn target(client: &Client, object: &Value, namespace: Option<&str>) -> Target {
    let types: TypeMeta = serde_json::from_value(object.clone()).expect("an object has apiVersion and kind");
    let kind = GroupVersionKind::try_from(&types).expect("apiVersion is GROUP/VERSION");
    let resource = ApiResource::from_gvk(&kind);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).expect("an object has a name").to_owned();
    let namespace = namespace.filter(|_| !WITHOUT_NAMESPACE.contains(&types.kind.as_str()));
    let api = match object.pointer("/metadata/namespace").and_then(Value::as_str).or(namespace) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Target { kind: types.kind, name, api }
}

async fn apply_one(client: &Client, object: Value) {
    let Target { kind, name, api } = target(client, &object, None);
    let (how, merge) = (PatchParams::apply("world").force(), PatchParams::default());
    let (apply, merged) = (Patch::Apply(&object), Patch::Merge(&object));
    let mut done = write(&format!("apply {kind} {name}"), || api.patch(&name, &how, &apply)).await;
    // Applying cannot remove a field of another owner, e.g. the Service of a webhook; merging a null can.
    if matches!(&done, Err(kube::Error::Api(status)) if status.code == 422) {
        // 404: the object does not exist yet, so it was refused for its content.
        match write(&format!("merge {kind} {name}"), || api.patch(&name, &merge, &merged)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            merged => done = merged,
        }
    }
    if let Err(error) = done {
        panic!("{kind} {name}: {error}");
    }
    if kind == "CustomResourceDefinition" {
        established(&api, &name).await;
    }
}
