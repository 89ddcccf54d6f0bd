//! At each item the machine loses its power, and its next start has another fault too: each life ends as an undisturbed one does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::limit::{Limit, item};
use super::machine::{Ended, Machine, Source};
use super::payload::{self, Kind, PLAIN, UNATTEND};
use super::{Scratch, image, kills, last, restarts, shell};
use crate::world::step;

const OWN: &str = r"C:\ProgramData\capw";
const STATE: &str = r"C:\ProgramData\capw\state\state.json";
const ARCHIVE: &str = r"C:\ProgramData\capw\payload.gz";
/// Starts that a life may take.
const MOST: usize = 250;
/// How long a file is held: shorter than the two seconds for which the runner retries.
const HELD: Duration = Duration::from_millis(1_200);

/// An additional fault.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The boot task starts a runner, and so does cloudbase-init or the task for the first start.
    TwoRunners,
    /// Zeros, as NTFS leaves them: in the state, in the item's marker, in the kept payload.
    Zeros(&'static str),
    Cut(&'static str),
    /// Another program locks the file for a while.
    Held(&'static str),
    /// The clock is off by this many hours.
    Clock(i32),
    /// The writes of the last second are zeros.
    PowerCut,
}

/// The end of a plan that an answer file starts. It removes both tasks, and nothing starts a runner after that: no power is cut there.
const LAST: [&str; 3] = ["sentinel", "no-secrets", "plan"];

/// A placeholder for the marker of the item at which the power was cut.
const MARKER: &str = "marker";

const ALL: [Trouble; 12] = [
    Trouble::TwoRunners,
    Trouble::Zeros(STATE),
    Trouble::Cut(MARKER),
    Trouble::Held(STATE),
    Trouble::Clock(8),
    Trouble::PowerCut,
    Trouble::Zeros(MARKER),
    Trouble::Cut(STATE),
    Trouble::Held(MARKER),
    Trouble::Clock(-8),
    Trouble::Zeros(ARCHIVE),
    Trouble::Cut(ARCHIVE),
];

/// The path of the runner's file with this name.
fn file(name: &str, item: &str) -> String {
    if name == MARKER { format!(r"C:\ProgramData\capw\state\items\{item}.json") } else { name.to_owned() }
}

fn damage(machine: &Machine, windows: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let path = machine.path(windows);
    // An item that was true from the start has no marker, and before the first item there is no state.
    if let Ok(bytes) = fs::read(&path) {
        fs::write(&path, change(bytes)).expect("a damaged file");
    }
}

/// Fills the runner's recently written files with zeros, except the loader that the boot task starts: it is much older.
fn lose_the_last_second(machine: &Machine) {
    let begun = SystemTime::now() - Duration::from_secs(1);
    for path in crate::world::search::files(&machine.path(OWN)) {
        let changed = fs::metadata(&path).and_then(|data| data.modified()).is_ok_and(|time| time > begun);
        if changed && !path.ends_with("runner/loader.ps1") {
            let length = fs::read(&path).map_or(0, |bytes| bytes.len());
            fs::write(&path, vec![0; length]).expect("zeros");
        }
    }
}

/// Applies a fault before the machine is switched on again.
fn prepare(machine: &Machine, trouble: Trouble, item: &str) {
    match trouble {
        Trouble::Zeros(name) => damage(machine, &file(name, item), |bytes| vec![0; bytes.len()]),
        Trouble::Cut(name) => damage(machine, &file(name, item), |bytes| bytes[..bytes.len() / 2].to_vec()),
        Trouble::Clock(hours) => machine.set_clock(hours),
        Trouble::PowerCut => lose_the_last_second(machine),
        Trouble::TwoRunners | Trouble::Held(_) => {}
    }
}

/// Starts the machine and waits until another item is reported.
fn start(machine: &Machine, kind: Kind, source: &Source, troubles: &[Trouble], item: &str, limit: &Limit) -> Ended {
    let (mut scripts, mut beside) = (machine.entries(source), Vec::new());
    for trouble in troubles {
        match trouble {
            Trouble::TwoRunners if matches!(source, Source::Tasks) => {
                let others: Vec<_> =
                    if kind.unattend { scripts.drain(..scripts.len().saturating_sub(1)).collect() } else { vec![machine.user_data()] };
                beside.extend(others.iter().map(|argv| machine.spawn(argv)));
            }
            Trouble::Held(name) if machine.path(&file(name, item)).exists() => beside.push(machine.hold_a_while(&file(name, item), HELD)),
            _ => {}
        }
    }
    let ended = machine.run_each(&scripts, Some(limit));
    // The child was killed with the machine, or ends soon: it waited for the same lock.
    for mut child in beside {
        child.wait().expect("a child");
    }
    ended
}

/// Carries a plan out; after every `every` items the power is cut and the next faults of `turns` apply. Returns the items.
fn troubled(kind: Kind, turns: &[&[Trouble]], every: usize) -> Vec<String> {
    let wanted = kills::undisturbed(kind);
    let scratch = Scratch::new("items");
    let (mut machine, _) = payload::start(kind, scratch.path());
    let (mut source, mut stops) = (payload::first(kind), Vec::new());
    let mut known: BTreeSet<String> = if kind.unattend { LAST.map(str::to_owned).into() } else { BTreeSet::new() };
    let (mut troubles, mut stopped): (&[Trouble], String) = (&[], String::new());
    for _ in 0..MOST {
        let limit = Limit { reports: every, ..Limit::at_another_item(&known) };
        let ended = start(&machine, kind, &source, troubles, &stopped, &limit);
        troubles = &[];
        if machine.is_finished() || last(&machine).contains(" plan failed ") {
            break;
        }
        machine.switch_off();
        if matches!(ended, Ended::Killed) {
            let report = machine.report();
            known.extend(report.iter().map(|line| item(line).to_owned()));
            stopped = report.last().map(|line| item(line).to_owned()).unwrap_or_default();
            troubles = turns[stops.len() % turns.len()];
            step(format!("{stopped}: {troubles:?}"));
            troubles.iter().for_each(|trouble| prepare(&machine, *trouble, &stopped));
            stops.push(stopped.clone());
        } else {
            // 1002: the runner could not save the data that later starts need.
            assert!(restarts(&machine, &ended) || matches!(ended, Ended::Code(1002)), "{ended:?} after {:?}", last(&machine));
        }
        machine.boot();
        payload::serve(&machine);
        source = if machine.read(r"C:\stand-in\kept\tasks.json").contains("capw") { Source::Tasks } else { payload::first(kind) };
    }
    kills::compare(&mut machine, kind, &wanted);
    stops
}

fn is_skipped(test: &str) -> bool {
    let faketime = || (!Path::new(image::FAKETIME).exists()).then(|| "Debian's libfaketime".to_owned());
    let lacks = shell::lacks_windows().or_else(faketime);
    if let Some(lacks) = &lacks {
        shell::skip(test, lacks);
    }
    lacks.is_some()
}

/// Applies each fault at some item.
#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn whatever_else_is_wrong_at_an_item_it_ends_the_same() {
    if is_skipped("whatever_else_is_wrong_at_an_item_it_ends_the_same") {
        return;
    }
    let turns: Vec<&[Trouble]> = ALL.chunks(1).collect();
    let stops = troubled(PLAIN, &turns, 4);
    assert!(stops.len() >= ALL.len(), "too few items: {stops:?}");
}

/// With `CAPW_POWERSHELL=all`: applies the faults at each item.
fn at_each_item(test: &str, kind: Kind, troubles: &[Trouble]) {
    if is_skipped(test) {
        return;
    }
    if !shell::is_thorough() {
        return step(format!("{test}: does nothing without CAPW_POWERSHELL=all"));
    }
    let stops = troubled(kind, &[troubles], 1);
    let spared = if kind.unattend { LAST.len() } else { 0 };
    assert!(stops.len() + spared > 40, "too few items: {stops:?}");
    step(format!("{test}: {} items", stops.len()));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn two_runners_at_each_item() {
    at_each_item("two_runners_at_each_item", PLAIN, &[Trouble::TwoRunners]);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn both_tasks_of_an_answer_file_at_each_item() {
    at_each_item("both_tasks_of_an_answer_file_at_each_item", UNATTEND, &[Trouble::TwoRunners]);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_power_cut_at_each_item() {
    at_each_item("a_power_cut_at_each_item", PLAIN, &[Trouble::PowerCut]);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn zeros_at_each_item() {
    at_each_item("zeros_at_each_item", PLAIN, &[Trouble::Zeros(STATE), Trouble::Zeros(MARKER), Trouble::Zeros(ARCHIVE)]);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn half_files_at_each_item() {
    at_each_item("half_files_at_each_item", PLAIN, &[Trouble::Cut(STATE), Trouble::Cut(MARKER), Trouble::Cut(ARCHIVE)]);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn the_state_is_held_at_each_item_on_a_fast_clock() {
    at_each_item("the_state_is_held_at_each_item_on_a_fast_clock", PLAIN, &[Trouble::Held(STATE), Trouble::Clock(8)]);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn the_marker_is_held_at_each_item_on_a_slow_clock() {
    at_each_item("the_marker_is_held_at_each_item_on_a_slow_clock", PLAIN, &[Trouble::Held(MARKER), Trouble::Clock(-8)]);
}
