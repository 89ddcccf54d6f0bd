//! The messages of a pool: numbers and names, never times, so that a message changes only when the state does.

use super::situation::{Member, Replace, State};
use super::step::{PoolStep, Why};
use super::view::View;
use crate::api::condition::{ConditionType, Desired, Reason};

/// The most names in one message.
const NAMES: usize = 3;

pub(super) fn conditions(view: &View<'_>, step: &PoolStep) -> Vec<Desired> {
    vec![up_to_date(view, step), ready(view, step)]
}

/// The condition while some machines cannot be read: the number of machines and their states are unknown. `machines` are their kinds and names.
pub fn unread(machines: &[String]) -> Desired {
    let more = machines.len().checked_sub(NAMES).filter(|more| *more > 0).map(|more| format!(" and {more} more")).unwrap_or_default();
    let named: Vec<&str> = machines.iter().take(NAMES).map(String::as_str).collect();
    let message = format!(
        "CAPW cannot read {}{more} of this pool: no machine is made or removed until that is corrected; the log of CAPW names the field, and so does the condition Ready of a WindowsMachine",
        named.join(", ")
    );
    Desired::no(ConditionType::Ready, Reason::InvalidSpec, message)
}

fn ready(view: &View<'_>, step: &PoolStep) -> Desired {
    let goal = view.s.goal;
    let promised = if view.rolling() { goal.replicas.saturating_sub(goal.unavailable) } else { goal.replicas };
    let no = |why, message| Desired::no(ConditionType::Ready, why, message);
    if view.available >= promised {
        let surplus = !view.rolling() && view.count() > goal.replicas;
        let yes = |why, message: String| Desired::yes(ConditionType::Ready, why).with_message(message);
        return match step {
            _ if surplus => yes(Reason::ScalingDown, format!("{} machines are asked for, {} are there", goal.replicas, view.count())),
            _ if view.leaving > 0 => yes(Reason::Ready, format!("{}; {} being removed", available(view), view.leaving)),
            _ => yes(Reason::Ready, available(view)),
        };
    }
    let failed = failures(&view.live().collect::<Vec<_>>());
    if view.stopped {
        return no(Reason::RolloutStopped, format!("{}; {}", available(view), stopped(view)));
    }
    if view.too_many_unhealthy() && view.unhealthy() > 0 {
        let message = format!(
            "{} of {} machines are unhealthy and spec.health.maxUnhealthy allows {}, so none is replaced by itself{}",
            view.unhealthy(),
            goal.replicas,
            goal.max_unhealthy,
            listed(&failed)
        );
        return no(Reason::TooManyUnhealthy, message);
    }
    let ours = view.live().any(|m| m.failed.as_ref().is_some_and(|f| f.replace != Replace::NotHere));
    if ours || matches!(step, PoolStep::Remove { why: Why::Failed, .. }) {
        return no(Reason::ReplacingUnhealthy, format!("{}; failed{}", available(view), listed(&failed)));
    }
    if !failed.is_empty() {
        let message = format!(
            "{}; failed, and this pool does not replace them{}. Fix the reported causes; a machine that a MachineHealthCheck or a person deletes is created again",
            available(view),
            listed(&failed)
        );
        return no(Reason::MachinesFailed, message);
    }
    if view.live().any(|m| m.state == State::Making { full: true }) {
        return no(Reason::NoCapacity, format!("{}; {} wait for room on their hypervisor", available(view), full(view)));
    }
    no(Reason::ScalingUp, progress(view))
}

fn up_to_date(view: &View<'_>, step: &PoolStep) -> Desired {
    let outdated = view.old.len() + view.clearing;
    if outdated == 0 {
        return Desired::yes(ConditionType::MachinesUpToDate, Reason::UpToDate);
    }
    let no = |why, message| Desired::no(ConditionType::MachinesUpToDate, why, message);
    if view.stopped {
        return no(Reason::RolloutStopped, stopped(view));
    }
    let message = format!("{} machines are of the template as it is now, {outdated} are not yet replaced", view.fresh.len());
    let failed = failures(&view.fresh);
    if failed.is_empty() {
        return no(Reason::RollingOut, message);
    }
    if *step == PoolStep::Wait && view.coming() + view.leaving == 0 {
        let message =
            format!("{message}, and the failed ones are not replaced{}. Fix the template, or delete the failed machines to go on", listed(&failed));
        return no(Reason::RolloutStopped, message);
    }
    no(Reason::RollingOut, format!("{message}; failed{}", listed(&failed)))
}

fn available(view: &View<'_>) -> String {
    format!("{} of {} machines are available", view.available, view.s.goal.replicas)
}

/// The progress of the machines that are not available.
fn progress(view: &View<'_>) -> String {
    let count = |state: fn(&State) -> bool| view.live().filter(|m| state(&m.state)).count();
    let parts = [
        (count(|s| matches!(s, State::Making { .. })), "without a VM yet"),
        (count(|s| matches!(s, State::Starting)), "without a Ready Node yet"),
        (count(|s| matches!(s, State::NotReady)), "not Ready any more"),
        (view.s.goal.replicas.saturating_sub(view.fresh.len()), "not made yet"),
        (view.leaving, "being removed"),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { available(view) } else { format!("{}; {}", available(view), parts.join(", ")) }
}

fn full(view: &View<'_>) -> usize {
    view.live().filter(|m| m.state == State::Making { full: true }).count()
}

/// Why no more machines are created or replaced, and the remedy.
fn stopped(view: &View<'_>) -> String {
    let never_started: Vec<&Member> = view.fresh.iter().copied().filter(|m| m.failed_to_start()).collect();
    let before = match view.s.failures.count {
        0 => String::new(),
        n => format!(" after {n} before"),
    };
    format!(
        "no machine of the template as it is now became Ready{before}, so nothing more is made or replaced{}. Fix the template, or set it back; to try it again, delete the failed machines",
        listed(&failures(&never_started))
    )
}

/// Name and reason of each failed machine.
fn failures<'a>(members: &[&'a Member]) -> Vec<(&'a str, &'a str)> {
    let mut failed: Vec<(&str, &str)> = members.iter().filter_map(|m| Some((m.name.as_str(), m.failed.as_ref()?.why.as_str()))).collect();
    failed.sort_unstable();
    failed
}

fn listed(failed: &[(&str, &str)]) -> String {
    if failed.is_empty() {
        return String::new();
    }
    let mut named: Vec<String> = failed.iter().take(NAMES).map(|(name, why)| format!("{name} ({why})")).collect();
    if failed.len() > NAMES {
        named.push(format!("and {} more", failed.len() - NAMES));
    }
    format!(": {}", named.join(", "))
}
