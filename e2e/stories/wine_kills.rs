//! Story *Wine kills*: the operator, and with it the running Wine guest, is killed before and after some items of the plan and at the restart of
//! Windows. The plan ends like an undisturbed one, as a second guest shows, and kubeadm joins once.

mod disk;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capw::api::name::VmUuid;
use serde_json::json;

use crate::real_windows_node::{CNI, tokens};
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, Patience, simulated_vms, step, text, wait_for, wine};

const LIMIT: Duration = Duration::from_secs(240);
/// The items and states in the guest's reports, in the plan's order.
const KILLS: [(&str, &str); 6] = [
    ("settle", "reboot"),
    ("containerd-service", "done"),
    ("containerd-running", "started"),
    ("join-config", "done"),
    ("join", "done"),
    ("sentinel", "started"),
];
/// Files that hold the token until the machine has joined; kubeadm may have created others.
const TOKEN_BEFORE_JOIN: [&str; 2] =
    ["wine/drive_c/ProgramData/capw/payload/secret/kubeadm-join.yaml", "wine/drive_c/ProgramData/capw/secret/kubeadm-join.yaml"];
/// The time between two polls for the report that triggers a kill, and so the most that a kill is late.
const LOOK: Duration = Duration::from_millis(100);

#[test]
fn killed_wine_guest_ends_the_same() {
    if let Some(lacks) = wine::lacks(&[&wine::kubernetes()]) {
        return wine::skip("killed_wine_guest_ends_the_same", &lacks);
    }
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("kill-wine")).await;
        let programs = format!("--wine-programs={}", wine::programs().display());
        let capw = Capw::start(&cp, &[&programs]).await;
        let mut workers = Workers {
            replicas: 1,
            driver: json!({"simulated": {"guest": "Wine"}}),
            bootstrap: json!({"files": [{"path": CNI.0, "content": CNI.1}]}),
            ..Workers::new("killed", &cp).await
        };
        workers.apply(&cp).await;
        let tokens = tokens(&cp, &workers).await;
        // The guest continues until it is killed. The kill may interrupt the join, or come before the guest has stored that it sent a report: then
        // the guest sends the report again.
        let (mut cut, mut late, mut untold) = (0, 0, Vec::new());
        for (item, state) in KILLS {
            let reported = || async {
                let console = console(capw.state()).ok_or("no guest yet")?;
                let lines = std::fs::read_to_string(&console).unwrap_or_default();
                let last = lines.lines().last().unwrap_or_default().to_owned();
                match (reports(&lines, item, state), reports(&lines, item, "done")) {
                    (0, 0) => Err(last),
                    (exact, _) => Ok(exact == 0),
                }
            };
            // After a start of Windows, a service may start automatically, and its item then has nothing to start.
            late += usize::from(soon(&format!("{item} {state}"), reported).await);
            capw.kill();
            wait_for("nothing of the guest runs", LIMIT, || async {
                let left = crate::real_windows_node::processes_of(capw.state());
                if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
            })
            .await;
            let lines = std::fs::read_to_string(console(capw.state()).expect("a guest")).expect("its console");
            let last = words(lines.lines().last().unwrap_or_default());
            cut += usize::from(lines.lines().map(words).rfind(|(item, _)| *item == "join").is_some_and(|(_, state)| state != "done"));
            untold.extend((last.1 == "done").then(|| last.0.to_owned()));
            step(format!("killed at {item} {state}, when it had said {last:?}"));
            if (item, reports(&lines, "join", "done")) == ("join-config", 0) {
                let vm = simulated_vms(capw.state()).remove(0);
                let found = wine::WineGuest::of(capw.state(), &vm.datacenter, &vm.directory).files_with(&tokens[0]);
                assert!(TOKEN_BEFORE_JOIN.iter().all(|file| found.iter().any(|found| found == file)), "{found:?}");
                step(format!("the token is in {found:?}"));
            }
            capw.start_again().await;
        }
        assert!(late <= 1, "{late} of the kills came too late");
        workers.wait_settled(&cp, &cp, LIMIT).await;
        let finished = || async {
            let lines = std::fs::read_to_string(console(capw.state()).ok_or("no guest")?).map_err(|error| error.to_string())?;
            if reports(&lines, "plan", "finished") > 0 { Ok(()) } else { Err(lines.lines().last().unwrap_or_default().to_owned()) }
        };
        wait_for("the plan is at its end", LIMIT, finished).await;
        let lines = std::fs::read_to_string(console(capw.state()).expect("a guest")).expect("its console");
        for item in ["join", "sentinel", "no-secrets"] {
            let most = 1 + untold.iter().filter(|untold| *untold == item).count();
            assert!((1..=most).contains(&reports(&lines, item, "done")), "{item} in:\n{lines}");
        }
        // An interrupted join runs again, and once more if it fails because of the first one's leftovers.
        let started = reports(&lines, "join", "started");
        assert!((1..=1 + 2 * cut).contains(&started), "kubeadm ran {started} times, and was cut {cut} times:\n{lines}");
        let joined = lines.lines().skip_while(|line| words(line) != ("join", "done"));
        assert!(joined.map(words).all(|said| said != ("join", "started")), "kubeadm ran again after it had joined:\n{lines}");
        assert_eq!(reports(&lines, "plan", "finished"), 1, "{lines}");
        let requests = cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await.len();
        assert!((1..=started).contains(&requests), "{requests} certificates for {started} joins");
        let nodes = cp.list(Kind::NODE, None).await;
        assert_eq!(nodes.len(), 1);
        assert!(nodes.iter().all(workers::is_ready), "{}", text(&nodes[0], "/metadata/name"));

        step("a second guest, which nothing disturbs");
        workers.replicas = 2;
        cp.patch(Kind::MACHINE_DEPLOYMENT, &workers.name(&workers.cluster), &json!({"spec": {"replicas": 2}})).await.expect("it is scaled");
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        let mut states = Vec::new();
        for machine in &machines {
            let name = workers.name(text(machine, "/spec/infrastructureRef/name"));
            wait_for(&format!("the plan of {name} is at its end"), LIMIT, || async {
                let own = cp.get(Kind::WINDOWS_MACHINE, &name).await.ok_or("no WindowsMachine")?;
                if text(&own, "/status/bootstrap/state") == "finished" { Ok(()) } else { Err(own["status"]["bootstrap"].to_string()) }
            })
            .await;
            let own = cp.get(Kind::WINDOWS_MACHINE, &name).await.expect("its WindowsMachine");
            let id = VmUuid::of(text(&own, "/metadata/uid")).to_string();
            let vm = simulated_vms(capw.state()).into_iter().find(|vm| vm.directory == id).expect("its VM");
            let guest = wine::WineGuest::of(capw.state(), &vm.datacenter, &vm.directory);
            let names =
                [(id, "<vm>"), (text(machine, "/status/nodeRef/name").to_owned(), "<node>"), (text(&own, "/metadata/uid").to_owned(), "<uid>")];
            states.push(disk::state(&guest, &names));
        }
        let differ = disk::differences(&states[0], &states[1]);
        assert!(differ.is_empty(), "the killed guest is another one now:\n{}", differ.join("\n"));
        let of = |kind: &str| states[0].keys().filter(|name| name.starts_with(kind)).count();
        let (files, values, services) = (of("file "), of("value "), of("service "));
        assert!(files > 20 && values > 10 && services > 1, "too little is compared: {:#?}", states[0].keys());
        step(format!("both have the same {files} files, {values} registry values and {services} services"));
    });
}

/// Waits for a value, and polls more often than [`wait_for`].
async fn soon<T, E: Display>(what: &str, look: impl AsyncFn() -> Result<T, E>) -> T {
    let mut patience = Patience::new(LIMIT);
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) => assert!(!patience.is_over(), "waited {patience} for: {what}\nlast seen: {seen}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the path of the only guest's console.
fn console(state: &Path) -> Option<PathBuf> {
    simulated_vms(state).first().map(|vm| state.join(&vm.datacenter).join(&vm.directory).join("console.log"))
}

/// Returns how often the guest reported this item and state.
fn reports(lines: &str, item: &str, state: &str) -> usize {
    lines.lines().filter(|line| words(line) == (item, state)).count()
}

/// Returns the item and the state of a report.
fn words(line: &str) -> (&str, &str) {
    let mut words = line.split(' ').skip(3);
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}
