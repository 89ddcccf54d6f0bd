//! The cost of a machine until its Node is Ready: CAPW's requests about it, by verb and resource. If a reconcile sends an additional request, the
//! test fails. A change of the budget is reviewed like a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use crate::workers::{asked, by_capw};
use crate::world::AuditEvent;

/// Verb and resource, and the number of requests for one machine.
type Budget = [(&'static str, usize)];

/// The budget for a machine of a MachineDeployment, whose objects core creates.
pub const OF_DEPLOYMENT: &Budget = &[
    // Finalizer with the choice of the hypervisor; provider ID.
    ("patch windowsmachines", 2),
    // VM running, Node joined, drive detached, and one report for each phase that takes longer than ten seconds.
    ("patch windowsmachines/status", 6),
    ("patch windowsbootstrapconfigs", 1),
    ("patch windowsbootstrapconfigs/status", 4),
    // The bootstrap data.
    ("create secrets", 1),
    // CAPW approves a certificate only if the name is free.
    ("get nodes (workload)", 3),
    ("update certificatesigningrequests/approval (workload)", 1),
    ("create secrets (workload)", 1),
];

/// The budget for a machine of a pool, which creates the objects with their finalizers.
pub const OF_POOL: &Budget = &[
    ("create windowsmachines", 1),
    ("create windowsbootstrapconfigs", 1),
    ("patch windowsmachines", 1),
    ("patch windowsmachines/status", 6),
    ("patch windowsbootstrapconfigs/status", 4),
    // The time limits for deletion, if the MachinePool has any.
    ("patch machines", 1),
    ("create secrets", 1),
    ("get nodes (workload)", 3),
    ("update certificatesigningrequests/approval (workload)", 1),
    ("create secrets (workload)", 1),
];

/// Compares the requests about these machines with the budget. No other machine may be created in that time.
pub fn assert_within(budget: &Budget, machines: &BTreeSet<String>, events: &[AuditEvent]) {
    let mut found = BTreeMap::<String, usize>::new();
    for event in events.iter().filter(|event| by_capw(event) && event.verb != "watch" && is_about(event, machines) && has_effect(event)) {
        *found.entry(asked(event)).or_default() += 1;
    }
    let over = found.iter().filter(|(kind, count)| {
        let each = budget.iter().find(|(known, _)| known == kind).map_or(0, |(_, each)| *each);
        **count > each * machines.len()
    });
    let over: Vec<String> = over.map(|(kind, count)| format!("{count} times {kind}")).collect();
    assert!(over.is_empty(), "for {} machines: {}, which is over the budget {budget:?}", machines.len(), over.join(", "));
    // A request that happens once per machine must be found, or the search is wrong.
    let once = budget.iter().filter(|(_, each)| *each == 1);
    let missing: Vec<&str> = once.filter(|(kind, _)| found.get(*kind) != Some(&machines.len())).map(|(kind, _)| *kind).collect();
    assert!(missing.is_empty(), "not once for each of {machines:?}: {missing:?} of {found:?}");
}

/// Whether a request counts. Core writes the same objects, so a write that conflicts with core's write is refused and repeated.
fn has_effect(event: &AuditEvent) -> bool {
    !event.is_write() || event.code < 300
}

/// Tokens and certificate requests have their own names. The deletion of a token may belong to an older machine.
fn is_about(event: &AuditEvent, machines: &BTreeSet<String>) -> bool {
    let is_token = event.name.starts_with("bootstrap-token-") && event.verb == "create";
    let is_request = event.resource == "certificatesigningrequests" && !event.name.is_empty();
    is_token || is_request || machines.contains(&event.name)
}
