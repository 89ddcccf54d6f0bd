//! Removes one guard at a time: a plan must notice.

use super::life::live;
use super::plan::{Fault, Plan};
use super::world::INFRASTRUCTURE;
use crate::guards::Guard;

const POST_TOKEN: &str = "POST /api/v1/namespaces/kube-system/secrets";
const DELETE_TOKEN: &str = "DELETE /api/v1/namespaces/kube-system/secrets/bootstrap-token-";
pub const POST_MACHINE: &str = "POST /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines";

/// An order in which the watch of the machines is late, and the watch of the pools is in time.
fn late_machines() -> u64 {
    let late = |order: &u64, resource: &str| Plan::default().in_order(*order).late(&format!("{INFRASTRUCTURE}/{resource}")).as_millis();
    let order = (1..1000).find(|order| late(order, "windowsmachines") > 1000 && late(order, "windowsnodepools") == 0);
    order.unwrap()
}

/// Each guard, and a plan that fails without it.
fn noticed() -> Vec<(Guard, Plan)> {
    vec![
        (Guard::MachineFinalizer, Plan::default()),
        (Guard::ConfigFinalizer, Plan::default()),
        (Guard::FoundToken, Plan::after(0, POST_TOKEN, Fault::CrashAfter)),
        // Four machines have joined by then.
        (Guard::TokenBeforeFinalizer, Plan::after(4, DELETE_TOKEN, Fault::RequestLost)),
        (Guard::TokenBeforeReport, Plan::after(0, DELETE_TOKEN, Fault::CrashBefore)),
        (Guard::ProofOfAbsence, Plan::default()),
        (Guard::MadeMachines, Plan::default().in_order(late_machines())),
        (Guard::UnansweredNames, Plan::after(0, POST_MACHINE, Fault::ReplyLost).in_order(late_machines())),
    ]
}

#[test]
fn a_plan_misses_each_guard_that_it_can() {
    let requests = live(&Plan::default());
    for begin in [POST_TOKEN, DELETE_TOKEN, POST_MACHINE] {
        assert!(requests.iter().any(|request| request.starts_with(begin)), "no request is {begin}");
    }
    let kept: Vec<Guard> = noticed().into_iter().filter(|(guard, plan)| guard.without(|| live(plan)).is_ok()).map(|(guard, _)| guard).collect();
    assert_eq!(kept, [], "no plan notices that these are gone");
    for (guard, plan) in noticed() {
        assert!(std::panic::catch_unwind(|| live(&plan)).is_ok(), "the plan for {guard:?} fails with it, too");
    }
}
