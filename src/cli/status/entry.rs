//! The entries of the report: the objects, each with its state and its troubles.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::api::name::ObjectKey;

/// An object, with the objects that belong to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The object's own state, whatever the state of the objects below it.
    pub state: State,
    /// Relevant facts even if no trouble exists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
    /// The troubles, worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<Trouble>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<Entry>,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum State {
    #[default]
    Well,
    /// The object is not ready yet, and progresses automatically.
    UnderWay,
    /// The user must act, or progress takes longer than expected.
    Hangs,
}

/// A problem of an object.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trouble {
    /// The state of the object if this trouble is the worst.
    pub state: State,
    /// The reason in the condition.
    pub reason: String,
    pub message: String,
    /// The remedy, if the message does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The command that fixes the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The duration of the trouble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

impl Entry {
    pub fn new(kind: &'static str, key: ObjectKey, facts: Vec<String>, troubles: Vec<Trouble>, objects: Vec<Self>) -> Self {
        let state = troubles.iter().map(|trouble| trouble.state).max().unwrap_or_default();
        Self { kind, namespace: key.namespace, name: key.name, state, facts, troubles, objects }
    }

    /// Adds the kind, namespace and name of this object and those below it, if they are in this state.
    pub fn in_state<'a>(&'a self, state: State, found: &mut BTreeSet<(&'a str, &'a str, &'a str)>) {
        if self.state == state {
            found.insert((self.kind, &self.namespace, &self.name));
        }
        self.objects.iter().for_each(|entry| entry.in_state(state, found));
    }
}
