//! Runs at a simulated hypervisor: the failing case, and that nothing of ours is left and everything else stays.

mod broken;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::api::hypervisor::{Simulated, SimulatedDelays, WindowsHypervisor, WindowsHypervisorSpec};
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::login::Login;
use crate::hypervisor::prove::*;
use crate::hypervisor::{DriverStep, Wanted, contract};

/// A simulated hypervisor whose requests are counted.
struct Lab {
    state: tempfile::TempDir,
    settings: DriverSettings,
    requests: Arc<AtomicUsize>,
    stop: CancellationToken,
    ledger: Ledger,
    run: Run,
}

impl Lab {
    /// A lab that is stopped at its n-th request.
    fn stopped_at(n: usize) -> Self {
        let (requests, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (count, end) = (requests.clone(), stop.clone());
        let state = tempfile::tempdir().unwrap();
        let mut settings = DriverSettings::uncounted(state.path().into(), 32, contract::clock());
        settings.requests = Arc::new(move |_, _, _| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 == n {
                end.cancel();
            }
        });
        Self { state, settings, requests, stop, ledger: Ledger::default(), run: "k3x9d0aa".parse().unwrap() }
    }

    fn new() -> Self {
        Self::stopped_at(usize::MAX)
    }

    fn connect(&self, simulated: &Simulated) -> Result<Arc<dyn Driver>, DriverError> {
        let spec = WindowsHypervisorSpec { simulated: Some(simulated.clone()), ..WindowsHypervisorSpec::default() };
        Drivers::new(self.settings.clone()).connect(&WindowsHypervisor::new("lab", spec), &Login::default())
    }

    fn bench<'a>(&'a self, connect: &'a Connect<'a>) -> Bench<'a> {
        Bench {
            run: &self.run,
            connect,
            spec: contract::spec(),
            limit: Duration::from_secs(600),
            ledger: &self.ledger,
            stop: &self.stop,
            progress: &|_| (),
            endpoint: OnceLock::new(),
        }
    }

    async fn prove(&self, simulated: Simulated) -> Vec<Outcome> {
        prove(&self.bench(&|| self.connect(&simulated))).await
    }

    /// The directories of VMs and of their leftovers.
    fn left(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.state.path().join(".lab")).into_iter().flatten().map(|entry| entry.unwrap().path());
        all.filter(|path| path.is_dir()).collect()
    }
}

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

#[test]
fn a_case_is_begun_unless_something_forbids_it() {
    let outcome = |case: usize, verdict, is_left| Outcome { is_left, verdict, ..Outcome::not_run(&CASES[case], "") };
    for (outcomes, is_stopped, why) in [
        (vec![], false, None),
        (vec![], true, Some("stopped")),
        (vec![outcome(0, Verdict::Passed, false), outcome(2, Verdict::Failed, false)], false, None),
        (vec![outcome(0, Verdict::Failed, false)], false, Some("it needs: login, identity and rights")),
        (vec![outcome(0, Verdict::Passed, false), outcome(2, Verdict::Failed, true)], false, Some("something is left of an earlier case")),
    ] {
        assert_eq!(obstacle(&outcomes, is_stopped).as_deref(), why);
    }
}
