//! What a machine costs until its Node is Ready: the requests of CAPW about it, by verb and resource. A request that a pass makes in addition is over
//! the budget, whose change is reviewed like that of a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use crate::workers::{asked, by_capw};
use crate::world::AuditEvent;

/// Verb and resource, and how often they are asked for one machine.
type Budget = [(&'static str, usize)];

/// Of a MachineDeployment, whose objects core makes.
pub const OF_DEPLOYMENT: &Budget = &[
    // Finalizer with the choice of hypervisor; provider ID.
    ("patch windowsmachines", 2),
    // The VM runs, Node joined, drive taken away; what lasts longer than ten seconds is told, too.
    ("patch windowsmachines/status", 6),
    ("patch windowsbootstrapconfigs", 1),
    ("patch windowsbootstrapconfigs/status", 4),
    // Bootstrap data.
    ("create secrets", 1),
    // The name must be free before a certificate is approved.
    ("get nodes (workload)", 3),
    ("update certificatesigningrequests/approval (workload)", 1),
    ("create secrets (workload)", 1),
];

/// Of a pool, which makes the objects with their finalizers.
pub const OF_POOL: &Budget = &[
    ("create windowsmachines", 1),
    ("create windowsbootstrapconfigs", 1),
    ("patch windowsmachines", 1),
    ("patch windowsmachines/status", 6),
    ("patch windowsbootstrapconfigs/status", 4),
    // The time limits of a deletion, where the MachinePool has some.
    ("patch machines", 1),
    ("create secrets", 1),
    ("get nodes (workload)", 3),
    ("update certificatesigningrequests/approval (workload)", 1),
    ("create secrets (workload)", 1),
];

/// Compares what was asked about these machines, while no others were made, with what they may cost.
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
    // What happens once in a life, and was not seen, is looked for in the wrong place.
    let once = budget.iter().filter(|(_, each)| *each == 1);
    let missing: Vec<&str> = once.filter(|(kind, _)| found.get(*kind) != Some(&machines.len())).map(|(kind, _)| *kind).collect();
    assert!(missing.is_empty(), "not once for each of {machines:?}: {missing:?} of {found:?}");
}

/// Core writes the same objects: a write that meets one of its own is refused and tried again.
fn has_effect(event: &AuditEvent) -> bool {
    !event.is_write() || event.code < 300
}

/// Tokens and requests for certificates have names of their own. The deletion of a token may be that of an older machine.
fn is_about(event: &AuditEvent, machines: &BTreeSet<String>) -> bool {
    let is_token = event.name.starts_with("bootstrap-token-") && event.verb == "create";
    let is_request = event.resource == "certificatesigningrequests" && !event.name.is_empty();
    is_token || is_request || machines.contains(&event.name)
}
