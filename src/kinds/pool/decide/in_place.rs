//! Writes changes of the template into existing objects, instead of creating another VM: labels and annotations of the WindowsMachine, labels
//! and taints of its Node. A key that the template no longer names is removed; values that others have set stay.
//!
//! Our keys must be remembered, since neither object records them: a kubelet created its Node with labels that server-side apply treats
//! as the kubelet's own, and the taints of a Node have one owner for the whole list. So a machine carries the keys that the pool has set,
//! as core records on a Node the keys from a Machine. The keys of a Node are those in its WindowsBootstrapConfig.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint as NodeTaint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::api::bootstrap_config::{Taint, TaintEffect};
use crate::api::machine::TemplateMetadata;

/// On a WindowsMachine: the keys of the labels from its pool, separated by commas. On a Node without Cluster API: the keys of the labels
/// from its machine.
const LABELS_FROM_POOL: &str = "infrastructure.cluster.x-k8s.io/labels-from-pool";
/// On a WindowsMachine: the keys of the annotations from its pool.
const ANNOTATIONS_FROM_POOL: &str = "infrastructure.cluster.x-k8s.io/annotations-from-pool";
/// Labels and annotations with this prefix have a meaning to CAPW: a template that names one does not own it.
const OWN: &str = "infrastructure.cluster.x-k8s.io/";

/// The annotations of a new machine in addition to the template's own.
pub fn notes(wanted: &TemplateMetadata) -> BTreeMap<String, String> {
    let note = |(key, keys): (&str, &BTreeMap<String, String>)| {
        let named = names(keys);
        (!named.is_empty()).then(|| (key.to_owned(), named))
    };
    [(LABELS_FROM_POOL, &wanted.labels), (ANNOTATIONS_FROM_POOL, &wanted.annotations)].into_iter().filter_map(note).collect()
}

/// The merge patch of an object's `metadata`; `None` when the metadata matches the template.
pub fn metadata(wanted: &TemplateMetadata, has: &ObjectMeta) -> Option<Value> {
    let none = BTreeMap::new();
    let (labels, annotations) = (has.labels.as_ref().unwrap_or(&none), has.annotations.as_ref().unwrap_or(&none));
    let noted = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
    let label_changes = changes(&wanted.labels, labels, noted(LABELS_FROM_POOL));
    let mut annotation_changes = changes(&wanted.annotations, annotations, noted(ANNOTATIONS_FROM_POOL));
    for (note, keys) in [(LABELS_FROM_POOL, &wanted.labels), (ANNOTATIONS_FROM_POOL, &wanted.annotations)] {
        let named = names(keys);
        if named != noted(note) {
            annotation_changes.insert(note.into(), if named.is_empty() { Value::Null } else { json!(named) });
        }
    }
    let changed = [("labels", label_changes), ("annotations", annotation_changes)].into_iter().filter(|(_, changes)| !changes.is_empty());
    let patch: Map<String, Value> = changed.map(|(field, changes)| (field.to_owned(), changes.into())).collect();
    (!patch.is_empty()).then(|| patch.into())
}

fn names(keys: &BTreeMap<String, String>) -> String {
    keys.keys().filter(|key| !key.starts_with(OWN)).cloned().collect::<Vec<_>>().join(",")
}

fn changes(wanted: &BTreeMap<String, String>, has: &BTreeMap<String, String>, noted: &str) -> Map<String, Value> {
    let set = wanted.iter().filter(|(key, value)| has.get(*key) != Some(*value)).map(|(key, value)| (key.clone(), json!(value)));
    let dropped = noted.split(',').filter(|key| !wanted.contains_key(*key) && has.contains_key(*key) && !key.starts_with(OWN));
    set.chain(dropped.map(|key| (key.to_owned(), Value::Null))).collect()
}

/// The labels and taints that a Node has from its configuration, or should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelsAndTaints<'a> {
    pub labels: &'a BTreeMap<String, String>,
    pub taints: &'a [Taint],
}

/// The merge patch of a Node for a change from `had` to `wanted`; `None` when nothing is left to do. The patch contains only what changes, so a
/// value that others have set stays. Taints are one list: the Node must not have been written since it was read.
pub fn node(node: &Node, had: LabelsAndTaints<'_>, wanted: LabelsAndTaints<'_>) -> Option<Value> {
    let labels = node_labels(node, had.labels, wanted.labels);
    let taints = node_taints(node, had.taints, wanted.taints);
    if labels.is_empty() && taints.is_none() {
        return None;
    }
    let labels = (!labels.is_empty()).then(|| ("metadata".to_owned(), json!({ "labels": labels })));
    let taints = taints.map(|taints| ("spec".to_owned(), json!({ "taints": taints })));
    Some(labels.into_iter().chain(taints).collect::<Map<_, _>>().into())
}

fn node_labels(node: &Node, had: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> Map<String, Value> {
    let none = BTreeMap::new();
    let has = node.metadata.labels.as_ref().unwrap_or(&none);
    let set = wanted.iter().filter(|(key, value)| had.get(*key) != Some(*value) && has.get(*key) != Some(*value));
    let dropped = had.iter().filter(|(key, value)| !wanted.contains_key(*key) && has.get(*key) == Some(*value));
    set.map(|(key, value)| (key.clone(), json!(value))).chain(dropped.map(|(key, _)| (key.clone(), Value::Null))).collect()
}

/// The new list of taints; `None` when it equals the old one.
fn node_taints(node: &Node, had: &[Taint], wanted: &[Taint]) -> Option<Vec<NodeTaint>> {
    let has = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let new = |taint: &&Taint| !had.contains(taint);
    let gone = |taint: &NodeTaint| {
        let replaced = wanted.iter().filter(new).any(|w| same_place(w, taint));
        let dropped = had.iter().any(|h| is(h, taint) && !wanted.iter().any(|w| same_place(w, taint)));
        replaced || dropped
    };
    let kept = has.iter().filter(|taint| !gone(taint)).cloned();
    // A taint that already is as desired keeps its position and its timestamp.
    let list: Vec<NodeTaint> =
        kept.chain(wanted.iter().filter(new).map(|w| has.iter().find(|t| is(w, t)).cloned().unwrap_or_else(|| made(w)))).collect();
    let same = list.len() == has.len() && has.iter().all(|taint| list.contains(taint));
    (!same).then_some(list)
}

/// Whether both have the same key and effect: a Node has one taint for each pair.
fn same_place(ours: &Taint, taint: &NodeTaint) -> bool {
    ours.key == taint.key && effect(ours.effect) == taint.effect
}

fn is(ours: &Taint, taint: &NodeTaint) -> bool {
    same_place(ours, taint) && ours.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
}

fn made(ours: &Taint) -> NodeTaint {
    NodeTaint { key: ours.key.clone(), value: ours.value.clone(), effect: effect(ours.effect).into(), time_added: None }
}

fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(labels: Value, annotations: Value) -> TemplateMetadata {
        serde_json::from_value(json!({"labels": labels, "annotations": annotations})).unwrap()
    }

    /// Applies a merge patch as the API server does.
    fn merged(mut target: Value, patch: &Value) -> Value {
        json_patch::merge(&mut target, patch);
        target
    }

    fn after(has: &Value, wanted: &TemplateMetadata) -> Value {
        let patch = metadata(wanted, &serde_json::from_value(has.clone()).unwrap());
        merged(has.clone(), &patch.unwrap_or(json!({})))
    }

    #[test]
    fn what_a_template_drops_goes_and_what_is_of_others_stays() {
        let first = template(json!({"a": "1", "b": "1"}), json!({"note": "x"}));
        let born: Value =
            json!({"labels": {"a": "1", "b": "1", "theirs": "1"}, "annotations": merged(json!({"note": "x", "theirs": "1"}), &json!(notes(&first)))});
        assert_eq!(after(&born, &first), born, "nothing to do");
        let second = template(json!({"b": "2", "c": "1"}), json!({}));
        let changed = after(&born, &second);
        assert_eq!(changed["labels"], json!({"b": "2", "c": "1", "theirs": "1"}));
        assert_eq!(changed["annotations"], json!({"theirs": "1", LABELS_FROM_POOL: "b,c"}));
        assert_eq!(metadata(&second, &serde_json::from_value(changed.clone()).unwrap()), None, "done");
        let third = after(&changed, &template(json!({}), json!({})));
        assert_eq!(third, json!({"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}}));
        assert_eq!(notes(&template(json!({}), json!({}))), BTreeMap::new());
    }

    #[test]
    fn machines_of_a_release_that_kept_no_note_get_one_and_lose_nothing() {
        let old = json!({"labels": {"a": "1", "b": "1"}, "annotations": {}});
        assert_eq!(
            after(&old, &template(json!({"a": "1"}), json!({}))),
            json!({"labels": {"a": "1", "b": "1"}, "annotations": {LABELS_FROM_POOL: "a"}})
        );
    }

    #[test]
    fn what_has_a_meaning_to_this_program_is_never_dropped() {
        let key = "infrastructure.cluster.x-k8s.io/windows-hypervisor";
        let has = json!({"labels": {}, "annotations": {key: "lab", ANNOTATIONS_FROM_POOL: key}});
        assert_eq!(after(&has, &template(json!({}), json!({})))["annotations"], json!({key: "lab"}));
    }

    fn a_node(labels: Value, taints: Value) -> Value {
        json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}})
    }

    fn labels(value: Value) -> BTreeMap<String, String> {
        serde_json::from_value(value).unwrap()
    }

    fn taints(value: Value) -> Vec<Taint> {
        serde_json::from_value(value).unwrap()
    }

    fn taint(key: &str, value: &str) -> Value {
        json!({"key": key, "value": value, "effect": "NoSchedule"})
    }

    #[test]
    fn labels_of_a_node_follow_the_change_and_no_others() {
        let (had, wanted) = (labels(json!({"a": "1", "b": "1", "c": "1", "d": "1"})), labels(json!({"a": "2", "b": "1", "e": "1"})));
        let of = |labels| LabelsAndTaints { labels, taints: &[] };
        let before = a_node(json!({"a": "1", "b": "by hand", "c": "1", "d": "by hand", "theirs": "1"}), json!([]));
        let read = |value: &Value| serde_json::from_value::<Node>(value.clone()).unwrap();
        let patch = node(&read(&before), of(&had), of(&wanted)).unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {"a": "2", "c": null, "e": "1"}}}));
        let done = merged(before, &patch);
        assert_eq!(done["metadata"]["labels"], json!({"a": "2", "b": "by hand", "d": "by hand", "e": "1", "theirs": "1"}));
        assert_eq!(node(&read(&done), of(&had), of(&wanted)), None, "a second try after a crash finds nothing to do");
    }

    #[test]
    fn taints_of_a_node_follow_the_change_and_no_others() {
        let none = BTreeMap::new();
        let (had, wanted) = (
            taints(json!([taint("os", "windows"), taint("a", "1"), taint("b", "1")])),
            taints(json!([taint("os", "windows"), taint("a", "2"), taint("c", "1")])),
        );
        let of = |taints| LabelsAndTaints { labels: &none, taints };
        let timed = json!({"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        let before = a_node(json!({}), json!([taint("os", "windows"), timed, taint("a", "1"), taint("b", "1")]));
        let read = |value: &Value| serde_json::from_value::<Node>(value.clone()).unwrap();
        let patch = node(&read(&before), of(&had), of(&wanted)).unwrap();
        let done = merged(before, &patch);
        assert_eq!(done["spec"]["taints"], json!([taint("os", "windows"), timed, taint("a", "2"), taint("c", "1")]));
        assert_eq!(node(&read(&done), of(&had), of(&wanted)), None, "done");
        let by_hand = a_node(json!({}), json!([taint("b", "by hand")]));
        assert_eq!(node(&read(&by_hand), of(&had), of(&had[..2])), None, "another value was set from outside, and what was not changed stays gone");
    }
}
