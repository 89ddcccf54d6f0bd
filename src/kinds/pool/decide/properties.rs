//! Invariants for any history: bounds at every step, removals in the order of the policy, and an end.

use std::time::Duration;

use proptest::prelude::*;

use super::model::{World, goal};
use super::situation::{Failure, Goal, Member, Replace, State};
use super::step::{PoolStep, Why};
use crate::api::pool::{DeletePolicy, Order};

/// An event between two passes.
#[derive(Clone, Debug)]
enum Event {
    Scale(usize),
    Template(u32),
    Advance,
    NotReady(prop::sample::Index),
    Outage,
    Fail(prop::sample::Index, Replace),
    Mark(prop::sample::Index),
    Name(prop::sample::Index),
    Full(prop::sample::Index),
    Gone(prop::sample::Index),
    Lost(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<prop::sample::Index>;
    let replace = prop_oneof![Just(Replace::InBudget), Just(Replace::AtOnce), Just(Replace::NotHere)];
    prop_oneof![
        2 => (0_usize..8).prop_map(Event::Scale),
        2 => (0_u32..3).prop_map(Event::Template),
        6 => Just(Event::Advance),
        1 => index().prop_map(Event::NotReady),
        1 => Just(Event::Outage),
        1 => (index(), replace).prop_map(|(i, replace)| Event::Fail(i, replace)),
        1 => index().prop_map(Event::Mark),
        1 => index().prop_map(Event::Name),
        1 => index().prop_map(Event::Full),
        1 => index().prop_map(Event::Gone),
        1 => index().prop_map(Event::Lost),
    ]
}

fn goals() -> impl Strategy<Value = Goal> {
    let order = prop_oneof![Just(Order::Oldest), Just(Order::NotReady), Just(Order::Build)];
    let policy = prop_oneof![Just(DeletePolicy::Newest), Just(DeletePolicy::Oldest)];
    let bounds = (0_usize..4, 0_usize..4).prop_filter("both 0", |(surge, unavailable)| surge + unavailable > 0);
    (0_usize..8, bounds, order, policy, 0_u64..100).prop_map(|(replicas, (surge, unavailable), order, delete_policy, min_ready)| Goal {
        order,
        delete_policy,
        min_ready: Duration::from_secs(min_ready),
        ..goal(replicas, surge, unavailable)
    })
}

fn happen(world: &mut World, event: &Event, good: impl Fn(u32) -> bool) {
    let pick = |world: &World, index: &prop::sample::Index| {
        let names = world.names();
        (!names.is_empty()).then(|| index.get(&names).clone())
    };
    let change = |world: &mut World, index: &prop::sample::Index, change: &dyn Fn(&mut Member)| {
        if let Some(name) = pick(world, index)
            && !world.member(&name).is_leaving()
        {
            change(world.member(&name));
        }
    };
    match event {
        Event::Scale(replicas) => {
            let Goal { surge, unavailable, .. } = world.goal;
            let Goal { max_unhealthy, .. } = goal(*replicas, surge, unavailable);
            world.goal = Goal { replicas: *replicas, max_unhealthy, ..world.goal.clone() };
        }
        Event::Template(template) => world.template = *template,
        Event::Advance => world.advance(&good),
        Event::NotReady(i) => change(world, i, &|m| {
            if m.is_ready() {
                m.state = State::NotReady;
            }
        }),
        Event::Outage => world.members.iter_mut().filter(|(_, m)| m.is_ready()).for_each(|(_, m)| m.state = State::NotReady),
        Event::Fail(i, replace) => change(world, i, &|m| m.failed = Some(Failure { why: "GuestFailed".into(), replace: *replace })),
        Event::Mark(i) => change(world, i, &|m| m.delete_first = true),
        Event::Name(i) => change(world, i, &|m| m.named = true),
        Event::Full(i) => change(world, i, &|m| {
            if let State::Making { full } = &mut m.state {
                *full = true;
            }
        }),
        Event::Gone(i) => {
            if let Some(name) = pick(world, i) {
                world.members.retain(|(_, m)| m.name != name);
            }
        }
        Event::Lost(i) => change(world, i, &|m| m.state = State::Leaving { lost: true }),
    }
}

/// Checks that machines are created on the hypervisors with the fewest machines of the template, among the hypervisors with room.
fn spread(world: &World, live: &[&Member], places: &[Option<String>]) -> Result<(), TestCaseError> {
    if world.domains.is_empty() {
        prop_assert!(places.iter().all(Option::is_none));
        return Ok(());
    }
    let on = |domain: &String| live.iter().filter(|m| m.domain.as_ref() == Some(domain)).copied().collect::<Vec<&Member>>();
    let has_room = |domain: &&String| !on(domain).iter().any(|m| m.state == State::Making { full: true });
    let after = |domain: &String| on(domain).iter().filter(|m| m.up_to_date).count() + places.iter().flatten().filter(|p| *p == domain).count();
    let fewest = world.domains.iter().filter(has_room).map(after).min().unwrap_or_default();
    for place in places {
        let place = place.as_ref().filter(|place| world.domains.contains(place) && has_room(place));
        prop_assert!(place.is_some_and(|place| after(place) <= fewest + 1), "{place:?} is not where the fewest are: {places:?}");
    }
    Ok(())
}

/// Checks that the step keeps the promises. Bounds are computed here from scratch, not by the code under test.
fn judge(world: &World, step: &PoolStep) -> Result<(), TestCaseError> {
    let members = world.seen();
    let goal = &world.goal;
    let live: Vec<&Member> = members.iter().filter(|m| !m.is_leaving()).collect();
    let fresh = live.iter().filter(|m| m.up_to_date).count();
    let clearing = members.iter().filter(|m| !m.up_to_date && m.state == State::Leaving { lost: false }).count();
    let rolling = live.len() > fresh || clearing > 0;
    let is_available = |m: &Member| m.is_available(goal.min_ready, world.now);
    let available = live.iter().filter(|m| is_available(m)).count();
    match step {
        PoolStep::Wait => {}
        PoolStep::Make(places) => {
            prop_assert!(!places.is_empty());
            prop_assert!(fresh + places.len() <= goal.replicas, "more of the template than asked for");
            let surge = if rolling { goal.surge } else { 0 };
            prop_assert!(live.len() + clearing + places.len() <= goal.replicas + surge, "above the surge");
            spread(world, &live, places)?;
        }
        PoolStep::Remove { names, why } => {
            prop_assert!(!names.is_empty());
            let victims: Vec<&Member> = names.iter().map(|name| *live.iter().find(|m| m.name == *name).expect("only what is there")).collect();
            let lost = victims.iter().filter(|m| is_available(m)).count();
            let kept: Vec<&&Member> = live.iter().filter(|m| !names.contains(&m.name)).collect();
            match why {
                Why::Named => {
                    prop_assert!(victims.iter().all(|m| m.named) && !kept.iter().any(|m| m.named), "the named and no others");
                }
                Why::Failed => {
                    prop_assert!(victims.iter().all(|m| m.up_to_date && m.failed.is_some()));
                    let ours = victims.iter().filter(|m| m.failed.as_ref().is_some_and(|f| f.replace == Replace::InBudget)).count();
                    let full = live.iter().any(|m| m.state == State::Making { full: true });
                    let missing = if full { 0 } else { goal.replicas.saturating_sub(live.len()) };
                    let starting =
                        |m: &&&Member| m.up_to_date && m.failed.is_none() && matches!(m.state, State::Making { full: false } | State::Starting);
                    let gone = (members.len() - live.len()).max(missing + live.iter().filter(starting).count());
                    prop_assert!(ours == 0 || gone + ours <= goal.max_unhealthy, "more than the budget at once");
                }
                Why::Outdated => {
                    prop_assert!(victims.iter().all(|m| !m.up_to_date));
                    let floor = goal.replicas.saturating_sub(goal.unavailable);
                    prop_assert!(lost == 0 || available - lost >= floor, "below what was promised: {} of {floor}", available - lost);
                    // If all Nodes came back, there would be as many machines as promised.
                    let serves = |m: &Member| matches!(m.state, State::NotReady | State::Ready { .. });
                    let given_up = |m: &Member| m.failed.as_ref().is_some_and(|f| f.replace == Replace::AtOnce);
                    let may_serve = |m: &Member| serves(m) && !given_up(m);
                    let hopes = kept.iter().filter(|m| if m.up_to_date { is_available(m) } else { may_serve(m) }).count();
                    prop_assert!(hopes >= floor || !victims.iter().any(|m| may_serve(m)), "{hopes} of {floor} could come back");
                    let not_ready = |m: &&Member| m.state == State::NotReady && may_serve(m) && !m.delete_first;
                    let unproven = |m: &&Member| m.is_ready() && !is_available(m) && !m.delete_first;
                    if goal.order == Order::NotReady && victims.iter().copied().any(|m| unproven(&m)) {
                        prop_assert!(!kept.iter().any(|m| !m.up_to_date && not_ready(m)), "a Ready one went before one that is not");
                    }
                    let ages = |list: &[&Member]| list.iter().filter(|m| is_available(m) && !m.delete_first).map(|m| m.created).collect::<Vec<_>>();
                    let spared = kept.iter().filter(|m| !m.up_to_date && is_available(m) && !m.delete_first).map(|m| m.created).min();
                    if goal.order == Order::Oldest {
                        prop_assert!(ages(&victims).iter().max() <= spared.as_ref().or(ages(&victims).iter().max()), "an older one was spared");
                    }
                }
                Why::TooMany => {
                    prop_assert!(kept.len() >= goal.replicas, "fewer than asked for");
                    if rolling {
                        let floor = goal.replicas.saturating_sub(goal.unavailable);
                        prop_assert!(lost == 0 || available - lost >= floor, "below what was promised");
                    } else {
                        // Every machine that stays ranks behind every machine that is removed.
                        let class = |m: &Member| (!m.delete_first, m.failed.is_none(), is_available(m));
                        let last = victims.iter().map(|m| class(m)).max();
                        prop_assert!(kept.iter().all(|m| Some(class(m)) >= last), "a machine that should have gone before was spared");
                        let same = |m: &&Member| Some(class(m)) == last;
                        let gone: Vec<_> = victims.iter().copied().filter(same).map(|m| m.created).collect();
                        let stay: Vec<_> = kept.iter().map(|m| **m).filter(same).map(|m| m.created).collect();
                        let right = match goal.delete_policy {
                            DeletePolicy::Newest => stay.iter().all(|s| gone.iter().all(|g| g >= s)),
                            DeletePolicy::Oldest => stay.iter().all(|s| gone.iter().all(|g| g <= s)),
                        };
                        prop_assert!(right, "not whom {:?} names: {gone:?} gone, {stay:?} stay", goal.delete_policy);
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_step_keeps_the_bounds_and_it_ends_as_asked(
        goal in goals(),
        domains in 0_usize..4,
        events in prop::collection::vec(event(), 0..60),
    ) {
        let domains = ["a", "b", "c"].into_iter().take(domains).map(str::to_owned).collect();
        let mut world = World { domains, ..World::new(goal) };
        // Template 2 is broken.
        let good = |template: u32| template != 2;
        for event in &events {
            happen(&mut world, event, good);
            let before = world.clone();
            let step = world.pass();
            judge(&before, &step)?;
        }
        // Afterwards there are no more faults: the test clears the failures that it has set, and hypervisors have room.
        world.members.retain(|(_, m)| m.failed.is_none());
        for (_, m) in &mut world.members {
            if let State::Making { full } = &mut m.state {
                *full = false;
            }
        }
        if world.template == 2 {
            world.template = 0;
        }
        for _ in 0..400 {
            let before = world.clone();
            let step = world.pass();
            judge(&before, &step)?;
            world.advance(&good);
        }
        prop_assert_eq!(world.members.len(), world.goal.replicas, "{:#?}", world);
        prop_assert_eq!(world.available(), world.goal.replicas);
        prop_assert!(world.members.iter().all(|(template, _)| *template == world.template));
    }

    #[test]
    fn setting_the_template_back_ends_with_the_machines_from_before(replicas in 1_usize..12, surge in 1_usize..4, passes in 0_usize..30) {
        let mut world = World::settled(goal(replicas, surge, 0));
        let before = world.names();
        world.template = 2;
        for _ in 0..passes {
            world.pass();
            world.advance(&|template| template != 2);
            prop_assert!(world.available() >= replicas);
        }
        world.template = 0;
        world.run(|template| template != 2);
        prop_assert_eq!(world.names(), before);
    }
}
