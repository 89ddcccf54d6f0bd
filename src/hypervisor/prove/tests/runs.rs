//! Runs at a simulated hypervisor: the failing case, and that nothing that CAPW created is left and everything else stays.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lab::Lab;
use crate::api::hypervisor::{Simulated, SimulatedDelays};
use crate::hypervisor::prove::cases::CASES;
use crate::hypervisor::prove::outcome::{Outcome, Verdict};
use crate::hypervisor::prove::proof::prove;
use crate::hypervisor::prove::removal::remove;
use crate::hypervisor::prove::run::Run;
use crate::hypervisor::{DriverError, DriverStep, Wanted};
use crate::vm::MachineKey;

fn words(outcomes: &[Outcome], verdict: Verdict) -> Vec<&str> {
    outcomes.iter().filter(|outcome| outcome.verdict == verdict).map(|outcome| outcome.words.as_str()).collect()
}

fn seconds(n: i64) -> SimulatedDelays {
    SimulatedDelays { create_milliseconds: n * 1000, ..SimulatedDelays::default() }
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_reached_fails_in_the_first_case_and_no_other_is_run() {
    let lab = Lab::new();
    let outcomes = lab.prove(Simulated { unreachable: true, ..Simulated::default() }).await;
    assert!(words(&outcomes, Verdict::Failed)[0].contains("spec.simulated.unreachable"));
    assert_eq!(words(&outcomes, Verdict::NotRun), ["it needs: login, identity and rights"; 12]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_are_told_with_their_case_and_nothing_is_left() {
    let lab = Lab::new();
    let outcomes = lab.prove(Simulated { failing_calls: Some(5), ..Simulated::default() }).await;
    let failed = words(&outcomes, Verdict::Failed);
    assert!(!failed.is_empty() && failed.iter().all(|words| words.contains("spec.simulated.failingCalls")), "{failed:?}");
    assert!(outcomes.iter().all(|outcome| !outcome.is_left));
    assert_eq!(lab.left(), Vec::<PathBuf>::new());
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_too_long_is_told_with_the_flag_and_nothing_is_left() {
    let lab = Lab::new();
    let outcomes = lab.prove(Simulated { delays: seconds(3600), ..Simulated::default() }).await;
    let failed = words(&outcomes, Verdict::Failed);
    assert!(failed.len() > 5 && failed.iter().all(|words| words.contains("longer than 600 s") && words.contains("--timeout")), "{failed:?}");
    assert_eq!(lab.left(), Vec::<PathBuf>::new());
}

#[tokio::test(start_paused = true)]
async fn stopped_at_any_request_it_ends_and_leaves_nothing() {
    let whole = Lab::new();
    assert!(whole.prove(Simulated { delays: seconds(60), ..Simulated::default() }).await.iter().all(Outcome::is_good));
    let requests = whole.requests.load(Ordering::Relaxed);
    for n in (1..requests).step_by(5) {
        let lab = Lab::stopped_at(n);
        let outcomes = lab.prove(Simulated { delays: seconds(60), ..Simulated::default() }).await;
        let not_run = words(&outcomes, Verdict::NotRun);
        assert!(outcomes.len() == CASES.len() && words(&outcomes, Verdict::Failed).is_empty(), "at request {n}");
        assert!(n + 40 > requests || not_run.contains(&"stopped"), "at request {n}: {not_run:?}");
        assert!(lab.left().is_empty() && lab.ledger.keys().is_empty(), "at request {n}: {:?}", lab.left());
        assert!(lab.requests.load(Ordering::Relaxed) < n + 40, "stopped at request {n}, it goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_is_named_and_ends_the_run() {
    let (lab, connections) = (Lab::new(), AtomicUsize::new(0));
    let simulated = Simulated { delays: seconds(3600), ..Simulated::default() };
    // The connections for login, check, and the case that creates a VM.
    let connect = || match connections.fetch_add(1, Ordering::Relaxed) {
        0..4 => lab.connect(&simulated),
        _ => Err(DriverError::Unreachable("the cable is cut".into())),
    };
    let outcomes = prove(&lab.bench(&connect)).await;
    let failed = words(&outcomes, Verdict::Failed);
    let left = format!("may be left: prove-k3x9d0aa-3 ({}): the cable is cut", lab.run.key(3).vm);
    assert!(failed.len() == 1 && failed[0].contains(&left), "{failed:?}");
    assert_eq!(words(&outcomes, Verdict::NotRun), ["something is left of an earlier case"; 10]);
    assert_eq!(lab.left().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_run_has_left_is_removed_by_its_name_and_nothing_else() {
    let (lab, simulated, other) = (Lab::new(), Simulated::default(), "k3x9d0ab".parse::<Run>().unwrap());
    let driver = lab.connect(&simulated).unwrap();
    let connect = || lab.connect(&simulated);
    let bench = lab.bench(&connect);
    // The last machine belongs to no case: only a listing shows it.
    let ours = bench.run.keys(2).into_iter().chain([bench.run.key(99)]);
    let foreign = [other.key(1), MachineKey { cluster: "lab/one".into(), ..bench.run.key(100) }];
    for key in ours.chain(foreign.clone()) {
        let machine = bench.machine(key);
        while machine.advance(&*driver).await.unwrap() != DriverStep::Done {}
    }
    assert_eq!(remove(&bench).await, None);
    let mut left: Vec<String> = driver.list(&Wanted::default()).await.unwrap().rows.into_iter().map(|row| row.key.owner_mark()).collect();
    let mut expected = foreign.map(|key| key.owner_mark());
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
}
