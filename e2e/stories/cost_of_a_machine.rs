//! The cost of a machine, from nothing to a Node and back: CAPW's requests by verb and resource, and the calls of its driver. If a pass sends an
//! additional request, the test fails. A change of a budget is reviewed like a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cost::{self, PER_ENDPOINT, Versions};
use crate::pools::names;
use crate::workers::{REMOTE_USER, by_capw};
use crate::world::{AuditEvent, Capw, ControlPlane, Kind, Product, text, wait_for};

/// The limit for the removal of objects whose machine has left.
const LIMIT: Duration = Duration::from_secs(60);
/// A wait that lasts this long is reported (`QUIET` in `src/domain/decision.rs`), and so is what the guest does, at each listing of the hypervisor.
const LONG_WAIT: i64 = 10;
/// The most such reports that count until the last one of a machine, and as many until it has left.
const LONG_WAITS: usize = 2;
/// The calls that only the removal of a VM needs.
const REMOVING: [&str; 2] = ["confirm_absence", "retire"];

/// A file in `e2e/stories/budgets`. Its rows are `COUNT NAME  # WHY` or, where timing decides, `FEWEST-MOST NAME  # WHY`, with counts for each
/// machine. The heading above them names the number of machines among which the measured counts are divided.
pub struct Budget {
    file: &'static str,
    text: &'static str,
}

/// Machines of a MachineDeployment, whose objects core creates.
const OF_DEPLOYMENT: Budget = Budget { file: "deployment.txt", text: include_str!("budgets/deployment.txt") };
const ON_VSPHERE: Budget = Budget { file: "vsphere.txt", text: include_str!("budgets/vsphere.txt") };
const ON_PROXMOX: Budget = Budget { file: "proxmox.txt", text: include_str!("budgets/proxmox.txt") };
/// Machines of a pool, which creates the objects with their finalizers.
pub const OF_POOL: Budget = Budget { file: "pool.txt", text: include_str!("budgets/pool.txt") };

/// The budget for machines of a MachineDeployment with VMs of that product; `None`: with simulated VMs.
pub const fn of_deployment(on: Option<Product>) -> Budget {
    match on {
        None => OF_DEPLOYMENT,
        Some(Product::Vsphere) => ON_VSPHERE,
        Some(Product::Proxmox) => ON_PROXMOX,
    }
}

/// Waits until nothing is left of deleted machines, and compares the lives of all machines so far with a budget. Each of them must have joined. The
/// control plane must log with [`cost::AUDIT_POLICY`].
pub async fn assert_within(budget: &Budget, cp: &ControlPlane, capw: &Capw) {
    wait_for("nothing is left of deleted machines", LIMIT, || async {
        let machines = names(&cp.list(Kind::MACHINE, None).await);
        let objects = [cp.list(Kind::WINDOWS_MACHINE, None).await, cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, None).await].concat();
        let mut left = names(&objects.into_iter().filter(is_of_machine).collect::<Vec<_>>());
        left.retain(|name| !machines.contains(name));
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let events = cp.audit();
    assert!(events.iter().any(|event| !event.resource_version.is_empty()), "the audit log has no bodies of responses");
    let idle = Versions::default().count(&events).idle_writes;
    let mut differences: Vec<String> = idle.iter().map(|(kind, count)| format!("{count} {kind}: changed nothing")).collect();
    let mut table: String = budget.text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for part in parts(&events, &cost::calls(capw)) {
        let (different, rows) = part.compare(budget.text);
        differences.extend(different);
        table.push_str(&rows);
    }
    let file = budget.file;
    assert!(differences.is_empty(), "{}\n\nWas that wanted? Then e2e/stories/budgets/{file} should be:\n\n{table}", differences.join("\n"));
}

/// Whether a Machine or a WindowsMachine owns the object. No machine owns the configuration of a pool itself.
fn is_of_machine(object: &Value) -> bool {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|owner| ["Machine", "WindowsMachine"].contains(&text(owner, "/kind")))
}

/// A part of the table: counts that are divided among machines.
#[derive(Debug, Default)]
struct Part {
    heading: String,
    machines: usize,
    /// The number of waits that were reported because they lasted. Each adds one to the upper bound of a row that depends on timing.
    waits: usize,
    /// A smaller count needs no row: it belongs to the cluster, a kind or a minute, not to each machine.
    least: usize,
    counts: BTreeMap<String, usize>,
}

impl Part {
    /// Returns the differences from a budget, and the part as it should be there: rows that are kept stay as they are.
    fn compare(&self, budget: &str) -> (Vec<String>, String) {
        let rows = rows(budget, &self.heading);
        let names: BTreeSet<&str> = self.counts.keys().map(String::as_str).chain(rows.keys().copied()).collect();
        let (mut differences, mut table) = (Vec::new(), format!("{}\n", self.heading));
        for name in names {
            let count = self.counts.get(name).copied().unwrap_or_default();
            let mut row = rows.get(name).copied().unwrap_or_default();
            if !self.keeps(count, row) {
                let each = count as f64 / self.machines as f64;
                differences.push(format!("{each:.2} {name} {}: the budget has {row}", self.heading));
                row = self.measured(count, row);
            }
            if row.most > 0 {
                let why = if row.why.is_empty() { String::new() } else { format!("  # {}", row.why) };
                table.push_str(&format!("  {row:5} {name}{why}\n"));
            }
        }
        (differences, table)
    }

    fn keeps(&self, count: usize, row: Row) -> bool {
        let waits = if row.is_range() { self.waits } else { 0 };
        let is_within = (row.fewest * self.machines..=row.most * self.machines + waits).contains(&count);
        is_within || (row.most == 0 && count < self.least)
    }

    /// The row for a count. A range is one request wide, also if the count happens to be the same for each machine.
    fn measured<'a>(&self, count: usize, row: Row<'a>) -> Row<'a> {
        let most = count.div_ceil(self.machines);
        let is_range = row.is_range() || !count.is_multiple_of(self.machines);
        Row { fewest: most.saturating_sub(usize::from(is_range)), most, ..row }
    }
}

/// A row of a budget: the fewest and the most for each machine, and why they differ.
#[derive(Clone, Copy, Default)]
struct Row<'a> {
    fewest: usize,
    most: usize,
    why: &'a str,
}

impl<'a> Row<'a> {
    /// Parses a line into the name and the row.
    fn parse(line: &'a str) -> (&'a str, Self) {
        let (row, why) = line.split_once('#').unwrap_or((line, ""));
        let (range, name) = row.trim().split_once(' ').unwrap_or_else(|| panic!("{line:?} is not COUNT NAME"));
        let (fewest, most) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse().unwrap_or_else(|e| panic!("{line:?}: {e}"));
        (name.trim(), Self { fewest: number(fewest), most: number(most), why: why.trim() })
    }

    /// Whether timing decides the count.
    fn is_range(&self) -> bool {
        self.fewest < self.most
    }
}

impl Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.is_range() { format!("{}-{}", self.fewest, self.most) } else { self.most.to_string() };
        f.pad(&text)
    }
}

/// The rows below a heading.
fn rows<'a>(budget: &'a str, heading: &str) -> BTreeMap<&'a str, Row<'a>> {
    let below = budget.lines().skip_while(|line| *line != heading).skip(1);
    below.take_while(|line| line.starts_with(' ')).map(Row::parse).collect()
}

/// Divides requests and calls by the part of a life to which they belong.
fn parts(events: &[AuditEvent], calls: &BTreeMap<String, usize>) -> [Part; 3] {
    let is_creation = |event: &&AuditEvent| event.resource == "windowsmachines" && event.subresource.is_empty() && event.code == 201;
    let created: BTreeMap<&str, Timestamp> = events.iter().filter(is_creation).map(|event| (event.name.as_str(), event.time)).collect();
    let mut deleted: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let (mut of_created, mut of_deleted, mut shared) = (Part::default(), Part::default(), Part::default());
    for event in events {
        if event.resource == "machines" && event.verb == "delete" && event.code < 300 {
            deleted.entry(event.name.as_str()).or_insert(event.time);
        }
        if !by_capw(event) || event.verb == "watch" {
            continue;
        }
        let name = event.name.as_str();
        // Tokens and certificate requests have names of their own. A request is deleted with its machine.
        let is_request = event.resource == "certificatesigningrequests" && !name.is_empty();
        let part = if deleted.contains_key(name) || (is_request && event.verb == "delete") {
            &mut of_deleted
        } else if created.contains_key(name) || is_request || name.starts_with("bootstrap-token-") {
            &mut of_created
        } else {
            &mut shared
        };
        *part.counts.entry(cost::kind(event)).or_default() += 1;
    }
    // The number of these depends on the time and the clusters: API servers are probed with their kubeconfigs every 20 s, definitions are checked,
    // and so are the rights in each cluster.
    let of_clusters = ["get /", "get secrets", "get namespaces", "get customresourcedefinitions", "create selfsubjectaccessreviews"];
    shared.counts.retain(|kind, _| !of_clusters.iter().any(|of| kind.starts_with(of)));
    for (call, count) in calls.iter().filter(|(call, _)| !PER_ENDPOINT.contains(&call.as_str())) {
        let part = if REMOVING.contains(&call.as_str()) { &mut of_deleted } else { &mut of_created };
        part.counts.insert(format!("call {call}"), *count);
    }
    let (all, left) = (created.len(), deleted.len());
    assert!(all > 0 && left > 0, "no machine was created, or none was deleted: {created:?}, {deleted:?}");
    [
        Part { heading: format!("for each created machine, of {all}"), machines: all, waits: long_waits(events, &created, &deleted), ..of_created },
        Part { heading: format!("for each deleted machine, of {left}"), machines: left, waits: long_removals(events, &deleted), ..of_deleted },
        Part { heading: format!("for all machines, shared by {all}"), machines: all, least: all, ..shared },
    ]
}

/// The number of long waits until CAPW was done with deleted machines.
fn long_removals(events: &[AuditEvent], deleted: &BTreeMap<&str, Timestamp>) -> usize {
    let lasted = deleted.iter().map(|(name, since)| {
        let last = events.iter().rfind(|event| event.name == *name && by_capw(event)).map_or(*since, |event| event.time);
        waits(last.duration_since(*since).as_secs())
    });
    lasted.sum()
}

/// The number of long waits within these seconds that count.
fn waits(seconds: i64) -> usize {
    usize::try_from(seconds / LONG_WAIT).unwrap_or_default().min(LONG_WAITS)
}

/// The number of long waits until the Nodes of machines were registered and CAPW had written the last report of each.
fn long_waits(events: &[AuditEvent], created: &BTreeMap<&str, Timestamp>, deleted: &BTreeMap<&str, Timestamp>) -> usize {
    let mut last = created.clone();
    for event in events {
        let is_report = by_capw(event) && event.resource == "windowsmachines" && event.subresource == "status";
        let is_node = event.resource == "nodes" && event.verb == "create" && event.code == 201;
        let machine = if is_report { Some(event.name.as_str()) } else { event.user.strip_prefix("system:node:").filter(|_| is_node) };
        let machine = machine.filter(|machine| deleted.get(machine).is_none_or(|deleted| event.time < *deleted));
        if let Some(last) = machine.and_then(|machine| last.get_mut(machine)) {
            *last = event.time;
        }
    }
    created.iter().map(|(machine, since)| waits(last[machine].duration_since(*since).as_secs())).sum()
}

const BUDGET: &str = "# About rows.\nfor each machine, of 5\n  1     create secrets\n  2-3   patch windowsmachines/status  # Late reports.\n";

fn part(counts: &[(&str, usize)]) -> Part {
    let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Part { heading: "for each machine, of 5".to_owned(), machines: 5, counts, ..Part::default() }
}

#[test]
fn a_budget_is_kept_if_no_row_is_over_it_or_below() {
    let status = "patch windowsmachines/status";
    for counts in [10, 12, 15] {
        let (differences, table) = part(&[("create secrets", 5), (status, counts)]).compare(BUDGET);
        assert_eq!(differences, Vec::<String>::new(), "{counts}");
        assert_eq!(format!("# About rows.\n{table}"), BUDGET, "{counts}");
    }
    for (counts, difference, row) in [
        (&[("create secrets", 6), (status, 15)][..], "1.20 create secrets for each machine, of 5: the budget has 1", "  1-2   create secrets\n"),
        (&[("create secrets", 10), (status, 15)], "2.00 create secrets for each machine, of 5: the budget has 1", "  2     create secrets\n"),
        (
            &[("create secrets", 5), (status, 16)],
            "3.20 patch windowsmachines/status for each machine, of 5: the budget has 2-3",
            "  3-4   patch windowsmachines/status  # Late reports.\n",
        ),
        (
            &[("create secrets", 5), (status, 5)],
            "1.00 patch windowsmachines/status for each machine, of 5: the budget has 2-3",
            "  0-1   patch windowsmachines/status  # Late reports.\n",
        ),
        (
            &[("create secrets", 5), (status, 15), ("get machines", 5)],
            "1.00 get machines for each machine, of 5: the budget has 0",
            "  1     get machines\n",
        ),
    ] {
        let (differences, table) = part(counts).compare(BUDGET);
        assert_eq!(differences, [difference]);
        assert!(table.contains(row), "{table}");
        assert_eq!(part(counts).compare(&table).0, Vec::<String>::new(), "the table is the budget that was kept");
    }
}

#[test]
fn a_long_wait_adds_a_report_and_nothing_else() {
    let waited =
        |secrets: usize, reports: usize| Part { waits: 1, ..part(&[("create secrets", secrets), ("patch windowsmachines/status", reports)]) };
    for (secrets, reports, is_kept) in [(5, 16, true), (5, 17, false), (6, 15, false)] {
        assert_eq!(waited(secrets, reports).compare(BUDGET).0.is_empty(), is_kept, "{secrets} {reports}");
    }
}

#[test]
fn a_request_that_names_no_machine_needs_a_row_if_there_is_one_for_each() {
    for (count, is_kept) in [(4, true), (5, false)] {
        let shared = Part { least: 5, ..part(&[("create secrets", 5), ("patch windowsmachines/status", 15), ("list nodes", count)]) };
        assert_eq!(shared.compare(BUDGET).0.is_empty(), is_kept, "{count}");
    }
}

fn event(second: i64, user: &str, verb: &str, resource: &str, name: &str, code: u16) -> AuditEvent {
    AuditEvent {
        user: user.to_owned(),
        user_agent: String::new(),
        verb: verb.to_owned(),
        group: String::new(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name: name.to_owned(),
        code,
        uri: String::new(),
        resource_version: String::new(),
        time: Timestamp::from_second(second).unwrap(),
    }
}

#[test]
fn each_request_and_call_belongs_to_a_part_of_a_life() {
    let (core, capw) = ("core", Capw::USER);
    let events = [
        event(0, core, "create", "windowsmachines", "win-1", 201),
        event(0, core, "patch", "windowsmachines", "win-1", 200),
        event(1, capw, "patch", "windowsmachines", "win-1", 200),
        event(2, REMOTE_USER, "create", "secrets", "bootstrap-token-abcdef", 201),
        event(3, REMOTE_USER, "get", "nodes", "win-1", 404),
        event(3, REMOTE_USER, "update", "certificatesigningrequests", "csr-1", 200),
        event(25, "system:node:win-1", "create", "nodes", "win-1", 201),
        event(26, capw, "get", "secrets", "c1-kubeconfig", 200),
        event(26, REMOTE_USER, "list", "nodes", "", 200),
        event(26, capw, "watch", "windowsmachines", "", 200),
        event(30, core, "delete", "machines", "win-1", 200),
        event(31, capw, "patch", "windowsmachines", "win-1", 409),
        event(32, REMOTE_USER, "delete", "certificatesigningrequests", "csr-1", 200),
    ];
    let calls = [("list", 9), ("observe", 7), ("retire", 2)].map(|(call, count)| (call.to_owned(), count));
    let [created, deleted, shared] = parts(&events, &calls.into());
    let counts = |part: &Part| part.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>();
    let of_created = [
        "7 call observe",
        "1 create secrets (workload)",
        "1 get nodes (workload): 404",
        "1 patch windowsmachines",
        "1 update certificatesigningrequests (workload)",
    ];
    assert_eq!((counts(&created), created.waits, created.machines), (of_created.map(str::to_owned).into(), 2, 1));
    assert_eq!(counts(&deleted), ["2 call retire", "1 delete certificatesigningrequests (workload)", "1 patch windowsmachines: 409"]);
    assert_eq!((counts(&shared), shared.least), (vec!["1 list nodes (workload)".to_owned()], 1));
}
