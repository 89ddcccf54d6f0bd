//! The logic of `linuxSide: Change` (pure): the next write that corrects the Linux side, or the reason why none follows.
//!
//! CAPW writes once and reads the result before the next write. Each object that CAPW has changed lists the reasons in [`CHANGED`]: if a listed
//! problem is back, another writer reverted the change, and CAPW leaves the object alone. CAPW creates a missing object if the finding has all of
//! it, and recreates it after a deletion; the object that it belongs to shows which tools would undo this. Flannel's pods carry a digest of the
//! settings, [`SETTINGS`], so each change of the settings restarts the pods once, by the DaemonSet's own update strategy.

use serde_json::{Value, json};

use super::finding::{Finding, Patch, is_warning};
use super::linux_side::{Flannel, LinuxSide, NET_CONF, Settings};
use super::manager::manager;
use super::place::ObjectRef;
use super::plan::digest;
use super::wanted::listing;
use super::writers::writer_since;
use crate::api::components::LINUX_SIDE_MANAGER;
use crate::api::condition::Reason;
use crate::api::listing::Listing;

/// Annotation on an object that CAPW has changed: the reasons, separated by commas.
pub const CHANGED: &str = "infrastructure.cluster.x-k8s.io/linux-side-changed";
/// Annotation on the pods of a DaemonSet that CAPW has restarted: the digest of the settings that they started with.
pub const SETTINGS: &str = "infrastructure.cluster.x-k8s.io/linux-side-settings";

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// No change is needed.
    Nothing,
    Write(Write),
    /// Pods are restarting; the text states how many have restarted.
    Wait(String),
    /// CAPW does not correct this problem; the text states what to do instead.
    Leave(Reason, String),
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub kind: Listing,
    pub object: ObjectRef,
    /// A merge patch with the UID and version of the object that was read, so that a later change causes a conflict. For a new object: all of it.
    pub patch: Value,
    /// Whether the object must be created.
    pub is_new: bool,
    /// The effect of the change, as a sentence.
    pub what: String,
}

/// Returns the next step. `side` was read from `objects`, and `found` lists its problems.
pub fn next_step(objects: &[Value], side: &LinuxSide, found: &[Finding]) -> Step {
    let wrong: Vec<&Finding> = found.iter().filter(|finding| !is_warning(finding.reason)).collect();
    let flannel = with_daemon_set(side);
    // A change may interrupt traffic, and is useless if another problem still keeps Windows nodes away.
    if let Some(finding) = wrong.iter().find(|finding| !is_changed_here(finding, flannel.is_some())) {
        let why = format!("{}, {}: {}; {}", finding.object, finding.field, finding.message, finding.remedy);
        return Step::Leave(Reason::ChangeNeeded, format!("CAPW does not change this, and nothing else before: {why}"));
    }
    match wrong.iter().find(|finding| finding.patch.is_some()) {
        Some(finding) => change(objects, &wrong, finding),
        None => flannel.map_or(Step::Nothing, |(flannel, set)| restart(objects, flannel, set, wrong.first().copied())),
    }
}

/// Flannel, if a DaemonSet runs it and its settings can be read.
fn with_daemon_set(side: &LinuxSide) -> Option<(&Flannel, &ObjectRef)> {
    let Settings::Flannel(flannel) = &side.network.settings else { return None };
    flannel.daemon_set.as_ref().filter(|_| flannel.config.is_some()).map(|set| (flannel, set))
}

fn is_changed_here(finding: &Finding, is_restarted: bool) -> bool {
    match finding.reason {
        // Only the user knows whether peers outside of the cluster need BGP.
        Reason::BgpWithVxlan => false,
        Reason::NotRolledOut => is_restarted,
        _ => finding.patch.is_some(),
    }
}

/// Corrects all problems of the first finding's object in one write.
fn change(objects: &[Value], wrong: &[&Finding], first: &Finding) -> Step {
    let object = &first.object;
    let Some((kind, there)) = find(objects, object) else { return make(objects, first) };
    let of_object: Vec<&&Finding> = wrong.iter().filter(|finding| finding.object == *object && finding.patch.is_some()).collect();
    let reasons: Vec<&str> = of_object.iter().map(|finding| finding.reason.as_str()).collect();
    let before = annotation(there, "/metadata/annotations", CHANGED).unwrap_or_default();
    let mut changed: Vec<&str> = before.split(',').filter(|reason| !reason.is_empty()).collect();
    if let Some(again) = reasons.iter().find(|reason| changed.contains(reason)) {
        let writer = writer_since(there, LINUX_SIDE_MANAGER).map_or_else(|| "another writer".to_owned(), |name| format!("the field manager {name}"));
        let why = format!("CAPW changed {object}, and {writer} has changed it back, so it is {again} again");
        return Step::Leave(Reason::ManagedElsewhere, format!("{why}: correct it at its source, then remove its annotation {CHANGED}"));
    }
    if let Some(manager) = there.get("metadata").and_then(manager) {
        let why = format!("{object} is managed by {manager}, which would undo a change by CAPW ({})", reasons.join(", "));
        return Step::Leave(Reason::ManagedElsewhere, format!("{why}: change it there"));
    }
    changed.extend(&reasons);
    let mut patch = precondition(there);
    of_object.iter().filter_map(|finding| finding.patch.as_ref()).for_each(|part| json_patch::merge(&mut patch, part.value()));
    json_patch::merge(&mut patch, &marked(&changed.join(",")));
    let what = format!("{object} is changed ({})", reasons.join(", "));
    Step::Write(Write { kind, object: object.clone(), patch, is_new: false, what })
}

/// Creates the missing object of a finding.
fn make(objects: &[Value], finding: &Finding) -> Step {
    let Finding { reason, object, patch, remedy, .. } = finding;
    let new = match patch {
        Some(Patch::New { object, beside }) => listing(object).map(|kind| (kind, object, beside)),
        _ => None,
    };
    let Some((kind, new, beside)) = new else {
        return Step::Leave(Reason::ChangeNeeded, format!("{object} is not there, and CAPW makes none ({reason}): {remedy}"));
    };
    if let Some(manager) = find(objects, beside).and_then(|(_, there)| manager(there.get("metadata")?)) {
        let why = format!("{object} is not there ({reason}), and {beside}, which it belongs to, is managed by {manager}");
        return Step::Leave(Reason::ManagedElsewhere, format!("{why}: make it there"));
    }
    let mut patch = new.clone();
    json_patch::merge(&mut patch, &marked(reason.as_str()));
    Step::Write(Write { kind, object: object.clone(), patch, is_new: true, what: format!("{object} is made ({reason})") })
}

/// The annotation of an object that CAPW has changed.
fn marked(reasons: &str) -> Value {
    json!({"metadata": {"annotations": {CHANGED: reasons}}})
}

/// Restarts Flannel's pods with the configured settings, if CAPW has changed these or nodes do not use them.
fn restart(objects: &[Value], flannel: &Flannel, set: &ObjectRef, unused: Option<&Finding>) -> Step {
    let config = flannel.config.as_ref().and_then(|config| find(objects, &config.object));
    let (Some((_, config)), Some((kind, there))) = (config, find(objects, set)) else { return Step::Nothing };
    if unused.is_none() && annotation(config, "/metadata/annotations", CHANGED).is_none() {
        return Step::Nothing;
    }
    let written = config.get("data").and_then(|data| data.get(NET_CONF)).and_then(Value::as_str).unwrap_or_default();
    let digest = digest(written);
    let number = |pointer: &str| there.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let (desired, updated, available) =
        (number("/status/desiredNumberScheduled"), number("/status/updatedNumberScheduled"), number("/status/numberAvailable"));
    let is_restarting = number("/status/observedGeneration") < number("/metadata/generation") || updated < desired;
    let is_begun = annotation(there, "/spec/template/metadata/annotations", SETTINGS) == Some(digest.as_str());
    // Wait for a restart that a user has begun.
    if is_restarting || (is_begun && available < desired) {
        let by_hand = there.pointer("/spec/updateStrategy/type").and_then(Value::as_str) == Some("OnDelete");
        let how = if by_hand { "; its update strategy is OnDelete, so delete its pods one after the other" } else { "" };
        return Step::Wait(format!("{set}: {updated} of {desired} pods have restarted, {available} are available{how}"));
    }
    if !is_begun {
        let mut patch = precondition(there);
        json_patch::merge(&mut patch, &json!({"spec": {"template": {"metadata": {"annotations": {SETTINGS: digest}}}}}));
        let what = format!("the pods of {set} restart with the new settings");
        return Step::Write(Write { kind, object: set.clone(), patch, is_new: false, what });
    }
    match unused {
        Some(finding) => Step::Wait(format!("all pods of {set} have restarted; {}", finding.message)),
        None => Step::Nothing,
    }
}

/// Returns the object as it was read, and its kind.
fn find<'a>(objects: &'a [Value], object: &ObjectRef) -> Option<(Listing, &'a Value)> {
    let there = object.find(objects)?;
    Some((listing(there)?, there))
}

fn annotation<'a>(object: &'a Value, annotations: &str, key: &str) -> Option<&'a str> {
    object.pointer(annotations)?.get(key)?.as_str()
}

/// A patch without changes that applies only to this exact object.
fn precondition(object: &Value) -> Value {
    let of = |key: &str| object.get("metadata").and_then(|metadata| metadata.get(key)).cloned().unwrap_or_default();
    json!({"metadata": {"uid": of("uid"), "resourceVersion": of("resourceVersion")}})
}
