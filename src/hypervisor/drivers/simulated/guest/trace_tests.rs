//! Compares the model with the reports of real runs of run.ps1: for the same plan and the same faults, the same lines. See
//! traces/README.md.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::disk::Disk;
use super::error::JoinError;
use super::image::Image;
use super::model::{Kept, Model, Run, World};
use crate::bootstrap::plan::{Item, Kind, Plan, Script, state};
use crate::vm::GuestReport;

/// Each run with its plan.
const RUNS: [(&str, &str); 15] = [
    ("containerd-slow", "plain-2022"),
    ("dism-fails", "plain-2022"),
    ("dism-hangs", "plain-2022"),
    ("full-unattend-1.36-2022", "full-unattend"),
    ("full-v1.33.13-2019", "full-2019"),
    ("full-v1.36.3-2022", "full-2022"),
    ("full-v1.36.3-2025", "full-2025"),
    ("join-fails-always", "plain-2022"),
    ("join-fails-once", "plain-2022"),
    ("join-hangs", "plain-2022"),
    ("kubelet-dies", "plain-2022"),
    ("ok", "plain-2022"),
    ("plain-1.33-2019-c17", "plain-2019"),
    ("plain-1.36-2022", "plain-2022"),
    ("plain-unattend", "plain-unattend"),
];

/// Runs with a shorter time limit in seconds for an item, so that a hanging program does not hang long.
const SHORTER: [(&str, &str, u32); 2] = [("dism-hangs", "containers-feature", 6), ("join-hangs", "join", 8)];

/// The items that Wine, on which the runs were recorded, forgets at a start of Windows, so that the runner repeated them; and the reason.
const FORGOTTEN: [(&str, &str); 3] = [
    ("time-zone", "Wine writes the host's into the registry at each start"),
    ("containerd-environment", "the security descriptors of keys are gone"),
    ("containerd-running", "it is started again after its environment was set again"),
];

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/hypervisor/drivers/simulated/guest/traces")
}

fn plan(run: &str, name: &str) -> Plan {
    let text = fs::read_to_string(traces().join(format!("plans/{name}.json"))).unwrap();
    let mut plan: Plan = serde_json::from_str(&text).unwrap();
    for (_, id, seconds) in SHORTER.iter().filter(|(shorter, ..)| *shorter == run) {
        plan.items.iter_mut().find(|item| item.id == *id).unwrap().seconds = *seconds;
    }
    plan
}

/// The content of the recorded machine beside the simulator's images.
#[derive(Deserialize)]
struct Beside {
    programs: Vec<String>,
    features: Vec<String>,
}

/// The machine of the recorded runs, with the Windows that the plan is for.
fn image(plan: &Plan) -> Image {
    let beside: Beside = serde_json::from_str(&fs::read_to_string(traces().join("machine.json")).unwrap()).unwrap();
    let build = plan.items.iter().find_map(|item| if let Kind::Script(Script::Identity { build }) = item.kind { Some(build) } else { None });
    let mut image = Image { build: build.unwrap(), ..Image::named("") };
    image.programs.extend(beside.programs);
    image.features.extend(beside.features);
    image
}

/// A line of `faults`.
enum Fault {
    /// `program|part of its arguments|exit code|seconds|times`: the program does no work, takes these seconds, and ends with this code.
    Program { name: String, part: String, run: Run, left: i32 },
    /// `fake/die-NAME=1`: the service ends while it starts.
    ServiceDies(String),
    /// `fake/slow-NAME=MILLISECONDS`: the time until the service runs.
    ServiceIsSlow(String, Duration),
}

impl Fault {
    fn parse(line: &str) -> Self {
        if let Some((name, value)) = line.strip_prefix("fake/").and_then(|rest| rest.split_once('=')) {
            let slow = || name.strip_prefix("slow-").map(|name| Self::ServiceIsSlow(name.into(), Duration::from_millis(value.parse().unwrap())));
            let dies = name.strip_prefix("die-").map(|name| Self::ServiceDies(name.into()));
            return dies.or_else(slow).unwrap_or_else(|| panic!("{line}"));
        }
        let [name, part, code, seconds, times] = line.split('|').collect::<Vec<_>>().try_into().unwrap();
        let run = Run { takes: Duration::from_secs_f64(seconds.parse().unwrap()), code: code.parse().unwrap(), said: "error: made to fail".into() };
        Self::Program { name: name.into(), part: part.into(), run, left: times.parse().unwrap() }
    }
}

/// The surroundings of the recorded machine: programs and services with scripted failures, and a cluster that lets everyone join.
struct Bench {
    faults: Vec<Fault>,
    console: String,
}

impl World for Bench {
    fn broken(&self, _item: &Item) -> Option<String> {
        None
    }

    fn program(&mut self, argv: &[String]) -> Option<Run> {
        let (path, arguments) = argv.split_first().unwrap();
        let program = path.rsplit('\\').next().unwrap().trim_end_matches(".exe");
        self.faults.iter_mut().find_map(|fault| match fault {
            Fault::Program { name, part, run, left } if name == program && arguments.join(" ").contains(&*part) && *left != 0 => {
                *left -= 1;
                Some(run.clone())
            }
            _ => None,
        })
    }

    fn service(&self, name: &str) -> Option<Duration> {
        let told = self.faults.iter().find_map(|fault| match fault {
            Fault::ServiceDies(broken) if broken == name => Some(None),
            Fault::ServiceIsSlow(slow, takes) if slow == name => Some(Some(*takes)),
            _ => None,
        });
        told.unwrap_or(Some(Duration::ZERO))
    }

    async fn join(&mut self, _disk: &Disk, _configuration: &str) -> Result<(), JoinError> {
        Ok(())
    }

    async fn reset(&mut self) {}

    async fn say(&mut self, lines: String) {
        self.console += &lines;
    }

    async fn keep(&mut self, _kept: &Kept) -> io::Result<()> {
        Ok(())
    }
}

fn recorded(directory: &Path) -> Vec<GuestReport> {
    let text = fs::read_to_string(directory.join("report.log")).unwrap();
    text.lines().map(|line| GuestReport::parse(line).unwrap_or_else(|| panic!("{}: {line}", directory.display()))).collect()
}

async fn modelled(directory: &Path, plan: &Plan) -> Vec<GuestReport> {
    let faults = fs::read_to_string(directory.join("faults")).unwrap_or_default();
    let bench = Bench { faults: faults.lines().map(Fault::parse).collect(), console: String::new() };
    let mut model = Model::of_image(&image(plan), "win-1", bench);
    model.start();
    model.carry_out(plan).await.unwrap();
    model.world.console.lines().map(|line| GuestReport::parse(line).unwrap()).collect()
}

/// Drops the repeated reports of items that Wine had forgotten, and adds these items to `forgotten`.
fn without_forgotten(reports: Vec<GuestReport>, forgotten: &mut BTreeSet<String>) -> Vec<GuestReport> {
    let mut done: Vec<(String, u32)> = Vec::new();
    let mut kept = Vec::new();
    for report in reports {
        let again = done.iter().any(|(item, boot)| *item == report.item && *boot < report.boot);
        if again && FORGOTTEN.iter().any(|(item, _)| *item == report.item) {
            forgotten.insert(report.item);
            continue;
        }
        if report.state == state::DONE {
            done.push((report.item.clone(), report.boot));
        }
        kept.push(report);
    }
    kept
}

/// The comparable part of a report: without the number of the line, which counts the items that Wine forgot.
fn line(report: &GuestReport) -> String {
    format!("{} {} {} {} {}", report.boot, report.item, report.state, report.code, report.message)
}

fn assert_same(run: &str, recorded: &[String], model: &[String]) {
    let same = recorded.iter().zip(model).take_while(|(recorded, model)| recorded == model).count();
    let differ = (recorded.get(same), model.get(same));
    assert_eq!(differ, (None, None), "{run}: after {same} equal lines the recorded run goes on as on the left, the model as on the right");
}

#[tokio::test(start_paused = true)]
async fn the_model_reports_what_the_runner_reported() {
    let mut forgotten = BTreeSet::new();
    for (run, name) in RUNS {
        let plan = plan(run, name);
        let directory = traces().join(run);
        let model = modelled(&directory, &plan).await;
        assert!((1..).zip(&model).all(|(number, report)| report.sequence == number), "{run}");
        let recorded = without_forgotten(recorded(&directory), &mut forgotten);
        let lines = |reports: &[GuestReport]| reports.iter().map(line).collect::<Vec<_>>();
        assert_same(run, &lines(&recorded), &lines(&model));
    }
    assert_eq!(forgotten, FORGOTTEN.map(|(item, _)| item.to_owned()).into(), "no exception that is not needed");
}

/// The Makefile's target `test-powershell` records runs of today's runner in the directory that CAPW_TRACES names: one folder per run with
/// `node.json`, `faults` and `report.log`. Messages are left out: they hold times.
#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "a test that is told where to look")]
async fn the_model_reports_what_the_runner_reports_today() {
    let Some(fresh) = std::env::var_os("CAPW_TRACES") else { return };
    let mut runs = 0;
    for entry in fs::read_dir(fresh).unwrap() {
        let directory = entry.unwrap().path();
        let plan: Plan = serde_json::from_str(&fs::read_to_string(directory.join("node.json")).unwrap()).unwrap();
        let model = modelled(&directory, &plan).await;
        let recorded = without_forgotten(recorded(&directory), &mut BTreeSet::new());
        let lines = |reports: &[GuestReport]| {
            reports.iter().map(|report| format!("{} {} {} {}", report.boot, report.item, report.state, report.code)).collect::<Vec<_>>()
        };
        assert_same(&directory.display().to_string(), &lines(&recorded), &lines(&model));
        runs += 1;
    }
    assert!(runs > 0, "CAPW_TRACES has no run");
}

#[test]
fn every_recorded_run_is_compared() {
    let folders = fs::read_dir(traces()).unwrap().map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir());
    let found: BTreeSet<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name != "plans").collect();
    assert_eq!(found, RUNS.map(|(run, _)| run.to_owned()).into());
}
