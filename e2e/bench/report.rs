//! Renders the numbers as Markdown. It must not measure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cost::PER_ENDPOINT;
use crate::life::{Group, Hypervisor, Life, Stage};

/// Requests and calls of one run by kind, per machine.
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
pub fn table(group: Group, lives: &[Life]) -> String {
    type Cell = fn(&Life) -> String;
    let rows: [(&str, Cell); 23] = [
        ("machines Ready", |life| life.came.to_string()),
        ("**API requests per machine life** (goal for 100 machines: ≤ 18 with a MachineDeployment, ≤ 21 with a MachinePool)", |life| {
            per_machine(life, both(life, all_requests))
        }),
        ("of which writes", |life| per_machine(life, both(life, |stage| stage.requests.writes))),
        ("of which refused (404, 409, …)", |life| per_machine(life, both(life, |stage| stage.requests.refused))),
        ("**writes that changed nothing** (goal 0), in total", |life| both(life, |stage| stage.requests.idle_writes.values().sum()).to_string()),
        ("**hypervisor calls per machine life** (goal ≤ 15)", |life| per_machine(life, both(life, calls_for_machines))),
        ("listings of the hypervisor, in total", |life| both(life, |stage| all_calls(stage) - calls_for_machines(stage)).to_string()),
        ("requests to a real hypervisor per machine life, to make, watch, detach and remove its VM (libvirt: goal ≤ 16)", |life| {
            per_machine(life, both(life, wire_for_machines))
        }),
        ("requests to a real hypervisor per machine life, to read what its guest says", |life| per_machine(life, both(life, words))),
        ("at rest, per minute: writes", |life| life.rest.requests.writes.to_string()),
        ("at rest, per minute: API requests", |life| life.rest.requests.all().to_string()),
        ("at rest, per minute: hypervisor calls", |life| all_calls(&life.rest).to_string()),
        ("at rest, per minute: requests to a real hypervisor (libvirt: goal ≤ 2 for each listing)", |life| at_rest(&life.rest).to_string()),
        ("memory (RSS) with all machines Ready, MiB (goal for 100 machines: ≤ 40)", |life| (life.resident >> 20).to_string()),
        ("processor per machine life, ms (goal ≤ 25, which depends on the computer)", |life| {
            milliseconds(life.create.processor + life.delete.processor, life.machines)
        }),
        ("an object waited for its pass, s: 99 % (until all were Ready)", |life| life.waits.within(99)),
        ("all machines Ready after, s", |life| seconds(life.create.took)),
        ("all machines gone after, s", |life| seconds(life.delete.took)),
        ("Machine created → Node registered, s: median", |life| share(&life.joined, 50)),
        ("Machine created → Node registered, s: 95 %", |life| share(&life.joined, 95)),
        ("start of the process → first write, s", |life| seconds(life.restart)),
        ("VM removed from outside → condition says so, s (libvirt: goal ≤ 2)", |life| seconds(life.noticed)),
        ("a real hypervisor answers nothing → machines say so, s: 95 % (goal ≤ 30)", |life| share(&life.told, 95)),
    ];
    let heads: Vec<String> = lives.iter().map(|life| format!("{} machines", life.machines)).collect();
    let mut text = format!("\n| of a {group} | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(lives.len()));
    for (name, cell) in rows {
        let cells: Vec<String> = lives.iter().map(cell).collect();
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    text
}

/// The goal for the slowest of twenty machines, and for the report of one machine.
const SOON: Duration = Duration::from_secs(30);
/// The goal for noticing a removed VM where libvirt sends events, from the end of the removal.
const TOLD: Duration = Duration::from_secs(2);
/// Requests to libvirt that create, watch, detach and remove a VM.
const LIFE: usize = 16;
/// Requests to libvirt of one listing when no guest reports.
const LISTING: usize = 2;
/// The number of simulated VMs for which the next goals are set: fewer share the cost of their cluster, and more need more memory. A real
/// hypervisor returns tasks, each of which is a write into the status.
const HUNDRED: usize = 100;
/// The memory of the process, in bytes.
const MEMORY: u64 = 40 << 20;

/// The API requests in the life of a machine. A pool creates two objects of its machine, and deletes the Machine.
fn requests_of(group: Group) -> usize {
    match group {
        Group::Deployment => 18,
        Group::Pool => 21,
    }
}

/// The goals that a run missed, as messages. Only goals that hold on every computer are included, which leaves out processor time, and times of a
/// real host.
pub fn missed(life: &Life) -> Vec<String> {
    let mut missed = Vec::new();
    let mut hold = |is_met: bool, words: String| missed.extend((!is_met).then(|| format!("{} machines: {words}", life.machines)));
    hold(life.came == life.machines, format!("{} are Ready", life.came));
    // A metric or a user of another name is counted as 0, and would reach each goal.
    let (requests, listings) = (both(life, all_requests), both(life, |stage| calls(stage, "list")));
    hold(requests > 0 && listings > 0, format!("{requests} API requests and {listings} listings of the hypervisor were counted"));
    if life.machines == HUNDRED && life.on == Hypervisor::Simulated {
        let most = requests_of(life.group);
        hold(requests <= most * life.came, format!("{} API requests for each, with {most} allowed", per_machine(life, requests)));
        hold((1..=MEMORY).contains(&life.resident), format!("{} MiB of memory, with {} allowed", life.resident >> 20, MEMORY >> 20));
    }
    let idle = [&life.create, &life.delete].map(|stage| &stage.requests.idle_writes);
    hold(idle.iter().all(|writes| writes.is_empty()), format!("writes that changed nothing: {idle:?}"));
    hold(life.rest.requests.writes == 0, format!("written at rest: {:?}", life.rest.requests.by_kind));
    hold(calls_for_machines(&life.rest) == 0, format!("calls for single machines at rest: {:?}", life.rest.calls));
    let goal = if life.on == Hypervisor::Libvirt { TOLD } else { SOON };
    hold(life.noticed <= goal, format!("the removal of a VM was told after {} s, with {} allowed", seconds(life.noticed), seconds(goal)));
    if life.on == Hypervisor::Libvirt {
        let wire = both(life, wire_for_machines);
        hold((1..=LIFE * life.came).contains(&wire), format!("{} requests to libvirt for each, with {LIFE} allowed", per_machine(life, wire)));
        // One listing may be in progress when the minute begins.
        let (wire, listings) = (at_rest(&life.rest), calls(&life.rest, "list") + 1);
        hold(wire <= LISTING * listings, format!("{wire} requests to libvirt for {listings} listings at rest: {:?}", life.rest.wire));
    }
    let slow = life.told.iter().rev().nth(life.told.len() / 20).copied().unwrap_or_default();
    hold(slow <= SOON, format!("a silent hypervisor was told after {} s", seconds(slow)));
    missed
}

fn both(life: &Life, of: impl Fn(&Stage) -> usize) -> usize {
    of(&life.create) + of(&life.delete)
}

/// Requests to a real hypervisor whose number does not depend on the machines: for a vCenter, the request that waits for changes; for libvirt,
/// the listing, the host's capacity, and the image.
const FOR_ALL: [&str; 9] = [
    "ConnectGetAllDomainStats",
    "ConnectGetDomainCapabilities",
    "ConnectListAllInterfaces",
    "ConnectListAllNetworks",
    "NodeGetMemoryStats",
    "StoragePoolGetInfo",
    "StoragePoolListAllVolumes",
    "StorageVolGetXmlDesc",
    "WaitForUpdatesEx",
];
/// The libvirt requests that describe the host, every ten minutes.
const DESCRIBE: [&str; 3] = ["ConnectGetLibVersion", "NodeGetInfo", "StoragePoolIsActive"];
/// The libvirt requests that read a guest's reports and addresses, once per poll.
const WORDS: [&str; 4] = ["DomainInterfaceAddresses", "QemuDomainAgentCommand", "StorageVolDownload", "StorageVolGetInfo"];

fn wire(stage: &Stage, is_counted: impl Fn(&str) -> bool) -> usize {
    stage.wire.iter().filter(|(request, _)| is_counted(request)).map(|(_, count)| count).sum()
}

fn wire_for_machines(stage: &Stage) -> usize {
    wire(stage, |request| ![&FOR_ALL[..], &DESCRIBE, &WORDS].concat().contains(&request))
}

fn words(stage: &Stage) -> usize {
    wire(stage, |request| WORDS.contains(&request))
}

fn at_rest(stage: &Stage) -> usize {
    wire(stage, |request| !DESCRIBE.contains(&request))
}

fn all_requests(stage: &Stage) -> usize {
    stage.requests.all()
}

fn all_calls(stage: &Stage) -> usize {
    stage.calls.values().sum()
}

fn calls(stage: &Stage, call: &str) -> usize {
    stage.calls.get(call).copied().unwrap_or_default()
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

/// The time within which this percentage was done.
fn share(times: &[Duration], percent: usize) -> String {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).map_or_else(|| "-".to_owned(), |time| seconds(*time))
}
