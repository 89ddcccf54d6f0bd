//! The cost of verifying a node: CAPW's requests to the workload cluster, and the pods that it creates there, until other pods come to the node.

use std::collections::BTreeSet;

use crate::workers::{REMOTE_USER, by_capw};
use crate::world::{AuditEvent, AuditMark, ControlPlane};

/// The most requests for one machine, from its first request on.
const REQUESTS: usize = 25;
/// The pods for one machine: one on the node, and one on a Linux node.
const PODS: usize = 2;

/// Compares the requests since `joins`, just before the node's machine was created, with these limits. `other`: a node that joined at the same
/// time; requests that name it do not count.
pub fn assert_within(cp: &ControlPlane, joins: AuditMark, other: Option<&str>) {
    let mut asked = asked_since(cp, joins);
    asked.retain(|event| other.is_none_or(|other| !event.uri.contains(other)));
    let lines: Vec<String> = asked.iter().map(|event| format!("{} {}", event.verb, event.uri)).collect();
    let pods: BTreeSet<&str> = asked.iter().filter(|event| event.resource == "pods" && event.is_write()).map(|event| event.name.as_str()).collect();
    assert!(lines.len() <= REQUESTS, "{} requests: {lines:#?}", lines.len());
    assert!(pods.len() == PODS, "{pods:?}: {lines:#?}");
}

/// CAPW's requests to the workload cluster since the mark, except watches with their listings, and the rights of joining nodes, which CAPW reads
/// once.
fn asked_since(cp: &ControlPlane, mark: AuditMark) -> Vec<AuditEvent> {
    let path = |event: &AuditEvent| event.uri.split('?').next().unwrap_or_default().to_owned();
    let watched: BTreeSet<String> = cp.audit().iter().filter(|event| event.user == REMOTE_USER && event.verb == "watch").map(path).collect();
    let is_watch = |event: &AuditEvent| event.verb == "watch" || (event.verb == "list" && watched.contains(&path(event)));
    let is_once = |event: &AuditEvent| event.group == "rbac.authorization.k8s.io" || event.uri == "/version";
    let is_its = |event: &AuditEvent| event.user == REMOTE_USER && by_capw(event);
    cp.audit_since(mark).into_iter().filter(|event| is_its(event) && !is_watch(event) && !is_once(event)).collect()
}
