//! Writes of the objects that CAPW brings to the workload cluster for its Windows nodes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::Preconditions;
use serde_json::Value;

use super::decide::windows_side::without_taint;
use crate::api::components::COMPONENTS_MANAGER;
use crate::api::listing::Listing;
use crate::components::{Contested, Difference, ObjectRef, difference, is_set_back_later, kind_of, writer_since};
use crate::kube_api::windows_side::Apply;
use crate::kube_api::workload::{Workload, WorkloadError};

/// Applies objects; `live` has the existing ones. Another writer's changes are set back, but not repeatedly in a short time. Returns the contested
/// fields and their writers.
pub async fn apply(workload: &Workload, desired: &[&Value], live: &[Value], now: Timestamp) -> Result<Vec<Contested>, WorkloadError> {
    let mut contested = Vec::new();
    for desired in desired {
        let Some(kind) = kind_of(desired) else { continue };
        let object = ObjectRef::of(desired);
        let fought = object.find(live).filter(|live| is_set_back_later(live, COMPONENTS_MANAGER, now));
        // For a removed field, the API server reports no manager, and accepts the apply.
        if let Some(gone) = fought.and_then(|live| gone(live, desired, &object)) {
            contested.push(gone);
            continue;
        }
        let apply = async |how| workload.apply_object(&kind, object.namespace.as_deref(), &object.name, desired, how).await;
        let held = apply(Apply::Yield).await?;
        if !held.is_empty() && fought.is_none() {
            apply(Apply::Override).await?;
            tracing::warn!(endpoint = workload.server, "{object} is set back: {held:?}");
        }
        contested.extend(held.into_iter().map(|held| Contested { object: object.clone(), field: held.field, manager: held.manager }));
    }
    Ok(contested)
}

/// The field that another writer has removed.
fn gone(live: &Value, desired: &Value, object: &ObjectRef) -> Option<Contested> {
    let manager = writer_since(live, COMPONENTS_MANAGER)?.to_owned();
    let Difference { field, .. } = difference(live, desired).filter(|difference| difference.is_missing)?;
    Some(Contested { object: object.clone(), field, manager })
}

/// Returns the objects, with `these` read again: a watch may not show yet what CAPW itself has written.
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

/// Removes an object in the state in which it was read: an object that has changed since stays, and so does another object of its name.
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

#[cfg(test)]
mod tests;
