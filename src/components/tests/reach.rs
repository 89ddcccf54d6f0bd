//! Tests that reads of a live cluster cover everything that a recording of it contains.

use serde_json::Value;

use super::{KNOWN, recording};
use crate::api::listing::Listing;
use crate::components::{FIRST, ObjectRef, read, wanted};

fn is_listed(object: &Value, lists: &[Listing]) -> bool {
    lists.iter().any(|listing| {
        let selected = listing.labels.split_once('=').is_none_or(|(key, value)| object["metadata"]["labels"][key] == value);
        object["apiVersion"] == listing.api_version() && object["kind"] == listing.kind && selected
    })
}

#[test]
fn nothing_that_matters_is_left_unread() {
    for known in &KNOWN {
        // Only recordings contain CustomResourceDefinitions: in a cluster, the API server shows which kinds it serves.
        let objects: Vec<Value> = recording(known.name).into_iter().filter(|object| object["kind"] != "CustomResourceDefinition").collect();
        let first: Vec<Value> = objects.iter().filter(|object| is_listed(object, &FIRST)).cloned().collect();
        let wanted = wanted(&first);
        let is_read =
            |object: &&Value| is_listed(object, &FIRST) || is_listed(object, &wanted.lists) || wanted.config_maps.contains(&ObjectRef::of(object));
        let all: Vec<Value> = objects.iter().filter(is_read).cloned().collect();
        assert_eq!(read(&all), read(&objects), "{}", known.name);
    }
}
