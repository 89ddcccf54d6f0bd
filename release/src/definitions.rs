//! Finds incompatible changes of the CRDs: they would break objects that an earlier release stored, or clients that were written for it.
//!
//! crdify compares fields, enums and limits; it does not read validation rules, printer columns, list types or the conversion strategy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Fields of a schema that only a new API version may change.
const FIXED: [&str; 10] = [
    "type",
    "format",
    "pattern",
    // The API server wrote the old default into objects: with a new default, a template would differ from its machines and replace them.
    "default",
    "nullable",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];
/// Limits that may only grow.
const UPPER: [&str; 4] = ["maximum", "maxLength", "maxItems", "maxProperties"];
const LOWER: [&str; 4] = ["minimum", "minLength", "minItems", "minProperties"];

/// Fails if a change is incompatible, and lists all such changes.
pub fn compare(from: &Path, to: &Path) -> Result<()> {
    let broken = broken(&read(from)?, &read(to)?);
    ensure!(broken.is_empty(), "a new API version is needed, or another way:\n{}", broken.join("\n"));
    Ok(())
}

/// Reads the definitions of a folder, by name.
fn read(folder: &Path) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let text = fs::read_to_string(&path)?;
            let value: Value = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
            if let Some(name) = text_at(&value, "/metadata/name") {
                found.insert(name.to_owned(), value);
            }
        }
    }
    ensure!(!found.is_empty(), "{}: no definitions", folder.display());
    Ok(found)
}

fn broken(from: &BTreeMap<String, Value>, to: &BTreeMap<String, Value>) -> Vec<String> {
    let mut said = Vec::new();
    for (name, old) in from {
        let Some(new) = to.get(name) else {
            said.push(format!("{name}: it is gone"));
            continue;
        };
        for field in ["/spec/scope", "/spec/names/kind", "/spec/names/plural", "/spec/conversion/strategy"] {
            // A missing conversion means `None`.
            if old.pointer(field) != new.pointer(field) && !(old.pointer(field).is_none() && text_at(new, field) == Some("None")) {
                said.push(format!("{name}: {field} changed"));
            }
        }
        for old in versions(old) {
            let version = text_at(old, "/name").unwrap_or_default();
            match versions(new).iter().find(|new| text_at(new, "/name") == Some(version)) {
                Some(new) => compare_versions(&format!("{name} {version}"), old, new, &mut said),
                None => said.push(format!("{name} {version}: it is gone")),
            }
        }
    }
    said
}

fn versions(definition: &Value) -> &[Value] {
    list(definition, "/spec/versions")
}

fn compare_versions(what: &str, old: &Value, new: &Value, said: &mut Vec<String>) {
    if old.get("served") == Some(&Value::Bool(true)) && new.get("served") != Some(&Value::Bool(true)) {
        said.push(format!("{what}: it is not served any more"));
    }
    let columns = |version| -> BTreeSet<&str> { list(version, "/additionalPrinterColumns").iter().filter_map(|c| text_at(c, "/name")).collect() };
    said.extend(columns(old).difference(&columns(new)).map(|column| format!("{what}: the column {column} is gone")));
    let subresources = |version: &Value| version.get("subresources").cloned();
    if subresources(old) != subresources(new) {
        said.push(format!("{what}: subresources changed"));
    }
    if let (Some(old), Some(new)) = (old.pointer("/schema/openAPIV3Schema"), new.pointer("/schema/openAPIV3Schema")) {
        compare_schemas(what, "", old, new, said);
    }
}

fn compare_schemas(what: &str, path: &str, old: &Value, new: &Value, said: &mut Vec<String>) {
    let mut say = |text: String| said.push(format!("{what} {}: {text}", if path.is_empty() { "." } else { path }));
    for field in FIXED {
        if old.get(field) != new.get(field) {
            say(format!("{field} changed from {} to {}", shown(old.get(field)), shown(new.get(field))));
        }
    }
    let number = |schema: &Value, field: &str| schema.get(field).and_then(Value::as_f64);
    for field in UPPER {
        if number(new, field).is_some_and(|new| number(old, field).is_none_or(|old| new < old)) {
            say(format!("{field} is lower: {} to {}", shown(old.get(field)), shown(new.get(field))));
        }
    }
    for field in LOWER {
        if number(new, field).is_some_and(|new| number(old, field).is_none_or(|old| new > old)) {
            say(format!("{field} is higher: {} to {}", shown(old.get(field)), shown(new.get(field))));
        }
    }
    let required = |schema| -> BTreeSet<&str> { list(schema, "/required").iter().filter_map(Value::as_str).collect() };
    required(new).difference(&required(old)).for_each(|field| say(format!("{field} is required")));
    if new.get("enum").is_some() {
        match old.get("enum") {
            None => say("only certain values are allowed".into()),
            Some(_) => list(old, "/enum").iter().filter(|v| !list(new, "/enum").contains(v)).for_each(|v| say(format!("{v} is not allowed"))),
        }
    }
    let rules = |schema| -> BTreeSet<&str> { list(schema, "/x-kubernetes-validations").iter().filter_map(|rule| text_at(rule, "/rule")).collect() };
    rules(new).difference(&rules(old)).for_each(|rule| say(format!("a rule is new: {rule}")));
    for composed in ["allOf", "anyOf", "oneOf", "not"] {
        if new.get(composed).is_some() && old.get(composed) != new.get(composed) {
            say(format!("{composed} changed"));
        }
    }
    for (field, old) in old.get("properties").and_then(Value::as_object).into_iter().flatten() {
        match new.get("properties").and_then(|new| new.get(field)) {
            Some(new) => compare_schemas(what, &format!("{path}.{field}"), old, new, said),
            None => said.push(format!("{what} {path}.{field}: it is gone")),
        }
    }
    for (field, shown) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let (Some(old), Some(new)) = (old.get(field), new.get(field)) {
            compare_schemas(what, &format!("{path}{shown}"), old, new, said);
        }
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MACHINES: &str = "windowsmachines.infrastructure.cluster.x-k8s.io";

    fn ours() -> BTreeMap<String, Value> {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds")).unwrap()
    }

    /// The messages about a change of our own definition of WindowsMachines.
    fn said(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let (old, mut new) = (ours(), ours());
        change(new.get_mut(MACHINES).unwrap());
        broken(&old, &new)
    }

    fn spec(definition: &mut Value) -> &mut Value {
        definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap()
    }

    #[test]
    fn the_same_definitions_break_nothing() {
        assert!(broken(&ours(), &ours()).is_empty());
        assert!(ours().len() >= 10);
    }

    #[test]
    fn an_optional_field_a_looser_limit_and_a_status_break_nothing() {
        let said = said(|definition| {
            spec(definition)["properties"]["more"] = json!({"type": "string"});
            spec(definition)["properties"]["cpus"]["maximum"] = json!(100_000);
            let status = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status").unwrap();
            status["properties"]["more"] = json!({"type": "string"});
            let second = definition["spec"]["versions"][0].clone();
            definition["spec"]["versions"].as_array_mut().unwrap().push(second);
            definition["spec"]["versions"][1]["name"] = json!("v1beta1");
        });
        assert!(said.is_empty(), "{said:?}");
    }

    type Change = fn(&mut Value);

    #[test]
    fn each_change_that_breaks_something_is_found() {
        let changes: [(&str, Change); 14] = [
            ("cpus: default changed", |d| spec(d)["properties"]["cpus"]["default"] = json!(2)),
            ("more is required", |d| spec(d)["required"].as_array_mut().unwrap().push(json!("more"))),
            (".spec.image: it is gone", |d| drop(spec(d)["properties"].as_object_mut().unwrap().remove("image"))),
            ("type changed", |d| spec(d)["properties"]["image"]["type"] = json!("integer")),
            ("pattern changed", |d| spec(d)["properties"]["image"]["pattern"] = json!("^a$")),
            ("maxLength is lower", |d| spec(d)["properties"]["image"]["maxLength"] = json!(1)),
            ("minimum is higher", |d| spec(d)["properties"]["cpus"]["minimum"] = json!(3)),
            ("only certain values", |d| spec(d)["properties"]["image"]["enum"] = json!(["a"])),
            ("a rule is new", |d| spec(d)["properties"]["image"]["x-kubernetes-validations"] = json!([{"rule": "self != ''"}])),
            ("the column", |d| drop(d.pointer_mut("/spec/versions/0/additionalPrinterColumns").unwrap().as_array_mut().unwrap().remove(0))),
            ("not served", |d| d["spec"]["versions"][0]["served"] = json!(false)),
            ("v1alpha1: it is gone", |d| d["spec"]["versions"][0]["name"] = json!("v1beta1")),
            ("/spec/scope changed", |d| d["spec"]["scope"] = json!("Cluster")),
            ("/spec/conversion/strategy changed", |d| d["spec"]["conversion"] = json!({"strategy": "Webhook"})),
        ];
        for (expected, change) in changes {
            let said = said(change);
            assert!(said.iter().any(|text| text.contains(expected)), "{expected}: {said:?}");
        }
    }

    #[test]
    fn a_kind_that_is_gone_is_found() {
        let mut fewer = ours();
        fewer.remove(MACHINES);
        assert_eq!(broken(&ours(), &fewer), [format!("{MACHINES}: it is gone")]);
    }
}
