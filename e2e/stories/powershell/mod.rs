//! Runs everything we ship with a real PowerShell, `make test-powershell`. It requires a PowerShell that `CAPW_PWSH` names: one of this host,
//! which parses and runs the Pester tests, or the folder of one for Windows, which carries out whole plans under Wine.

mod console;
mod image;
mod judge;
mod limit;
mod machine;
mod payload;
mod shell;

mod at_each_item;
mod disturbances;
mod kills;
mod model;
mod parse;
mod pester;
mod plans;
mod programs;

use std::path::Path;

use serde_json::Value;

use self::machine::{Ended, Machine, Source};
use self::payload::Kind;

/// More starts of a machine than any plan needs.
const STARTS: u32 = 8;

/// Starts the machine again until the plan has ended; returns the last report.
fn carry(machine: &mut Machine, kind: Kind) -> String {
    carry_from(machine, payload::first(kind))
}

/// As [`carry`], but `source` runs the first start.
fn carry_from(machine: &mut Machine, mut source: Source) -> String {
    for _ in 0..STARTS {
        let ended = machine.start(&source);
        let last = last(machine);
        if machine.is_finished() || last.contains(" plan failed ") {
            return last;
        }
        assert!(restarts(machine, &ended), "{ended:?} without a restart, after {last:?}; PowerShell printed:\n{}", tail(&machine.console()));
        machine.boot();
        payload::serve(machine);
        source = Source::Tasks;
    }
    panic!("not at its end after {STARTS} starts: {}", last(machine));
}

/// Whether Windows restarts: the runner or cloudbase-init requested it, or the power was cut.
fn restarts(machine: &Machine, ended: &Ended) -> bool {
    machine.wants_restart() || matches!(ended, Ended::Code(1003) | Ended::Crashed)
}

/// The last reported line.
fn last(machine: &Machine) -> String {
    machine.report().pop().unwrap_or_default()
}

/// Carries out the plan of this kind below `directory` and compares the machine with it.
fn finish(kind: Kind, directory: &Path) -> Machine {
    let (mut machine, plan) = payload::start(kind, directory);
    let last = carry(&mut machine, kind);
    assert!(last.contains(" plan finished 0 "), "{}: {last}\n{}", kind.name, tail(&machine.log()));
    machine.switch_off();
    let wrong = judge::differences(&machine, &json(&plan));
    assert!(wrong.is_empty(), "{}:\n{}", kind.name, wrong.join("\n"));
    machine
}

fn json(plan: &capw::bootstrap::Plan) -> Value {
    serde_json::from_str(&plan.json().expect("a plan")).expect("JSON")
}

/// The end of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// A parsed report: start of the machine, item, state, code, message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    boot: u32,
    item: String,
    state: String,
    code: i32,
    message: String,
}

/// The reports of a machine in order. Every line must parse.
fn reports(machine: &Machine) -> Vec<Report> {
    let parse = |line: &String| {
        let mut words = line.splitn(8, ' ');
        let (Some("capw1"), Some(_)) = (words.next(), words.next()) else { panic!("not a report: {line}") };
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (boot, item, state, code, _sum, message) = (next(), next(), next(), next(), next(), next());
        Report { boot: boot.parse().expect(line), item, state, code: code.parse().expect(line), message }
    };
    machine.report().iter().map(parse).collect()
}

/// A directory for one test, which is kept after a failure.
struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(Some(tempfile::Builder::new().prefix(&format!("capw-powershell-{name}.")).tempdir().expect("a directory")))
    }

    fn path(&self) -> &Path {
        self.0.as_ref().expect("until it is dropped").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(directory) = self.0.take().filter(|_| std::thread::panicking() || std::env::var_os("CAPW_KEEP").is_some()) {
            eprintln!("kept for a look: {}", directory.keep().display());
        }
    }
}
