//! The situation of a pool, grouped for the decision and its messages.

use jiff::Timestamp;

use super::situation::{Failures, Member, ObservedPool, State};

/// How many failed machines of one template are replaced in a row before the template counts as broken.
pub const TRIES: usize = 2;

/// The situation, grouped.
pub(super) struct View<'a> {
    pub s: &'a ObservedPool<'a>,
    pub now: Timestamp,
    /// Machines that are not being removed: `fresh` have the current template, `old` an earlier one.
    pub fresh: Vec<&'a Member>,
    pub old: Vec<&'a Member>,
    /// Outdated machines that are being removed and still take room.
    pub clearing: usize,
    pub leaving: usize,
    pub available: usize,
    /// Whether machines of the template never became Ready, and no later machine did.
    pub stopped: bool,
}

impl<'a> View<'a> {
    pub fn of(s: &'a ObservedPool<'a>, now: Timestamp) -> Self {
        let (leaving, live): (Vec<_>, Vec<_>) = s.members.iter().partition(|m| m.is_leaving());
        let clearing = leaving.iter().filter(|m| !m.up_to_date && m.state == State::Leaving { lost: false }).count();
        let available = live.iter().filter(|m| m.is_available(s.goal.min_ready, now)).count();
        let (fresh, old): (Vec<_>, Vec<_>) = live.into_iter().partition(|m| m.up_to_date);
        let failed = fresh.iter().any(|m| m.failed_to_start());
        let stopped = failed && !is_proven(&fresh, s.failures) && (!old.is_empty() || s.failures.count >= TRIES);
        Self { s, now, fresh, old, clearing, leaving: leaving.len(), available, stopped }
    }

    pub fn live(&self) -> impl Iterator<Item = &'a Member> + '_ {
        self.fresh.iter().chain(&self.old).copied()
    }

    pub fn count(&self) -> usize {
        self.fresh.len() + self.old.len()
    }

    pub fn rolling(&self) -> bool {
        !self.old.is_empty() || self.clearing > 0
    }

    /// The number of machines that must stay available while others are replaced.
    pub fn floor(&self) -> usize {
        self.s.goal.replicas.saturating_sub(self.s.goal.unavailable)
    }

    /// The most machines that may exist.
    pub fn ceiling(&self) -> usize {
        self.s.goal.replicas + if self.rolling() { self.s.goal.surge } else { 0 }
    }

    pub fn is_available(&self, member: &Member) -> bool {
        member.is_available(self.s.goal.min_ready, self.now)
    }

    /// Unhealthy machines: failed, or not Ready any more.
    pub fn unhealthy(&self) -> usize {
        self.live().filter(|m| m.failed.is_some() || m.state == State::NotReady).count()
    }

    /// Machines that are requested and not available yet, unless their hypervisor has no room for them.
    pub fn coming(&self) -> usize {
        let full = self.live().any(|m| m.state == State::Making { full: true });
        let missing = if full { 0 } else { self.s.goal.replicas.saturating_sub(self.count()) };
        missing + self.fresh.iter().filter(|m| m.failed.is_none() && matches!(m.state, State::Making { full: false } | State::Starting)).count()
    }

    pub fn too_many_unhealthy(&self) -> bool {
        self.unhealthy() > self.s.goal.max_unhealthy
    }
}

/// Whether a machine of the template has become Ready since the last failure that was replaced.
pub(super) fn is_proven(fresh: &[&Member], failures: Failures) -> bool {
    fresh.iter().any(|m| m.is_ready() && failures.last.is_none_or(|last| m.created > last))
}
