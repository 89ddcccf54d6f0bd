//! Determines the owner of the objects that CAPW installs, and the objects that must be applied.

use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::place::{ObjectRef, below};
use super::workloads::OURS;

/// Annotation: `namespace/name` of the WindowsCluster for which an object was applied.
pub const OWNER: &str = "infrastructure.cluster.x-k8s.io/windows-cluster";

/// The reason why CAPW does not touch an object.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Taken {
    #[error("{0} is there already, and without the label {key}: {us} it is not CAPW's: remove or rename it, if nothing needs it", key = OURS.0, us = OURS.1)]
    Foreign(ObjectRef),
    #[error("{object} is for WindowsCluster {owner}: set spec.components of one of the two to another mode")]
    Owned { object: ObjectRef, owner: String },
}

/// The labels of every installed object.
pub fn labels(name: &str) -> Map<String, Value> {
    let (managed_by, us) = OURS;
    [(managed_by, us), ("app.kubernetes.io/name", name), ("app.kubernetes.io/part-of", "capw")]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect()
}

/// A digest of 16 digits that identifies an object's input.
pub fn digest(of: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(of)).chars().take(16).collect()
}

/// Adds the annotation of their owner to the objects.
pub fn owned(mut objects: Vec<Value>, owner: &str) -> Vec<Value> {
    for metadata in objects.iter_mut().filter_map(|object| object.get_mut("metadata")) {
        json_patch::merge(metadata, &json!({"annotations": {OWNER: owner}}));
    }
    objects
}

/// Returns the objects that are missing or differ from the desired state. `live` contains the existing objects.
pub fn outdated<'a>(desired: &'a [Value], live: &[Value], owner: &str) -> Result<Vec<&'a Value>, Taken> {
    let mut outdated = Vec::new();
    for desired in desired {
        let live = ObjectRef::of(desired).find(live);
        if let Some(live) = live {
            taken(live, owner)?;
        }
        if live.is_none_or(|live| difference(live, desired).is_some()) {
            outdated.push(desired);
        }
    }
    Ok(outdated)
}

/// Whether CAPW may change and remove an object for this owner. A person applied an object without an owner, from CAPW's printed output.
pub fn taken(live: &Value, owner: &str) -> Result<(), Taken> {
    let text = |of: &str, key: &str| live.get("metadata").and_then(|metadata| metadata.get(of)?.get(key)?.as_str());
    let (key, us) = OURS;
    if text("labels", key) != Some(us) {
        return Err(Taken::Foreign(ObjectRef::of(live)));
    }
    match text("annotations", OWNER) {
        Some(other) if other != owner => Err(Taken::Owned { object: ObjectRef::of(live), owner: other.to_owned() }),
        _ => Ok(()),
    }
}

/// Lists whose entries the API server merges by name: entries of other writers remain, and are no difference.
const BY_NAME: [&str; 5] = ["containers", "initContainers", "volumes", "env", "imagePullSecrets"];

/// The place where an object differs from the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub field: String,
    /// Whether the object lacks the field.
    pub is_missing: bool,
}

/// Returns the first field in which an object differs from the desired state. The API server and others may add fields. Lists must match as a whole,
/// except for the lists in `BY_NAME`.
pub fn difference(live: &Value, desired: &Value) -> Option<Difference> {
    difference_below("", live, desired)
}

fn difference_below(field: &str, live: &Value, desired: &Value) -> Option<Difference> {
    let changed = || Some(Difference { field: field.to_owned(), is_missing: false });
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().find_map(|(key, desired)| {
            let field = below(field, key);
            match live.get(key) {
                Some(live) if BY_NAME.contains(&key.as_str()) => difference_by_name(&field, live, desired),
                Some(live) => difference_below(&field, live, desired),
                None => Some(Difference { field, is_missing: true }),
            }
        }),
        (Value::Array(live), Value::Array(desired)) if live.len() == desired.len() => {
            let mut pairs = live.iter().zip(desired).enumerate();
            pairs.find_map(|(at, (live, desired))| difference_below(&item(field, at), live, desired))
        }
        _ if live == desired => None,
        _ => changed(),
    }
}

fn difference_by_name(field: &str, live: &Value, desired: &Value) -> Option<Difference> {
    let (live, desired) = (live.as_array().into_iter().flatten(), desired.as_array().into_iter().flatten());
    desired.enumerate().find_map(|(at, desired)| {
        let field = item(field, at);
        match live.clone().find(|live| live.get("name") == desired.get("name")) {
            Some(live) => difference_below(&field, live, desired),
            None => Some(Difference { field, is_missing: true }),
        }
    })
}

fn item(field: &str, at: usize) -> String {
    below(field, &format!("[{at}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(labels: &Value, annotations: &Value, data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", "labels": labels, "annotations": annotations}, "data": data})
    }

    #[test]
    fn what_differs_is_named_by_its_field() {
        let containers = json!([{"name": "injected"}, {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y"}]}]);
        let live = json!({"metadata": {"annotations": {"a.example.com/b": "1"}}, "spec": {"list": [{"a": 1, "b": 2}], "default": true},
            "template": {"containers": containers, "imagePullSecrets": [{"name": "other"}, {"name": "a"}]}});
        for (desired, expected) in [
            (json!({"spec": {"list": [{"a": 1}]}}), None),
            (json!({"spec": {"list": [{"a": 2}]}}), Some(("spec.list[0].a", false))),
            (json!({"spec": {"list": []}}), Some(("spec.list", false))),
            (json!({"spec": {"other": {"a": 1}}}), Some(("spec.other", true))),
            (json!({"metadata": {"annotations": {"a.example.com/b": "2"}}}), Some(("metadata.annotations[a.example.com/b]", false))),
            (json!({"template": {"containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}]}}), None),
            (json!({"template": {"containers": [{"name": "a", "image": "a:2"}]}}), Some(("template.containers[0].image", false))),
            (json!({"template": {"containers": [{"name": "a"}, {"name": "b"}]}}), Some(("template.containers[1]", true))),
            (json!({"template": {"imagePullSecrets": [{"name": "a"}]}}), None),
            (json!({"template": {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]}}), Some(("template.imagePullSecrets[1]", true))),
            (
                json!({"template": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]}}),
                Some(("template.containers[0].env[0].value", false)),
            ),
        ] {
            let expected = expected.map(|(field, is_missing)| Difference { field: field.to_owned(), is_missing });
            assert_eq!(difference(&live, &desired), expected, "{desired}");
        }
    }

    #[test]
    fn what_is_right_is_left_and_what_is_not_ours_is_not_touched() {
        let (ours, mine) = (json!({"app.kubernetes.io/managed-by": "capw"}), json!({OWNER: "lab/c1"}));
        let desired = owned(vec![object(&ours, &json!(null), &json!({"list": [{"a": 1}, "b"], "imagePullSecrets": [{"name": "a"}]}))], "lab/c1");
        let more = json!({"list": [{"a": 1, "default": true}, "b"], "other": 1, "imagePullSecrets": [{"name": "a"}]});
        let with = |change: Value| {
            let mut data = more.clone();
            json_patch::merge(&mut data, &change);
            Some(object(&ours, &mine, &data))
        };
        for (live, expected) in [
            (None, Ok(1)),
            (Some(object(&ours, &mine, &more)), Ok(0)),
            (Some(object(&ours, &json!({}), &more)), Ok(1)),
            (with(json!({"list": [{"a": 2}, "b"]})), Ok(1)),
            (with(json!({"list": [{"a": 1}, "b", "c"]})), Ok(1)),
            (with(json!({"imagePullSecrets": [{"name": "of-others"}, {"name": "a"}]})), Ok(0)),
            (with(json!({"imagePullSecrets": [{"name": "of-others"}]})), Ok(1)),
            (with(json!({"imagePullSecrets": null})), Ok(1)),
            (Some(object(&ours, &mine, &json!({}))), Ok(1)),
            (Some(object(&json!({}), &json!({}), &more)), Err("ConfigMap n/a is there already")),
            (Some(object(&ours, &json!({OWNER: "lab/c2"}), &more)), Err("WindowsCluster lab/c2")),
        ] {
            let found = outdated(&desired, live.as_slice(), "lab/c1").map(|objects| objects.len());
            match expected {
                Ok(expected) => assert_eq!(found, Ok(expected), "{live:?}"),
                Err(part) => assert!(found.clone().unwrap_err().to_string().contains(part), "{found:?}"),
            }
        }
    }
}
