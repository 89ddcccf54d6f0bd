//! Reports one machine: whether it is ready, and if not, why.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use super::entry::{Entry, State, Trouble};
use super::objects::Objects;
use super::troubles;
use crate::api::capi::{self, Machine, NODE_READY};
use crate::api::condition::{self, ConditionType};
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::cli::diagnose::config_of;
use crate::diagnosis;
use crate::domain::age::seconds;
use crate::kinds::machine::decide::join::node_trouble;
use crate::kinds::machine::decide::phase::{Phase, phase};

/// Cluster API's reason for a Node that is not ready.
const NODE_NOT_READY: &str = "NodeNotReady";

/// Returns the worst trouble that keeps the machine from being ready; `None`: the machine is ready.
pub(super) fn machine(objects: &Objects, object: &WindowsMachine, now: Timestamp) -> Option<Entry> {
    let owner = owner(objects, object);
    let mut all = troubles::of(conditions(object), now);
    let joined = condition::find(conditions(object), ConditionType::NodeJoined).filter(|joined| joined.status == "True");
    match joined {
        // The machine's Node will be deleted.
        _ if object.metadata.deletion_timestamp.is_some() => {}
        Some(joined) => all.extend(node(joined, owner, now)),
        None => all.extend(config(objects, object, owner, now)),
    }
    // Of equally bad troubles, the first is the closest to the machine.
    let worst = all.into_iter().reduce(|worst, next| if next.state > worst.state { next } else { worst });
    let mut worst = worst.or_else(|| waits(object, now))?;
    if is_over_time(object, now) {
        worst.state = State::Hangs;
    }
    Some(Entry::new("WindowsMachine", ObjectKey::of(&object.metadata), Vec::new(), vec![worst], Vec::new()))
}

fn conditions(object: &WindowsMachine) -> &[Condition] {
    object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// Returns Cluster API's Machine.
fn owner<'a>(objects: &'a Objects, object: &WindowsMachine) -> Option<&'a Machine> {
    let owner = capi::machine_owner(object.metadata.owner_references.as_ref())?;
    objects.machines.iter().find(|machine| machine.metadata.uid.as_deref() == Some(&owner.uid))
}

/// Returns the trouble of the machine's configuration, because the machine waits for the bootstrap data.
fn config(objects: &Objects, object: &WindowsMachine, owner: Option<&Machine>, now: Timestamp) -> Option<Trouble> {
    let name = config_of(object, owner);
    let is_its = |meta: &ObjectMeta| meta.name.as_ref() == Some(&name) && meta.namespace == object.metadata.namespace;
    let config = objects.configs.iter().find(|config| is_its(&config.metadata))?;
    let worst = troubles::of(&config.status.as_ref()?.conditions, now).into_iter().next().filter(|worst| worst.state == State::Hangs)?;
    Some(Trouble { message: format!("WindowsBootstrapConfig {name}: {}", worst.message), ..worst })
}

/// Returns the trouble of a Node that has joined.
fn node(joined: &Condition, owner: Option<&Machine>, now: Timestamp) -> Option<Trouble> {
    let said = owner.and_then(|machine| machine.status.as_ref()).map(|status| status.conditions.as_slice()).unwrap_or_default();
    let why = node_trouble(joined);
    let Some(ready) = condition::find(said, NODE_READY) else {
        // For a standalone pool, the start time is unknown.
        return Some(Trouble { state: State::Hangs, reason: NODE_NOT_READY.to_owned(), message: why?.to_owned(), ..Trouble::default() });
    };
    if ready.status == "True" {
        return None;
    }
    let lasts = !diagnosis::of_node_ready(said, "", now).symptoms.is_empty();
    let trouble = troubles::trouble(ready, if lasts { State::Hangs } else { State::UnderWay }, now);
    Some(Trouble { message: why.map_or(trouble.message, str::to_owned), ..trouble })
}

/// Reports a machine that has no condition yet, or no condition for its removal.
fn waits(object: &WindowsMachine, now: Timestamp) -> Option<Trouble> {
    let (phase, since) = phase(object).filter(|(phase, _)| *phase != Phase::Joined)?;
    let message = "its conditions do not say yet what it waits for; look at CAPW's log if that lasts".to_owned();
    Some(Trouble { state: State::UnderWay, reason: phase.label().to_owned(), message, seconds: Some(seconds(since, now)), ..Trouble::default() })
}

fn is_over_time(object: &WindowsMachine, now: Timestamp) -> bool {
    phase(object).is_some_and(|(phase, since)| now.duration_since(since) > phase.limit())
}
