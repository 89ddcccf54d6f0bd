//! The numbers as Markdown. It must not measure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::life::{Group, Life, Stage};

/// Calls that are made for an endpoint, however many machines are there.
const PER_ENDPOINT: [&str; 2] = ["list", "describe"];

/// Where requests and calls of one run go, per machine.
pub fn costs(life: &Life) -> String {
    let mut text = format!("\n### {} machines: where it goes\n\n| per machine | create | delete |\n|---|---:|---:|\n", life.machines);
    let stages = [&life.create, &life.delete];
    let mut rows = |heading: &str, of: fn(&Stage) -> &BTreeMap<String, usize>| {
        let mut names: Vec<&String> = stages.iter().flat_map(|stage| of(stage).keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let [create, delete] = stages.map(|stage| per_machine(life, of(stage).get(name).copied().unwrap_or_default()));
            text.push_str(&format!("| {heading}: {name} | {create} | {delete} |\n"));
        }
    };
    rows("request", |stage| &stage.requests.by_kind);
    rows("write that changed nothing", |stage| &stage.requests.idle_writes);
    rows("call", |stage| &stage.calls);
    rows("wire", |stage| &stage.wire);
    text
}

/// One column for each run.
pub fn table(of: Group, lives: &[Life]) -> String {
    type Cell = fn(&Life) -> String;
    let rows: [(&str, Cell); 23] = [
        ("machines Ready", |life| life.came.to_string()),
        ("**API requests per machine life** (goal ≤ 14)", |life| per_machine(life, both(life, |stage| stage.requests.all()))),
        ("of which writes", |life| per_machine(life, both(life, |stage| stage.requests.writes))),
        ("of which refused (404, 409, …)", |life| per_machine(life, both(life, |stage| stage.requests.refused))),
        ("**writes that changed nothing** (goal 0), in total", |life| both(life, |stage| stage.requests.idle_writes.values().sum()).to_string()),
        ("**hypervisor calls per machine life** (goal ≤ 15)", |life| per_machine(life, both(life, calls_for_machines))),
        ("listings of the hypervisor, in total", |life| both(life, |stage| all_calls(stage) - calls_for_machines(stage)).to_string()),
        ("requests to a real hypervisor per machine life, those for all machines left out", |life| per_machine(life, both(life, wire_for_machines))),
        ("of which read what the guest says", |life| per_machine(life, both(life, words))),
        ("at rest, per minute: writes", |life| life.rest.requests.writes.to_string()),
        ("at rest, per minute: API requests", |life| life.rest.requests.all().to_string()),
        ("at rest, per minute: hypervisor calls", |life| all_calls(&life.rest).to_string()),
        ("at rest, per minute: requests to a real hypervisor", |life| life.rest.wire.values().sum::<usize>().to_string()),
        ("memory (RSS) with all machines Ready, MiB", |life| (life.resident >> 20).to_string()),
        ("processor per machine life, ms", |life| milliseconds(life.create.processor + life.delete.processor, life.machines)),
        ("an object waited for its pass, s: 99 % (until all were Ready)", |life| life.waits.within(99)),
        ("all machines Ready after, s", |life| seconds(life.create.took)),
        ("all machines gone after, s", |life| seconds(life.delete.took)),
        ("Machine created → Node registered, s: median", |life| share(&life.joined, 50)),
        ("Machine created → Node registered, s: 95 %", |life| share(&life.joined, 95)),
        ("start of the process → first write, s", |life| seconds(life.restart)),
        ("VM removed from outside → condition says so, s", |life| seconds(life.noticed)),
        ("a real hypervisor answers nothing → machines say so, s: 95 % (goal ≤ 30)", |life| share(&life.told, 95)),
    ];
    let heads: Vec<String> = lives.iter().map(|life| format!("{} machines", life.machines)).collect();
    let mut text = format!("\n| of a {of} | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(lives.len()));
    for (name, cell) in rows {
        let cells: Vec<String> = lives.iter().map(cell).collect();
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    text
}

/// For the slowest of twenty machines, and for what one machine says.
const SOON: Duration = Duration::from_secs(30);

/// Goals that a run missed, in words. Only what holds on every machine is one: times of a real host's life are not.
pub fn missed(life: &Life) -> Vec<String> {
    let mut missed = Vec::new();
    let mut hold = |is_met: bool, words: String| missed.extend((!is_met).then(|| format!("{} machines: {words}", life.machines)));
    hold(life.came == life.machines, format!("{} are Ready", life.came));
    let idle = [&life.create, &life.delete].map(|stage| &stage.requests.idle_writes);
    hold(idle.iter().all(|writes| writes.is_empty()), format!("writes that changed nothing: {idle:?}"));
    hold(life.rest.requests.writes == 0, format!("written at rest: {:?}", life.rest.requests.by_kind));
    hold(calls_for_machines(&life.rest) == 0, format!("calls for single machines at rest: {:?}", life.rest.calls));
    hold(life.noticed <= SOON, format!("the removal of a VM was told after {} s", seconds(life.noticed)));
    let slow = life.told.iter().rev().nth(life.told.len() / 20).copied().unwrap_or_default();
    hold(slow <= SOON, format!("a silent hypervisor was told after {} s", seconds(slow)));
    missed
}

fn both(life: &Life, of: impl Fn(&Stage) -> usize) -> usize {
    of(&life.create) + of(&life.delete)
}

/// Requests to a real hypervisor that are made however many machines are there: its listing, its memory, its image; of a vCenter, the one
/// that waits for what it tells.
const FOR_ALL: [&str; 5] =
    ["ConnectGetAllDomainStats", "NodeGetMemoryStats", "StoragePoolListAllVolumes", "StorageVolGetXmlDesc", "WaitForUpdatesEx"];
/// Those that read what a guest says and which addresses it has, as often as it is listened to.
const WORDS: [&str; 3] = ["DomainInterfaceAddresses", "QemuDomainAgentCommand", "StorageVolDownload"];

fn wire_for_machines(stage: &Stage) -> usize {
    stage.wire.iter().filter(|(request, _)| !FOR_ALL.contains(&request.as_str())).map(|(_, count)| count).sum()
}

fn words(stage: &Stage) -> usize {
    WORDS.iter().filter_map(|request| stage.wire.get(*request)).sum()
}

fn all_calls(stage: &Stage) -> usize {
    stage.calls.values().sum()
}

fn calls_for_machines(stage: &Stage) -> usize {
    stage.calls.iter().filter(|(call, _)| !PER_ENDPOINT.contains(&call.as_str())).map(|(_, count)| count).sum()
}

fn per_machine(life: &Life, count: usize) -> String {
    format!("{:.2}", count as f64 / life.came.max(1) as f64)
}

fn milliseconds(time: Duration, machines: usize) -> String {
    format!("{:.0}", time.as_secs_f64() * 1000.0 / machines.max(1) as f64)
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// The time within which so many percent were done.
fn share(times: &[Duration], percent: usize) -> String {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).map_or_else(|| "-".to_owned(), |time| seconds(*time))
}
