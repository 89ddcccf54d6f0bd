//! Other faults while a machine carries out its plan: two runners at once, a clock that jumps, files of the runner that are cut,
//! filled with zeros, missing or held by another program.

use std::fs;
use std::time::{Duration, Instant};

use super::machine::{Ended, Machine, Source};
use super::payload::{self, Kind, PLAIN, UNATTEND};
use super::{Scratch, carry, carry_from, image, last, reports, restarts, shell, tail};
use crate::world::step;

const STATE: &str = r"C:\ProgramData\capw\state\state.json";
const MARKER: &str = r"C:\ProgramData\capw\state\items\containerd-config.json";
const RUNNER: &str = r"C:\ProgramData\capw\payload\runner";

/// Stops the plan at its first call of kubeadm, and starts Windows again: most of the plan is done by then.
fn in_the_middle(name: &str) -> (Scratch, Machine) {
    let scratch = Scratch::new(name);
    let (mut machine, _) = payload::start(PLAIN, scratch.path());
    let mut source = payload::first(PLAIN);
    for _ in 0..4 {
        machine.write(r"C:\stand-in\hold-kubeadm", "1");
        match machine.start(&source) {
            Ended::Held(_) => {
                let _ = fs::remove_file(machine.path(r"C:\stand-in\hold-kubeadm"));
                machine.boot();
                payload::serve(&machine);
                return (scratch, machine);
            }
            ended => assert!(restarts(&machine, &ended), "{ended:?} after {:?}", last(&machine)),
        }
        machine.boot();
        payload::serve(&machine);
        source = Source::Tasks;
    }
    panic!("kubeadm was never called: {:?}", last(&machine));
}

fn finishes(machine: &mut Machine) {
    let end = carry_from(machine, Source::Tasks);
    assert!(end.contains(" plan finished 0 "), "{end}\n{}", tail(&machine.log()));
}

/// At the second start of a machine, starts the boot task and another script, each of which starts a runner, at the same time.
fn two_at_once(kind: Kind, scripts: impl FnOnce(&Machine) -> Vec<Vec<String>>) {
    let scratch = Scratch::new("two");
    let (mut machine, _) = payload::start(kind, scratch.path());
    // The first start ends with a restart, and the boot task exists.
    machine.start(&payload::first(kind));
    machine.boot();
    payload::serve(&machine);
    let scripts = scripts(&machine);
    assert_eq!(scripts.len(), 2, "{scripts:?}");
    let runners: Vec<_> = scripts.iter().map(|argv| machine.spawn(argv)).collect();
    let end = Instant::now() + Duration::from_secs(300);
    for mut child in runners {
        while child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "a runner does not end: {:?}", last(&machine));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    if !machine.is_finished() {
        machine.boot();
        payload::serve(&machine);
        finishes(&mut machine);
    }
    let reports = reports(&machine);
    for item in ["join", "containerd-service", "plan"] {
        let done = reports.iter().filter(|report| report.item == item && ["done", "finished"].contains(&report.state.as_str())).count();
        assert_eq!(done, 1, "{item} in {reports:#?}");
    }
    assert!(reports.iter().all(|report| report.state != "failed"), "{reports:#?}");
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn two_runners_at_once_do_the_work_once() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("two_runners_at_once_do_the_work_once", &lacks);
    }
    two_at_once(PLAIN, |machine| machine.entries(&Source::Tasks).into_iter().chain([machine.user_data()]).collect());
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn both_tasks_of_an_answer_file_at_once_do_the_work_once() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("both_tasks_of_an_answer_file_at_once_do_the_work_once", &lacks);
    }
    two_at_once(UNATTEND, |machine| machine.entries(&Source::Tasks));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_damaged_state_does_not_end_the_plan() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_damaged_state_does_not_end_the_plan", &lacks);
    }
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [(&str, Damage); 3] =
        [("cut in half", |bytes| bytes[..bytes.len() / 2].to_vec()), ("filled with zeros", |bytes| vec![0; bytes.len()]), ("empty", |_| Vec::new())];
    let damages = if shell::is_thorough() { &damages[..] } else { &damages[1..2] };
    let files = [STATE, MARKER, &format!(r"{RUNNER}\items.ps1"), &format!(r"{RUNNER}\journal.ps1")];
    let (mut kept, mut machine) = in_the_middle("damaged");
    for file in files {
        for (what, damage) in damages {
            if machine.is_finished() || last(&machine).contains(" plan failed ") {
                (kept, machine) = in_the_middle("damaged");
            }
            let path = machine.path(file);
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
            fs::write(&path, damage(&bytes)).expect("a damaged file");
            let before = machine.report().len();
            finishes(&mut machine);
            step(format!("{file} {what}: {} reports more", machine.report().len() - before));
        }
    }
    drop((machine, kept));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_clock_that_jumps_does_not_end_the_plan() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_clock_that_jumps_does_not_end_the_plan", &lacks);
    }
    if !std::path::Path::new(image::FAKETIME).exists() {
        return shell::skip("a_clock_that_jumps_does_not_end_the_plan", "Debian's libfaketime");
    }
    for hours in [-8, 8] {
        let scratch = Scratch::new("clock");
        // The clock is wrong from the first start on, until the plan synchronizes with a time server.
        let (mut machine, _) = payload::start_with(PLAIN, scratch.path(), |machine| machine.set_clock(hours), |_| ());
        let end = carry(&mut machine, PLAIN);
        assert!(end.contains(" plan finished 0 "), "{hours} h: {end}\n{}", tail(&machine.log()));
        let corrected = machine.calls().iter().any(|call| call.starts_with("w32tm /resync"));
        assert!(corrected, "the clock was right from the start");
        step(format!("the clock was {hours} h off until it was corrected"));
    }
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_runner_that_does_not_load_says_so_and_is_unpacked_again() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_runner_that_does_not_load_says_so_and_is_unpacked_again", &lacks);
    }
    let scratch = Scratch::new("load");
    let (mut machine, _) = payload::start_with(
        PLAIN,
        scratch.path(),
        |_| (),
        |files| {
            files.insert("runner/programs.ps1".into(), b"\"found $found: a drive\"\n".to_vec());
        },
    );
    machine.start(&payload::first(PLAIN));
    let end = last(&machine);
    assert!(end.contains(" plan failed 11 ") && end.contains("programs.ps1:1"), "{end}\n{}", tail(&machine.console()));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn a_file_that_another_program_holds_does_not_silence_the_report() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("a_file_that_another_program_holds_does_not_silence_the_report", &lacks);
    }
    for file in [STATE, MARKER] {
        let (_scratch, mut machine) = in_the_middle("held");
        let mut holder = machine.hold(file);
        let before = machine.report().len();
        machine.start(&Source::Tasks);
        assert!(machine.report().len() > before, "{file}: nothing was said; PowerShell printed:\n{}", tail(&machine.console()));
        let _ = holder.kill();
        let _ = holder.wait();
        if !machine.is_finished() {
            machine.boot();
            payload::serve(&machine);
            finishes(&mut machine);
        }
    }
}
