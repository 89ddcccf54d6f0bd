//! A pool in a world without clusters: machines start, fail and disappear as a test requires, and the decisions are carried out on them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::batch::decide;
use super::situation::{Failure, Failures, Goal, Member, ObservedPool, Replace, State};
use super::step::{PoolStep, Why};
use crate::api::pool::{DeletePolicy, Order};

/// The world of a pool. Machines are named `m0`, `m1` and so on, in the order of their creation.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub goal: Goal,
    pub members: Vec<(u32, Member)>,
    pub template: u32,
    pub failures: Failures,
    pub now: Timestamp,
    pub domains: Vec<String>,
    pub made: usize,
}

pub(super) fn goal(replicas: usize, surge: usize, unavailable: usize) -> Goal {
    Goal {
        replicas,
        surge,
        unavailable,
        order: Order::Oldest,
        delete_policy: DeletePolicy::Newest,
        min_ready: Duration::ZERO,
        max_unhealthy: (replicas * 2).div_ceil(5),
    }
}

impl World {
    pub fn new(goal: Goal) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        Self { goal, members: Vec::new(), template: 0, failures: Failures::default(), now, domains: Vec::new(), made: 0 }
    }

    /// A world with that many Ready machines of the template.
    pub fn settled(goal: Goal) -> Self {
        let mut world = Self::new(goal);
        world.run(|_| true);
        world
    }

    pub fn seen(&self) -> Vec<Member> {
        self.members.iter().map(|(template, m)| Member { up_to_date: *template == self.template, ..m.clone() }).collect()
    }

    /// Updates what the status remembers, as the report computes it.
    fn remember(&mut self) {
        let last = self.failures.last;
        if self.seen().iter().any(|m| m.up_to_date && m.is_ready() && last.is_none_or(|last| m.created > last)) {
            self.failures = Failures::default();
        }
    }

    pub fn decide(&mut self) -> PoolStep {
        self.remember();
        let members = self.seen();
        decide(&ObservedPool { goal: &self.goal, members: &members, domains: &self.domains, failures: self.failures }, self.now).step
    }

    /// One pass: decides and carries out.
    pub fn pass(&mut self) -> PoolStep {
        let step = self.decide();
        match &step {
            PoolStep::Wait => {}
            PoolStep::Make(places) => places.iter().for_each(|place| self.make(place.clone())),
            PoolStep::Remove { names, why } => {
                if *why == Why::Failed {
                    let failed = self.members.iter().filter(|(_, m)| names.contains(&m.name) && m.failed_to_start()).count();
                    if failed > 0 {
                        self.failures = Failures { count: self.failures.count + failed, last: Some(self.now) };
                    }
                }
                for (_, m) in self.members.iter_mut().filter(|(_, m)| names.contains(&m.name)) {
                    m.state = State::Leaving { lost: false };
                }
            }
        }
        self.now += SignedDuration::from_secs(1);
        step
    }

    fn make(&mut self, domain: Option<String>) {
        let name = format!("m{}", self.made);
        self.made += 1;
        let state = State::Making { full: false };
        self.members.push((
            self.template,
            Member {
                name,
                created: self.now,
                domain,
                up_to_date: true,
                state,
                failed: None,
                given_up_at: None,
                delete_first: false,
                named: false,
                build: None,
            },
        ));
    }

    /// Advances every machine by one step; machines of a template that is not `good` fail.
    pub fn advance(&mut self, good: &impl Fn(u32) -> bool) {
        self.members.retain(|(_, m)| !m.is_leaving());
        for (template, m) in &mut self.members {
            m.state = match m.state {
                State::Making { .. } => State::Starting,
                State::Starting if good(*template) => State::Ready { since: self.now },
                State::NotReady => State::Ready { since: self.now },
                other => other,
            };
            if m.state == State::Starting && !good(*template) {
                m.failed = Some(Failure { why: "NodeNeverJoined".into(), replace: Replace::InBudget });
            }
        }
        self.now += SignedDuration::from_secs(60);
    }

    /// Repeats passes and steps until nothing changes any more. Returns the number of passes.
    pub fn run(&mut self, good: impl Fn(u32) -> bool) -> usize {
        for passes in 0..10_000 {
            let before = format!("{:?}", self.members);
            self.pass();
            self.advance(&good);
            if format!("{:?}", self.members) == before {
                return passes;
            }
        }
        panic!("it never comes to rest: {self:#?}");
    }

    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|(_, m)| m.name.clone()).collect()
    }

    pub fn member(&mut self, name: &str) -> &mut Member {
        &mut self.members.iter_mut().find(|(_, m)| m.name == name).unwrap_or_else(|| panic!("no machine {name}")).1
    }

    pub fn available(&self) -> usize {
        self.members.iter().filter(|(_, m)| m.is_available(self.goal.min_ready, self.now)).count()
    }
}
