//! The steps of a drain, and what it waits for.

use std::fmt;
use std::time::Duration;

/// The next step of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainStep {
    /// Cordon the Node, so that it gets no further pods.
    Cordon,
    /// List the pods on the Node.
    List,
    /// Evict these pods, all of them in every pass: the API server knows which may be evicted. `grace`, in seconds, overrides their own.
    Evict {
        pods: Vec<Victim>,
        grace: Option<u32>,
    },
    /// Delete these pods by force, because they have not ended in time.
    Force(Vec<Victim>),
    Wait,
    /// The drain is complete: no pod or volume is left to wait for.
    Done,
    /// The machine is removed with what is left.
    GiveUp,
}

/// One pod, identified by its UID too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A step, what is left to wait for, and when to requeue if the Node does not change before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub step: DrainStep,
    pub left: Left,
    pub requeue_after: Duration,
}

/// The pods and volumes that a drain waits for. Sorted, so that the same pods give the same message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The running pods, which are evicted.
    pub evicted: Vec<Victim>,
    /// The pods that terminate within their grace period.
    pub ending: Vec<Victim>,
    /// The pods that still exist after their grace period.
    pub hung: Vec<Victim>,
    /// The pods that may finish, as their label requires.
    pub completing: Vec<Victim>,
    /// The pods that no controller recreates elsewhere.
    pub without_controller: Vec<Victim>,
    /// The volumes that are still attached although no pod is left.
    pub volumes: Vec<String>,
}

impl Left {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn sort(&mut self) {
        for pods in [&mut self.evicted, &mut self.ending, &mut self.hung, &mut self.completing, &mut self.without_controller] {
            pods.sort();
        }
    }
}
