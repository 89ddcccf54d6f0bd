//! The batch that is done next: some machines are removed, or some are created, or neither.
//!
//! The order: machines named for removal, surplus, failed, outdated; then missing machines. Each pass sees the effects of the last one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::messages;
use super::situation::{Member, ObservedPool, Replace, State};
use super::step::{PoolStep, Why};
use super::view::View;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::pool::{DeletePolicy, Order};
use crate::domain::decision::Decision;

/// The most machines without a VM at one time, for each hypervisor: more would only wait in the hypervisor's queue.
pub const MAKING: usize = 32;

pub fn decide(s: &ObservedPool<'_>, now: Timestamp) -> Decision<PoolStep> {
    let view = View::of(s, now);
    let removal = [(named(&view), Why::Named), (too_many(&view), Why::TooMany), (failed(&view), Why::Failed), (outdated(&view), Why::Outdated)];
    let step = match removal.into_iter().find(|(names, _)| !names.is_empty()) {
        Some((names, why)) => PoolStep::Remove { names, why },
        None => match missing(&view) {
            places if places.is_empty() => PoolStep::Wait,
            places => PoolStep::Make(places),
        },
    };
    let mut decision = Decision::new(step);
    decision.conditions = messages::conditions(&view, &decision.step);
    decision.requeue_after = next_requeue(&view);
    decision
}

/// The decision when the API server has refused a machine for `why`: the report states the reason, and the next try comes after `left`.
pub fn refused(mut decision: Decision<PoolStep>, why: String, left: Duration) -> Decision<PoolStep> {
    decision.conditions.retain(|condition| condition.type_ != ConditionType::Ready);
    decision.with_condition(Desired::no(ConditionType::Ready, Reason::MachinesRefused, why)).requeue_after(left)
}

/// The conditions when the API server refuses labels or taints of the template on existing Nodes.
pub fn nodes_refused(mut conditions: Vec<Desired>, why: &str) -> Vec<Desired> {
    conditions.retain(|condition| condition.type_ != ConditionType::MachinesUpToDate);
    conditions.push(Desired::no(ConditionType::MachinesUpToDate, Reason::NodesRefused, why));
    conditions
}

/// The time until the next machine becomes available, or is given up, without any event.
fn next_requeue(view: &View<'_>) -> Option<Duration> {
    let available = view.live().filter_map(|m| m.until_available(view.s.goal.min_ready, view.now).flatten());
    let given_up = view.live().filter(|m| m.failed.is_none()).filter_map(|m| Duration::try_from(m.given_up_at?.duration_since(view.now)).ok());
    available.chain(given_up).min()
}

/// Machines that were named for removal. They are removed alone: surplus machines are counted afterwards.
fn named(view: &View<'_>) -> Vec<String> {
    let mut names: Vec<String> = view.live().filter(|m| m.named).map(|m| m.name.clone()).collect();
    names.sort();
    names
}

/// Machines above the ceiling, by [`rank`]. While outdated machines are replaced, the promised number stays available.
fn too_many(view: &View<'_>) -> Vec<String> {
    let excess = view.count().saturating_sub(view.ceiling());
    let mut spare = if view.rolling() { view.available.saturating_sub(view.floor()) } else { view.available };
    let mut candidates: Vec<&Member> = view.live().collect();
    candidates.sort_by_cached_key(|m| rank(view, m));
    let affordable = candidates.into_iter().filter(|m| !view.is_available(m) || take(&mut spare));
    affordable.take(excess).map(|m| m.name.clone()).collect()
}

/// The order in which surplus machines are removed: delete_first, outdated, failed, not available; then by the policy.
fn rank(view: &View<'_>, member: &Member) -> impl Ord + use<> {
    let age = match view.s.goal.delete_policy {
        DeletePolicy::Oldest => (Some(member.created), Reverse(None)),
        DeletePolicy::Newest => (None, Reverse(Some(member.created))),
    };
    (!member.delete_first, member.up_to_date, member.failed.is_none(), view.is_available(member), age, member.name.clone())
}

/// Failed machines of the template, if there are not too many and the template is not in doubt. Outdated machines are handled by
/// [`outdated`].
fn failed(view: &View<'_>) -> Vec<String> {
    if view.stopped {
        return Vec::new();
    }
    // Removed machines count until others have replaced them. Otherwise one batch after another would be removed.
    let away = view.leaving.max(view.coming());
    let mut budget = if view.too_many_unhealthy() { 0 } else { view.s.goal.max_unhealthy.saturating_sub(away) };
    let mut candidates: Vec<&Member> = view.fresh.iter().filter(|m| m.failed.is_some()).copied().collect();
    candidates.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let allowed = candidates.into_iter().filter(|m| match m.failed.as_ref().map(|f| f.replace) {
        Some(Replace::AtOnce) => true,
        Some(Replace::InBudget) => take(&mut budget),
        Some(Replace::NotHere) | None => false,
    });
    allowed.map(|m| m.name.clone()).collect()
}

/// Outdated machines. A machine that never served is removed at once. An available machine is removed if more are available than promised.
/// A machine that is not available but may recover is removed only while the rest would still be as many as promised: an outage that takes
/// the Nodes one after another, or all at once, must not remove the machines too.
fn outdated(view: &View<'_>) -> Vec<String> {
    if view.stopped {
        return Vec::new();
    }
    let mut spare = view.available.saturating_sub(view.floor());
    let hopes = view.old.iter().filter(|m| m.may_serve()).chain(view.fresh.iter().filter(|m| view.is_available(m))).count();
    let mut room = hopes.saturating_sub(view.floor());
    let mut candidates = view.old.clone();
    candidates.sort_by_cached_key(|m| turn(view, m));
    let allowed = candidates.into_iter().filter(|m| match (m.may_serve(), view.is_available(m)) {
        (false, _) => true,
        (true, true) => take(&mut spare),
        (true, false) => take(&mut room),
    });
    allowed.map(|m| m.name.clone()).collect()
}

/// The order in which outdated machines are replaced.
fn turn(view: &View<'_>, member: &Member) -> impl Ord + use<> {
    let first = match view.s.goal.order {
        Order::Oldest => (false, None),
        Order::NotReady => (member.is_ready(), None),
        // A machine without a build has no Node, so nothing is lost with it.
        Order::Build => (false, member.build.clone()),
    };
    (!member.delete_first, first, member.created, member.name.clone())
}

/// The places of the machines to create, one entry each.
fn missing(view: &View<'_>) -> Vec<Option<String>> {
    if view.stopped {
        return Vec::new();
    }
    let wanted = view.s.goal.replicas.saturating_sub(view.fresh.len());
    let room = view.ceiling().saturating_sub(view.count() + view.clearing);
    let mut load = Load::of(view);
    std::iter::repeat_with(|| load.next()).take(wanted.min(room)).map_while(|place| place).collect()
}

/// The number of machines on each hypervisor that may take another one.
struct Load<'a> {
    /// By hypervisor: machines of the template, all machines, and machines without a VM.
    domains: BTreeMap<Option<&'a str>, (usize, usize, usize)>,
}

impl<'a> Load<'a> {
    fn of(view: &View<'a>) -> Self {
        // If the template chooses the hypervisor, every machine counts for the same place.
        let anywhere = view.s.domains.is_empty();
        let place = |m: &'a Member| if anywhere { None } else { m.domain.as_deref() };
        let mut domains: BTreeMap<Option<&str>, (usize, usize, usize)> = BTreeMap::new();
        if anywhere {
            domains.insert(None, (0, 0, 0));
        } else {
            domains.extend(view.s.domains.iter().map(|d| (Some(d.as_str()), (0, 0, 0))));
        }
        for member in view.live() {
            if let Some((fresh, all, making)) = domains.get_mut(&place(member)) {
                *fresh += usize::from(member.up_to_date);
                *all += 1;
                *making += usize::from(matches!(member.state, State::Making { .. }));
            }
        }
        let full = view.live().filter(|m| m.state == State::Making { full: true });
        for member in full {
            domains.remove(&place(member));
        }
        Self { domains }
    }

    /// The hypervisor with the fewest machines; `None` when no hypervisor may take another one.
    fn next(&mut self) -> Option<Option<String>> {
        let free = self.domains.iter_mut().filter(|(_, (.., making))| *making < MAKING);
        let (domain, (fresh, all, making)) = free.min_by_key(|(_, (fresh, all, _))| (*fresh, *all))?;
        *fresh += 1;
        *all += 1;
        *making += 1;
        Some(domain.map(str::to_owned))
    }
}

/// Takes one from the budget. Returns whether any was left.
fn take(budget: &mut usize) -> bool {
    let some = *budget > 0;
    *budget = budget.saturating_sub(1);
    some
}
