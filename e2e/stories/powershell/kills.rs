//! The machine loses its power at each call of a program, and at random moments: each life ends as an undisturbed one does.

use std::time::Duration;

use super::limit::Limit;
use super::machine::{Ended, Machine, Source};
use super::payload::{self, FULL_2022, Kind, PLAIN};
use super::{Scratch, finish, judge, last, reports, restarts, shell, tail};
use crate::world::step;

/// Starts that a life with a kill at each call may take.
const MOST: usize = 250;

/// The state of a machine after an undisturbed life.
pub fn undisturbed(kind: Kind) -> std::collections::BTreeMap<String, String> {
    let scratch = Scratch::new("undisturbed");
    judge::state(&finish(kind, scratch.path()))
}

/// Asserts that the machine has finished its plan, in the same state as after an undisturbed life.
pub fn compare(machine: &mut Machine, kind: Kind, wanted: &std::collections::BTreeMap<String, String>) {
    let end = last(machine);
    assert!(end.contains(" plan finished 0 "), "{}: {end}\n{}", kind.name, tail(&machine.log()));
    machine.switch_off();
    let differ = judge::compare(&judge::state(machine), wanted);
    assert!(differ.is_empty(), "{}: the killed machine is another one:\n{}", kind.name, differ.join("\n"));
    let reports = reports(machine);
    let boots: Vec<u32> = reports.iter().map(|report| report.boot).collect();
    assert!(boots.is_sorted(), "the starts that were reported: {boots:?}");
}

/// Carries a plan out with a kill at each new call of a program; returns the calls.
fn killed_at_each_call(kind: Kind) -> Vec<String> {
    let wanted = undisturbed(kind);
    let scratch = Scratch::new("kills");
    let (mut machine, _) = payload::start(kind, scratch.path());
    // The stand-ins wait at each new command line until they are killed.
    machine.write(r"C:\stand-in\hold-each", "");
    let (mut source, mut calls) = (payload::first(kind), Vec::new());
    for _ in 0..MOST {
        match machine.start(&source) {
            Ended::Held(call) => calls.push(call),
            ended => {
                if machine.is_finished() || last(&machine).contains(" plan failed ") {
                    break;
                }
                assert!(restarts(&machine, &ended), "{ended:?} after {:?}", last(&machine));
            }
        }
        machine.boot();
        payload::serve(&machine);
        // Until the loader has created the boot task, only cloudbase-init starts the loader again.
        source = if machine.read(r"C:\stand-in\kept\tasks.json").contains("capw") { Source::Tasks } else { payload::first(kind) };
    }
    compare(&mut machine, kind, &wanted);
    calls
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn killed_at_each_call_of_a_program_it_ends_the_same() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("killed_at_each_call_of_a_program_it_ends_the_same", &lacks);
    }
    let kind = if shell::is_thorough() { FULL_2022 } else { PLAIN };
    let calls = killed_at_each_call(kind);
    assert!(calls.len() > 10, "too few calls: {calls:?}");
    step(format!("{}: killed at {} calls", kind.name, calls.len()));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn killed_at_random_moments_it_ends_the_same() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("killed_at_random_moments_it_ends_the_same", &lacks);
    }
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| std::process::id().into());
    step(format!("SEED={seed}"));
    let mut random = Random(seed);
    let (kind, kills) = if shell::is_thorough() { (FULL_2022, 40) } else { (PLAIN, 6) };
    let wanted = undisturbed(kind);
    let mut left = kills;
    while left > 0 {
        let scratch = Scratch::new("random");
        let (mut machine, _) = payload::start(kind, scratch.path());
        let mut source = payload::first(kind);
        for _ in 0..6 {
            if left == 0 || machine.is_finished() {
                break;
            }
            let limit = random.limit();
            if matches!(machine.start_for(&source, Some(&limit)), Ended::Killed) {
                left -= 1;
                step(format!("SEED={seed}: killed after {limit:?}, at {:?}", last(&machine)));
            }
            machine.boot();
            payload::serve(&machine);
            source = if machine.read(r"C:\stand-in\kept\tasks.json").contains("capw") { Source::Tasks } else { payload::first(kind) };
        }
        if !machine.is_finished() {
            super::carry_from(&mut machine, source);
        }
        compare(&mut machine, kind, &wanted);
    }
}

/// Numbers that depend on the seed alone (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 |= 1;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// One kill in five comes before the first report: during the start of PowerShell, the loader, or the reading of the plan.
    fn limit(&mut self) -> Limit {
        let (reports, longest) = if self.below(5) == 0 { (0, 6_000) } else { (1 + self.below(80), 1_500) };
        Limit {
            reports: usize::try_from(reports).expect("a small number"),
            then: Duration::from_millis(self.below(longest)),
            known: Default::default(),
        }
    }
}
