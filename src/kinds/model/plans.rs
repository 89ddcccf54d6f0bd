//! Runs a life with many plans: whatever fails, the end is the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::life::live;
use super::mutations::POST_MACHINE;
use super::plan::{Fault, Plan};

/// The number of event orders in which the ordinary tests may run a plan.
const ORDERS: u64 = 8;

/// The number `nth` of a pseudo-random series that is the same in every run.
fn mix(nth: usize) -> usize {
    (nth + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

fn number(name: &str) -> Option<usize> {
    #[allow(clippy::disallowed_methods)]
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Every fault at every request.
fn singles(requests: usize) -> impl Iterator<Item = Plan> {
    (0..requests).flat_map(|at| Fault::ALL.map(|fault| Plan::numbered(&[(at, fault)])))
}

/// Every pair of requests, with two faults that `seed` chooses.
fn pairs(requests: usize, seed: usize) -> impl Iterator<Item = Plan> {
    let fault = move |one: usize, other: usize| Fault::ALL[mix(seed ^ mix(one * requests + other)) % Fault::ALL.len()];
    (0..requests).flat_map(move |one| (one + 1..requests).map(move |other| Plan::numbered(&[(one, fault(one, other)), (other, fault(other, one))])))
}

/// Runs all plans, on every processor, and returns the failures.
fn run(plans: &[Plan], requests: &[String]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(told) = std::panic::catch_unwind(|| live(plan)) {
                let why = told.downcast_ref::<String>().cloned().unwrap_or_default();
                failed.push(format!("{plan:?} {:?}: {why}", plan.names(requests)));
            }
        }
        failed
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..std::thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// A sample of single faults and of pairs, in several orders of events; with `CAPW_PLANS=SEED`, every fault at every request and every
/// pair of requests.
#[test]
fn whatever_fails_the_end_is_the_same() {
    let requests = live(&Plan::default());
    let count = requests.len();
    let seed = number("CAPW_PLANS");
    let plans: Vec<Plan> = match seed {
        Some(seed) => singles(count).chain(pairs(count, seed)).enumerate().map(|(nth, plan)| plan.in_order((nth + seed) as u64 % ORDERS)).collect(),
        None => {
            let some = (0..count).step_by(14).map(|at| Plan::numbered(&[(at, Fault::ALL[at / 14 % Fault::ALL.len()])]));
            let two = pairs(count, 0).step_by(count * (count - 1) / 2 / 3).take(3);
            some.chain(two).enumerate().map(|(nth, plan)| plan.in_order(nth as u64 % ORDERS)).collect()
        }
    };
    let failed = run(&plans, &requests);
    println!("{count} requests in a life, {} plans, seed {seed:?}", plans.len());
    assert!(failed.is_empty(), "{} of {} plans:\n{}", failed.len(), plans.len(), failed.join("\n"));
}

/// After a create without an answer, the machine is seen before the next try. A user deletes it: the next machine has another name.
#[test]
fn no_name_is_given_twice() {
    live(&Plan::after(2, POST_MACHINE, Fault::ReplyLost));
}
