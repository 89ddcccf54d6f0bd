//! The decisions about a pool, case by case.

use super::batch::decide;
use super::model::{World, goal};
use super::situation::{Failure, ObservedPool, Replace, State};
use super::step::{PoolStep, Why};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::pool::{DeletePolicy, Order};

fn said(world: &World, type_: ConditionType) -> Desired {
    let members = world.seen();
    let s = ObservedPool { goal: &world.goal, members: &members, domains: &world.domains, failures: world.failures };
    decide(&s, world.now).conditions.into_iter().find(|c| c.type_ == type_).unwrap()
}

fn removed(step: &PoolStep) -> Vec<&str> {
    match step {
        PoolStep::Remove { names, .. } => names.iter().map(String::as_str).collect(),
        other => panic!("{other:?}"),
    }
}

fn fail(world: &mut World, name: &str, replace: Replace) {
    world.member(name).failed = Some(Failure { why: "NodeNeverJoined".into(), replace });
    world.member(name).state = State::NotReady;
}

#[test]
fn machines_are_made_until_there_are_as_many_as_asked_for() {
    let mut world = World::new(goal(3, 1, 0));
    assert_eq!(world.pass(), PoolStep::Make(vec![None, None, None]));
    assert_eq!(world.pass(), PoolStep::Wait);
    assert_eq!(said(&world, ConditionType::Ready).reason, Reason::ScalingUp);
    world.run(|_| true);
    assert_eq!((world.available(), said(&world, ConditionType::Ready).status), (3, Some(true)));
}

#[test]
fn the_named_go_and_no_others_whatever_the_policy_says() {
    // As the autoscaler does it: fewer machines, and the names of those to remove.
    let mut world = World::settled(goal(4, 1, 0));
    world.goal.replicas = 2;
    for name in ["m0", "m2"] {
        world.member(name).named = true;
    }
    let step = world.pass();
    assert_eq!((removed(&step), matches!(step, PoolStep::Remove { why: Why::Named, .. })), (vec!["m0", "m2"], true));
    assert_eq!(world.pass(), PoolStep::Wait, "no other machine goes while they leave");
    world.run(|_| true);
    assert_eq!(world.names(), ["m1", "m3"]);
    // Named by hand, with an unchanged number: the machine is replaced.
    world.member("m1").named = true;
    world.run(|_| true);
    assert_eq!(world.names(), ["m3", "m4"]);
}

#[test]
fn machines_are_spread_and_no_hypervisor_is_flooded() {
    let mut world = World { domains: vec!["a".into(), "b".into()], ..World::new(goal(100, 1, 0)) };
    let PoolStep::Make(places) = world.pass() else { panic!("nothing is made") };
    let on = |name: &str| places.iter().filter(|p| p.as_deref() == Some(name)).count();
    assert_eq!((on("a"), on("b")), (super::batch::MAKING, super::batch::MAKING));
    // The machines on b got their VMs; a has no room.
    for (_, m) in &mut world.members {
        m.state = if m.domain.as_deref() == Some("b") { State::Starting } else { State::Making { full: true } };
    }
    let PoolStep::Make(places) = world.pass() else { panic!("nothing is made") };
    assert!(places.iter().all(|p| p.as_deref() == Some("b")), "{places:?}");
    assert_eq!(said(&world, ConditionType::Ready).reason, Reason::NoCapacity);
}

#[test]
fn the_policy_names_who_goes_after_those_that_are_marked_outdated_or_not_available() {
    for (policy, gone) in [(DeletePolicy::Newest, ["m1", "m3", "m5", "m4"]), (DeletePolicy::Oldest, ["m1", "m3", "m0", "m2"])] {
        let mut world = World::settled(goal(6, 1, 0));
        for (second, name) in ["m0", "m1", "m2", "m3", "m4", "m5"].into_iter().enumerate() {
            world.member(name).created = jiff::Timestamp::from_second(second as i64).unwrap();
        }
        world.member("m1").delete_first = true;
        world.member("m3").state = State::NotReady;
        world.goal = super::situation::Goal { delete_policy: policy, ..goal(2, 1, 0) };
        let step = world.pass();
        assert!(matches!(step, PoolStep::Remove { why: Why::TooMany, .. }));
        assert_eq!(removed(&step), gone, "{policy:?}");
    }
}

#[test]
fn new_first_within_the_surge() {
    let mut world = World::settled(goal(3, 1, 0));
    world.template = 1;
    assert_eq!(world.pass(), PoolStep::Make(vec![None]));
    assert_eq!(world.pass(), PoolStep::Wait);
    world.advance(&|_| true);
    world.advance(&|_| true);
    assert_eq!(removed(&world.pass()), ["m0"]);
    // The VM of the removed machine still takes room.
    assert_eq!(world.pass(), PoolStep::Wait);
    world.run(|_| true);
    assert_eq!(world.names(), ["m3", "m4", "m5"]);
}

#[test]
fn old_first_when_nothing_may_be_above() {
    let mut world = World::settled(goal(3, 0, 1));
    world.template = 1;
    assert_eq!(removed(&world.pass()), ["m0"]);
    assert_eq!(world.pass(), PoolStep::Wait, "the machine that goes still takes the room");
    world.advance(&|_| true);
    assert_eq!(world.pass(), PoolStep::Make(vec![None]));
    world.run(|_| true);
    assert_eq!(world.names(), ["m3", "m4", "m5"]);
}

#[test]
fn the_order_names_who_is_replaced_first() {
    for (order, first) in [(Order::Oldest, "m0"), (Order::Build, "m2")] {
        let mut world = World::settled(super::situation::Goal { order, ..goal(3, 0, 1) });
        for (name, build) in [("m0", 26100), ("m1", 20348), ("m2", 17763)] {
            world.member(name).build = Some(vec![10, 0, build]);
        }
        world.template = 1;
        assert_eq!(removed(&world.pass()), [first], "{order:?}");
    }
}

/// Of the two unavailable machines, one has just become Ready, and the other is not Ready.
#[test]
fn what_is_not_ready_goes_first_where_that_is_the_order() {
    for (order, first) in [(Order::Oldest, "m0"), (Order::NotReady, "m2")] {
        let mut world = World::settled(super::situation::Goal { order, ..goal(3, 0, 1) });
        world.goal.min_ready = std::time::Duration::from_secs(30);
        world.member("m0").state = State::Ready { since: world.now };
        world.member("m2").state = State::NotReady;
        world.template = 1;
        assert_eq!(removed(&world.pass()), [first], "{order:?}");
        assert_eq!(world.pass(), PoolStep::Wait, "{order:?}");
    }
}

#[test]
fn a_broken_template_stops_after_the_first_batch_and_setting_it_back_keeps_the_machines() {
    let mut world = World::settled(goal(10, 2, 0));
    let before = world.names();
    world.template = 1;
    world.run(|template| template == 0);
    assert_eq!((world.members.len(), world.available()), (12, 10), "two of the new template, and no more");
    assert_eq!(said(&world, ConditionType::Ready).status, Some(true), "all that were promised are there");
    let stopped = said(&world, ConditionType::MachinesUpToDate);
    assert_eq!(stopped.reason, Reason::RolloutStopped);
    assert!(stopped.message.contains("m10 (NodeNeverJoined)") && stopped.message.contains("set it back"), "{}", stopped.message);
    world.template = 0;
    world.run(|template| template == 0);
    assert_eq!(world.names(), before);
}

#[test]
fn a_fixed_template_goes_on() {
    let mut world = World::settled(goal(4, 1, 0));
    world.template = 1;
    world.run(|template| template == 0);
    world.template = 2;
    world.run(|template| template != 1);
    assert!(world.members.iter().all(|(template, _)| *template == 2) && world.available() == 4);
}

#[test]
fn a_template_that_never_works_is_not_tried_for_ever() {
    let mut world = World::new(goal(1, 1, 0));
    world.run(|_| false);
    assert_eq!((world.members.len(), world.failures.count), (1, super::view::TRIES));
    assert_eq!(said(&world, ConditionType::Ready).reason, Reason::RolloutStopped);
}

#[test]
fn failed_machines_are_replaced_within_the_budget() {
    let mut world = World::settled(goal(10, 1, 0));
    ["m0", "m1", "m2", "m3"].iter().for_each(|name| fail(&mut world, name, Replace::InBudget));
    let step = world.pass();
    assert_eq!((removed(&step), matches!(step, PoolStep::Remove { why: Why::Failed, .. })), (vec!["m0", "m1", "m2", "m3"], true));
    fail(&mut world, "m4", Replace::InBudget);
    assert!(matches!(world.pass(), PoolStep::Make(places) if places.len() == 4), "four are on their way out: the fifth waits");
    world.run(|_| true);
    assert_eq!(world.available(), 10);
}

#[test]
fn more_failures_than_the_budget_are_left_alone() {
    let mut world = World::settled(goal(10, 1, 0));
    ["m0", "m1", "m2", "m3", "m4"].iter().for_each(|name| fail(&mut world, name, Replace::InBudget));
    assert_eq!(world.pass(), PoolStep::Wait);
    let told = said(&world, ConditionType::Ready);
    assert_eq!((told.status, told.reason), (Some(false), Reason::TooManyUnhealthy));
    assert!(told.message.contains("m0 (NodeNeverJoined)") && told.message.contains("and 2 more"), "{}", told.message);
    // A MachineHealthCheck has its own budget.
    fail(&mut world, "m0", Replace::AtOnce);
    assert_eq!(removed(&world.pass()), ["m0"]);
}

#[test]
fn what_a_machine_health_check_watches_over_is_not_replaced_here() {
    let mut world = World::settled(goal(3, 1, 0));
    fail(&mut world, "m1", Replace::NotHere);
    assert_eq!(world.pass(), PoolStep::Wait);
}

/// Whatever takes Nodes away, whether the machines count as failed, and one after another or all at once: no more machines are removed than
/// may be missing.
#[test]
fn an_outage_is_no_reason_to_remove_outdated_machines() {
    for (given_up, unavailable) in [(None, 0), (None, 3), (Some(Replace::InBudget), 0), (Some(Replace::InBudget), 3), (Some(Replace::NotHere), 3)] {
        let mut world = World::settled(goal(10, 1, unavailable));
        world.template = 1;
        let mut gone = 0;
        for name in world.names() {
            if !world.member(&name).is_leaving() {
                world.member(&name).state = State::NotReady;
            }
            world.member(&name).failed = given_up.map(|replace| Failure { why: "NodeStatusUnknown".into(), replace });
            if let PoolStep::Remove { names, .. } = world.pass() {
                gone += names.len();
            }
        }
        for _ in 0..10 {
            if let PoolStep::Remove { names, .. } = world.pass() {
                gone += names.len();
            }
        }
        assert_eq!(gone, unavailable, "{given_up:?}");
    }
}

/// kube-apiserver was unavailable for a moment: every Node has only been Ready since then.
#[test]
fn machines_that_are_ready_and_not_yet_available_are_replaced_within_the_bounds() {
    let mut world = World::settled(super::situation::Goal { min_ready: std::time::Duration::from_secs(300), ..goal(10, 0, 2) });
    world.template = 1;
    let now = world.now;
    world.members.iter_mut().for_each(|(_, m)| m.state = State::Ready { since: now });
    assert_eq!(removed(&world.pass()).len(), 2);
    assert_eq!(world.pass(), PoolStep::Wait);
}

#[test]
fn nodes_that_never_come_back_do_not_hold_up_a_new_template() {
    let mut world = World::settled(goal(3, 1, 0));
    world.template = 1;
    for name in world.names() {
        fail(&mut world, &name, Replace::NotHere);
    }
    world.run(|_| true);
    assert_eq!((world.names().len(), world.available()), (3, 3));
}

#[test]
fn a_rollout_that_failed_machines_hold_up_says_so() {
    let mut world = World::settled(goal(10, 2, 0));
    world.template = 1;
    world.pass();
    world.advance(&|_| true);
    world.advance(&|_| true);
    assert_eq!(removed(&world.pass()), ["m0", "m1"], "the first two came up");
    world.advance(&|_| true);
    assert_eq!(world.pass(), PoolStep::Make(vec![None, None]));
    for name in ["m12", "m13"] {
        world.member(name).failed = Some(Failure { why: "GuestFailed".into(), replace: Replace::NotHere });
        world.member(name).state = State::Starting;
    }
    let told = |world: &World| said(world, ConditionType::MachinesUpToDate);
    assert_eq!((world.decide(), told(&world).reason), (PoolStep::Wait, Reason::RolloutStopped));
    let message = told(&world).message;
    assert!(message.contains("4 machines are of the template") && message.contains("m12 (GuestFailed), m13 (GuestFailed)"), "{message}");
    assert_eq!(said(&world, ConditionType::Ready).status, Some(true), "all that were promised are there");
}

#[test]
fn failures_one_after_another_are_replaced_within_the_budget_too() {
    let mut world = World::settled(goal(10, 1, 0));
    for name in ["m0", "m1", "m2", "m3"] {
        fail(&mut world, name, Replace::InBudget);
    }
    world.pass();
    world.advance(&|_| true);
    for name in ["m4", "m5", "m6", "m7"] {
        fail(&mut world, name, Replace::InBudget);
    }
    assert!(matches!(world.pass(), PoolStep::Make(places) if places.len() == 4));
    assert_eq!(world.pass(), PoolStep::Wait, "the first four are not back");
}

#[test]
fn a_machine_that_cannot_be_removed_does_not_keep_the_pool_small() {
    let mut world = World::settled(goal(3, 1, 0));
    for name in world.names() {
        world.member(&name).state = State::Leaving { lost: true };
    }
    assert_eq!(world.pass(), PoolStep::Make(vec![None, None, None]));
}
