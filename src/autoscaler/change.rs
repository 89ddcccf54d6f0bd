//! What a call makes of a pool. Pure.
//!
//! Calls carry differences, and a difference that is applied twice is wrong. So each is applied to the number that the autoscaler
//! was told last: the same call again leads to the same number and changes nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use thiserror::Error;

use super::group::{Group, bounds, id};
use super::wire::ExternalGrpcNode;
use crate::api::pool::REMOVE_ANNOTATION;

/// The write that a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub replicas: i32,
    /// Machines that are to be removed, all of them.
    pub named: BTreeSet<String>,
    /// The number that the difference was applied to: what the autoscaler was told, or what another client made of it since. The
    /// same call again is applied to it too.
    pub base: Option<i32>,
}

/// Why nothing is changed.
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
    /// As a merge patch of the pool of this version.
    pub fn patch(&self, version: Option<&str>) -> Value {
        let named: Vec<&str> = self.named.iter().map(String::as_str).collect();
        let listed = if named.is_empty() { Value::Null } else { json!(named.join(",")) };
        json!({
            "metadata": { "resourceVersion": version, "annotations": { REMOVE_ANNOTATION: listed } },
            "spec": { "replicas": self.replicas },
        })
    }
}

/// `delta` machines more than the autoscaler was `told`. `None`: that is so already.
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

/// `delta` (less than 0) machines less than the autoscaler was `told`: only what is not there yet is taken back.
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

/// Removes the machines of these Nodes. Those that leave already were counted when they began to; a stranger among them
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

/// Named before, and still there.
fn kept(group: &Group) -> BTreeSet<String> {
    let there: BTreeSet<&str> = group.machines.iter().filter_map(|m| m.metadata.name.as_deref()).collect();
    group.pool.named_for_removal().into_iter().filter(|name| there.contains(name.as_str())).collect()
}
