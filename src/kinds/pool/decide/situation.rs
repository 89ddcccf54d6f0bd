//! What a decision about a pool depends on: what is asked for, and what each machine is.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::capi::NODE_DELETED;
use crate::api::condition::Reason;
use crate::api::pool::{Amount, DeletePolicy, Health, Order, Strategy, WindowsNodePoolSpec};

/// Everything that the decision depends on.
pub struct ObservedPool<'a> {
    pub goal: &'a Goal,
    pub members: &'a [Member],
    /// WindowsHypervisors that the machines are spread over; empty: the template says.
    pub domains: &'a [String],
    pub failures: Failures,
}

/// What is asked of the pool.
#[derive(Clone, Debug)]
pub struct Goal {
    pub replicas: usize,
    /// Machines above and below that number during a replacement; not both 0.
    pub surge: usize,
    pub unavailable: usize,
    pub order: Order,
    pub delete_policy: DeletePolicy,
    /// So long a Node must be Ready until its machine counts as available.
    pub min_ready: Duration,
    /// Machines that may be unhealthy at once; 0 switches replacement off.
    pub max_unhealthy: usize,
}

impl Goal {
    /// `replicas` and `min_ready` are those of the MachinePool, if one owns the pool.
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

/// A share that is rounded down to nothing, beside no surge, would stop every replacement: then one machine may be missing.
fn bounded(surge: &Amount, unavailable: &Amount, replicas: usize) -> usize {
    match (surge.up(replicas), unavailable.down(replicas)) {
        (0, 0) => 1,
        (_, unavailable) => unavailable.min(replicas),
    }
}

/// Machines of this template that failed and were replaced, since one that was made later became Ready.
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
    /// The WindowsHypervisor that it is on, once that is known.
    pub domain: Option<String>,
    /// Made from the template as it is now.
    pub up_to_date: bool,
    pub state: State,
    pub failed: Option<Failure>,
    /// When it is taken for failed, if its Node stays not Ready.
    pub given_up_at: Option<Timestamp>,
    /// It is to go first when there are too many (an annotation says so).
    pub delete_first: bool,
    /// Its removal was asked for by name, however many there are.
    pub named: bool,
    /// Build of Windows, e.g. `[10, 0, 20348, 2700]`, once its Node has said so.
    pub build: Option<Vec<u32>>,
}

/// How far a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its VM does not run yet; `full`: because the hypervisor has no room for it.
    Making { full: bool },
    /// Its VM runs, its Node was never Ready.
    Starting,
    /// Its Node is Ready since then.
    Ready { since: Timestamp },
    /// Its Node was Ready and is not.
    NotReady,
    /// It is being removed; `lost`: its hypervisor does not answer, so that may take long.
    Leaving { lost: bool },
}

/// Why a machine is taken for failed, and who may replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason of its own condition.
    pub why: String,
    pub replace: Replace,
}

/// Who replaces a failed machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Not the pool: a MachineHealthCheck or a person decides, and has not decided so.
    NotHere,
    /// The pool, within its own budget.
    InBudget,
    /// The pool, at once: a MachineHealthCheck with a budget of its own has said so.
    AtOnce,
}

impl Member {
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    /// It failed before it was of any use: that speaks against its template, unless its VM was removed from outside.
    pub fn failed_to_start(&self) -> bool {
        self.failed.as_ref().is_some_and(|f| f.why != Reason::VirtualMachineRemoved) && matches!(self.state, State::Making { .. } | State::Starting)
    }

    /// It failed by what its Node did or did not do, which a look at the Node can refute.
    pub fn failed_by_its_node(&self) -> bool {
        self.failed.as_ref().is_some_and(|f| f.why != Reason::VirtualMachineRemoved)
    }

    /// It failed because it had no Node: it never joined, or the Node was deleted.
    pub fn had_no_node(&self) -> bool {
        self.failed_to_start() || self.failed.as_ref().is_some_and(|f| f.why == NODE_DELETED)
    }

    /// Its Node has served, and may again. A machine that a MachineHealthCheck has given up does not.
    pub fn may_serve(&self) -> bool {
        let given_up = self.failed.as_ref().is_some_and(|f| f.replace == Replace::AtOnce);
        matches!(self.state, State::Ready { .. } | State::NotReady) && !given_up
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. }) && self.failed.is_none()
    }

    /// `None` when it is available; else how long that will take if it stays Ready, or `Some(None)` when that is not known.
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
