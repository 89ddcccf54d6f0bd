//! The input of a decision about a pool: the goal, and the state of each machine.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::capi::NODE_DELETED;
use crate::api::condition::Reason;
use crate::api::pool::{Amount, DeletePolicy, Health, Order, Strategy, WindowsNodePoolSpec};

/// The input of the decision.
pub struct ObservedPool<'a> {
    pub goal: &'a Goal,
    pub members: &'a [Member],
    /// WindowsHypervisors over which the machines are spread; empty: the template chooses.
    pub domains: &'a [String],
    pub failures: Failures,
}

/// The desired state of the pool.
#[derive(Clone, Debug)]
pub struct Goal {
    pub replicas: usize,
    /// The most machines above and below `replicas` during a replacement; not both 0.
    pub surge: usize,
    pub unavailable: usize,
    pub order: Order,
    pub delete_policy: DeletePolicy,
    /// How long a Node must be Ready until its machine counts as available.
    pub min_ready: Duration,
    /// The most machines that may be unhealthy at once; 0 disables replacement.
    pub max_unhealthy: usize,
}

impl Goal {
    /// Takes `replicas` and `min_ready` from the MachinePool, if one owns the pool.
    pub fn of(spec: &WindowsNodePoolSpec, replicas: i32, min_ready_seconds: i64) -> Self {
        let replicas = usize::try_from(replicas).unwrap_or_default();
        let Strategy { max_surge, max_unavailable, order } = &spec.strategy;
        let Health { max_unhealthy, .. } = &spec.health;
        Self {
            replicas,
            surge: max_surge.up(replicas),
            unavailable: bounded(max_surge, max_unavailable, replicas),
            order: *order,
            delete_policy: spec.delete_policy,
            min_ready: Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or_default()),
            max_unhealthy: max_unhealthy.up(replicas),
        }
    }
}

/// The most machines that may be missing. At least 1 without surge: a share that is rounded down to 0 would stop every replacement.
fn bounded(surge: &Amount, unavailable: &Amount, replicas: usize) -> usize {
    match (surge.up(replicas), unavailable.down(replicas)) {
        (0, 0) => 1,
        (_, unavailable) => unavailable.min(replicas),
    }
}

/// Machines of this template that failed and were replaced, since a machine that was created later became Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    pub count: usize,
    pub last: Option<Timestamp>,
}

/// One machine of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub created: Timestamp,
    /// The machine's WindowsHypervisor, once it is known.
    pub domain: Option<String>,
    /// Whether the machine was created from the current template.
    pub up_to_date: bool,
    pub state: State,
    pub failed: Option<Failure>,
    /// When the machine counts as failed, if its Node stays not Ready.
    pub given_up_at: Option<Timestamp>,
    /// Whether an annotation requests that the machine is removed first when there are too many.
    pub delete_first: bool,
    /// Whether the machine was named for removal, however many machines there are.
    pub named: bool,
    /// Build of Windows, e.g. `[10, 0, 20348, 2700]`, once its Node has reported the build.
    pub build: Option<Vec<u32>>,
}

/// The progress of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The VM does not run yet; `full`: because the hypervisor has no room for it.
    Making { full: bool },
    /// The VM runs, and its Node was never Ready.
    Starting,
    /// The Node has been Ready since then.
    Ready { since: Timestamp },
    /// The Node was Ready and is not Ready any more.
    NotReady,
    /// The machine is being removed; `lost`: its hypervisor does not answer, so the removal may take long.
    Leaving { lost: bool },
}

/// Why a machine counts as failed, and who may replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason in the machine's condition.
    pub why: String,
    pub replace: Replace,
}

/// Who replaces a failed machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Not the pool: a MachineHealthCheck or a person decides, and has not decided to replace the machine.
    NotHere,
    /// The pool, within its own budget.
    InBudget,
    /// The pool, at once: a MachineHealthCheck with a budget of its own has decided so.
    AtOnce,
}

impl Member {
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    /// Whether the machine failed before it served: a sign of a broken template, unless the VM was removed from outside.
    pub fn failed_to_start(&self) -> bool {
        self.failed.as_ref().is_some_and(|f| f.why != Reason::VirtualMachineRemoved) && matches!(self.state, State::Making { .. } | State::Starting)
    }

    /// Whether the machine failed because of its Node, which a read of the Node can refute.
    pub fn failed_by_its_node(&self) -> bool {
        self.failed.as_ref().is_some_and(|f| f.why != Reason::VirtualMachineRemoved)
    }

    /// Whether the machine failed because it had no Node: it never joined, or the Node was deleted.
    pub fn had_no_node(&self) -> bool {
        self.failed_to_start() || self.failed.as_ref().is_some_and(|f| f.why == NODE_DELETED)
    }

    /// Whether the Node has served and may serve again. Not if a MachineHealthCheck has given up the machine.
    pub fn may_serve(&self) -> bool {
        let given_up = self.failed.as_ref().is_some_and(|f| f.replace == Replace::AtOnce);
        matches!(self.state, State::Ready { .. } | State::NotReady) && !given_up
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. }) && self.failed.is_none()
    }

    /// `None` when the machine is available. Otherwise the remaining time if it stays Ready, or `Some(None)` when that time is unknown.
    pub fn until_available(&self, min_ready: Duration, now: Timestamp) -> Option<Option<Duration>> {
        let State::Ready { since } = self.state else { return Some(None) };
        if self.failed.is_some() {
            return Some(None);
        }
        let been = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        min_ready.checked_sub(been).filter(|left| !left.is_zero()).map(Some)
    }

    pub fn is_available(&self, min_ready: Duration, now: Timestamp) -> bool {
        self.until_available(min_ready, now).is_none()
    }
}
