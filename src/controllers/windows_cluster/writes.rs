//! Writes in the workload cluster, of what CAPW brings to its Windows nodes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::api::Preconditions;
use serde_json::Value;

use crate::api::listing::Listing;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::{ObjectRef, kind_of};
use crate::lifecycle::windows_side::without_taint;

pub async fn apply(workload: &Workload, objects: &[&Value]) -> Result<(), WorkloadError> {
    for object in objects {
        if let Some(kind) = kind_of(object) {
            let of = ObjectRef::of(object);
            workload.apply_object(&kind, of.namespace.as_deref(), &of.name, object).await?;
        }
    }
    Ok(())
}

/// The objects, of which these are read again: a watch may not show yet what CAPW itself has written.
pub async fn now<'a>(workload: &Workload, objects: &'a [Value], these: &[&Value]) -> Result<Cow<'a, [Value]>, WorkloadError> {
    if these.is_empty() {
        return Ok(Cow::Borrowed(objects));
    }
    let these: BTreeMap<ObjectRef, Listing> = these.iter().filter_map(|object| Some((ObjectRef::of(object), kind_of(object)?))).collect();
    let mut now: Vec<Value> = objects.iter().filter(|object| !these.contains_key(&ObjectRef::of(object))).cloned().collect();
    for (of, kind) in these {
        now.extend(workload.object(&kind, of.namespace.as_deref(), &of.name).await?);
    }
    Ok(Cow::Owned(now))
}

/// Removes an object of the cluster as it was read: one that has changed since stays, and so does another one of its name.
pub async fn remove(workload: &Workload, object: &Value) -> Result<(), WorkloadError> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if let (Some(kind), Some(uid)) = (kind_of(object), text("/metadata/uid")) {
        let of = ObjectRef::of(object);
        let only = Preconditions { uid: Some(uid), resource_version: text("/metadata/resourceVersion") };
        workload.delete_object(&kind, of.namespace.as_deref(), &of.name, only).await?;
        tracing::info!(endpoint = workload.server, "{of} is removed");
    }
    Ok(())
}

pub async fn lift_taint(workload: &Workload, nodes: &[String], why: &str) -> Result<(), WorkloadError> {
    for name in nodes {
        workload.change_node(name, without_taint).await?;
        tracing::info!(endpoint = workload.server, node = name, "the taint of the node goes: {why}");
    }
    Ok(())
}
