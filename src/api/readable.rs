//! Tests that the Rust type of a kind can read whatever its schema admits: otherwise the object would be invisible to its controller.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use super::kinds::{KINDS, OwnKind, custom_resource_definitions};

/// Builds a value with every field that the schema names, and collects the paths of the fields that may be null or left out.
struct Sample {
    nullable: Vec<String>,
    optional: Vec<String>,
}

impl Sample {
    fn value(&mut self, schema: &Value, path: &str) -> Value {
        if schema["nullable"] == json!(true) {
            self.nullable.push(path.to_owned());
        }
        if schema["x-kubernetes-int-or-string"] == json!(true) {
            return json!(1);
        }
        if let Some(first) = schema["enum"].as_array().and_then(|all| all.iter().find(|one| !one.is_null())) {
            return first.clone();
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema, path),
            Some("array") => json!([self.value(&schema["items"], &format!("{path}/0"))]),
            Some("integer") => json!(schema["minimum"].as_f64().unwrap_or(1.0) as i64),
            Some("boolean") => json!(true),
            Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            Some("string") => json!("x"),
            other => panic!("{path}: a schema of type {other:?}"),
        }
    }

    fn object(&mut self, schema: &Value, path: &str) -> Value {
        if schema["additionalProperties"].is_object() {
            return json!({"x": self.value(&schema["additionalProperties"], &format!("{path}/x"))});
        }
        let required = |name: &String| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let mut object = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}/{name}");
            if !required(name) {
                self.optional.push(path.clone());
            }
            object.insert(name.clone(), self.value(field, &path));
        }
        object.into()
    }
}

fn is_readable(kind: &OwnKind, value: &Value, what: &str) {
    if let Err(error) = (kind.round_trip)(value) {
        panic!("{what}: {error}");
    }
}

/// Checks a kind, and returns the number of objects that were read.
fn check(kind: &OwnKind, crd: &CustomResourceDefinition) -> usize {
    let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
    let mut sample = Sample { nullable: vec![], optional: vec![] };
    let mut all = json!({"apiVersion": format!("{}/v1alpha1", crd.spec.group), "kind": crd.spec.names.kind, "metadata": {"name": "x"}});
    for part in ["spec", "status"] {
        if schema["properties"][part].is_object() {
            all[part] = sample.value(&schema["properties"][part], &format!("/{part}"));
        }
    }
    is_readable(kind, &all, &crd.spec.names.kind);
    for path in &sample.nullable {
        let mut one = all.clone();
        *one.pointer_mut(path).unwrap() = Value::Null;
        is_readable(kind, &one, &format!("{} with null in {path}", crd.spec.names.kind));
    }
    for path in &sample.optional {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let mut one = all.clone();
        one.pointer_mut(parent).and_then(Value::as_object_mut).unwrap().remove(name);
        is_readable(kind, &one, &format!("{} without {path}", crd.spec.names.kind));
    }
    1 + sample.nullable.len() + sample.optional.len()
}

#[test]
fn what_a_schema_admits_can_be_read() {
    let crds = custom_resource_definitions();
    assert_eq!(KINDS.len(), crds.len(), "one definition for each kind");
    let read: Vec<usize> = KINDS.iter().zip(&crds).map(|(kind, crd)| check(kind, crd)).collect();
    assert!(read.iter().sum::<usize>() > 500, "{read:?}");
}
