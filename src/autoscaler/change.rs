//! Computes how a call changes a pool. Pure.
//!
//! Calls carry differences, and a difference that is applied twice is wrong. So each is applied to the number that was last reported to the
//! autoscaler: a repeated call leads to the same number and changes nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use thiserror::Error;

use super::group::{Group, bounds, id};
use super::wire::ExternalGrpcNode;
use crate::api::pool::REMOVE_ANNOTATION;

/// The write that a call requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub replicas: i32,
    /// All machines that are marked for removal.
    pub named: BTreeSet<String>,
    /// The number that the difference was applied to: the number reported to the autoscaler, or the number that another client has set since. A
    /// repeated call is applied to it too.
    pub base: Option<i32>,
}

/// Why a call changes nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Bounds(String),
}

impl Change {
    /// Returns the change as a merge patch of the pool of this version.
    pub fn patch(&self, version: Option<&str>) -> Value {
        let named: Vec<&str> = self.named.iter().map(String::as_str).collect();
        let listed = if named.is_empty() { Value::Null } else { json!(named.join(",")) };
        json!({
            "metadata": { "resourceVersion": version, "annotations": { REMOVE_ANNOTATION: listed } },
            "spec": { "replicas": self.replicas },
        })
    }
}

/// Adds `delta` machines to the number that was reported to the autoscaler. `None`: the pool has that number already.
pub fn increase(group: &Group, told: Option<i32>, delta: i32) -> Result<Option<Change>, Refusal> {
    if delta <= 0 {
        return Err(Refusal::Invalid(format!("delta: {delta}: must be more than 0")));
    }
    let (_, max) = allowed(group)?;
    let now = group.pool.spec.replicas;
    // Another client may have lowered the number since.
    let base = told.unwrap_or(now).min(now);
    let wanted = base.saturating_add(delta);
    if wanted <= now {
        return Ok(None);
    }
    if wanted > max {
        return Err(Refusal::Bounds(format!("{}: {wanted} machines are more than spec.autoscaling.maxReplicas, {max}", id(&group.pool))));
    }
    Ok(Some(Change { replicas: wanted, named: kept(group), base: Some(base) }))
}

/// Subtracts machines (`delta` is less than 0) from the number that was reported to the autoscaler. Only machines that do not exist yet can
/// be taken back.
pub fn decrease(group: &Group, told: Option<i32>, delta: i32) -> Result<Option<Change>, Refusal> {
    if delta >= 0 {
        return Err(Refusal::Invalid(format!("delta: {delta}: must be less than 0")));
    }
    let (min, _) = allowed(group)?;
    let now = group.pool.spec.replicas;
    let base = told.unwrap_or(now).max(now);
    let wanted = base.saturating_add(delta);
    if wanted >= now {
        return Ok(None);
    }
    below(group, wanted, min)?;
    let there = group.staying().count();
    if usize::try_from(wanted).unwrap_or_default() < there {
        return Err(Refusal::Bounds(format!(
            "{}: {wanted} machines are asked for and {there} are there: name those that are to go",
            id(&group.pool)
        )));
    }
    Ok(Some(Change { replicas: wanted, named: kept(group), base: Some(base) }))
}

/// Removes the machines of these Nodes. Machines that are being removed already were counted when their removal began. A foreign Node in the list
/// refuses the whole call.
pub fn delete(group: &Group, nodes: &[ExternalGrpcNode]) -> Result<Option<Change>, Refusal> {
    let (min, _) = allowed(group)?;
    let mut named = BTreeSet::new();
    for node in nodes {
        let machine = group.machine(node).ok_or_else(|| {
            Refusal::NotFound(format!(
                "{}: no machine of this group has the Node {:?} with the provider ID {:?}",
                id(&group.pool),
                node.name,
                node.provider_id
            ))
        })?;
        let name = machine.metadata.name.clone().unwrap_or_default();
        if group.staying().any(|m| m.metadata.name.as_ref() == Some(&name)) {
            named.insert(name);
        }
    }
    if named.is_empty() {
        return Ok(None);
    }
    let replicas = group.pool.spec.replicas.saturating_sub(i32::try_from(named.len()).unwrap_or(i32::MAX));
    below(group, replicas, min)?;
    named.extend(kept(group));
    Ok(Some(Change { replicas, named, base: None }))
}

fn allowed(group: &Group) -> Result<(i32, i32), Refusal> {
    let refused = || {
        Refusal::NotFound(format!("{}: is not to be scaled: it is paused, is being deleted, has an owner or no spec.autoscaling", id(&group.pool)))
    };
    bounds(&group.pool).ok_or_else(refused)
}

fn below(group: &Group, wanted: i32, min: i32) -> Result<(), Refusal> {
    if wanted >= min {
        return Ok(());
    }
    Err(Refusal::Bounds(format!("{}: {wanted} machines are fewer than spec.autoscaling.minReplicas, {min}", id(&group.pool))))
}

/// Returns the machines that were marked for removal before and still exist.
fn kept(group: &Group) -> BTreeSet<String> {
    let there: BTreeSet<&str> = group.machines.iter().filter_map(|m| m.metadata.name.as_deref()).collect();
    group.pool.named_for_removal().into_iter().filter(|name| there.contains(name.as_str())).collect()
}
