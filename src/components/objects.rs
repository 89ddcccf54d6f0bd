//! The objects of a cluster, by kind and name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::place::{ObjectRef, Place, Problems, Unreadable};

/// The objects of a cluster, and the problems in them.
#[derive(Debug)]
pub struct Objects<'a> {
    all: Vec<&'a Value>,
    problems: Problems,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `projectcalico.org` is the group of `crd.projectcalico.org/v1` and of `projectcalico.org/v3`.
fn is_of(object: &Value, group: &str, kind: &str) -> bool {
    let found = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let below = || found.strip_suffix(group).is_some_and(|before| !group.is_empty() && before.ends_with('.'));
    text(object, "/kind") == kind && (found == group || below())
}

impl<'a> Objects<'a> {
    /// Splits lists, as `kubectl get` prints them, into objects. Duplicate objects count once.
    pub fn new(objects: &'a [Value]) -> Self {
        let parts = |object: &'a Value| match object.get("items").and_then(Value::as_array) {
            Some(items) if text(object, "/kind").ends_with("List") => items.iter().collect(),
            _ => vec![object],
        };
        let mut seen = BTreeSet::new();
        let name = |object: &&'a Value| ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| text(object, pointer));
        let all = objects.iter().flat_map(parts).filter(|object| text(object, "/metadata/name").is_empty() || seen.insert(name(object)));
        Self { all: all.collect(), problems: Problems::default() }
    }

    /// Returns all objects of a kind, in their original order.
    pub fn of(&self, group: &str, kind: &str) -> Vec<Place<'_>> {
        self.all.iter().filter(|object| is_of(object, group, kind)).map(|object| Place::root(object, &self.problems)).collect()
    }

    /// Returns the object of this name; without a namespace, the object may be in any.
    pub fn named(&self, group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Option<Place<'_>> {
        let found = self.all.iter().find(|object| {
            is_of(object, group, kind)
                && text(object, "/metadata/name") == name
                && namespace.is_none_or(|namespace| text(object, "/metadata/namespace") == namespace)
        });
        found.map(|object| Place::root(object, &self.problems))
    }

    pub fn config_map(&self, namespace: &str, name: &str) -> Option<Place<'_>> {
        self.named("", "ConfigMap", Some(namespace), name)
    }

    pub fn problem(&self, object: &ObjectRef, field: &str, problem: impl Into<String>) {
        self.problems.add(object, field, problem);
    }

    /// Takes the unreadable fields that were found so far.
    pub fn take_problems(&self) -> Vec<Unreadable> {
        self.problems.take()
    }
}
