//! Story *Wine kills*: the operator, and with it the running Wine guest, is killed before and after some items of the plan and at the restart
//! of Windows. The plan ends as an undisturbed one does, and kubeadm joins once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::real_windows_node::CNI;
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, simulated_vms, step, text, wait_for, wine};

const LIMIT: Duration = Duration::from_secs(240);
/// Item and state in the guest's reports, in the plan's order.
const KILLS: [(&str, &str); 6] = [
    ("settle", "reboot"),
    ("containerd-service", "done"),
    ("containerd-running", "started"),
    ("join-config", "done"),
    ("join", "done"),
    ("sentinel", "started"),
];

#[test]
fn killed_wine_guest_ends_the_same() {
    if let Some(lacks) = wine::lacks(&[&wine::kubernetes()]) {
        return wine::skip("killed_wine_guest_ends_the_same", &lacks);
    }
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("kill-wine")).await;
        let programs = format!("--wine-programs={}", wine::programs().display());
        let capw = Capw::start(&cp, &[&programs]).await;
        let workers = Workers {
            replicas: 1,
            simulated: json!({"guest": "Wine"}),
            bootstrap: json!({"files": [{"path": CNI.0, "content": CNI.1}]}),
            ..Workers::new("killed", &cp).await
        };
        workers.apply(&cp).await;
        for (item, state) in KILLS {
            let reported = || async {
                let console = console(capw.state()).ok_or("no guest yet")?;
                let lines = std::fs::read_to_string(&console).unwrap_or_default();
                let last = lines.lines().last().unwrap_or_default().to_owned();
                if reports(&lines, item, state) > 0 { Ok(()) } else { Err(last) }
            };
            wait_for(&format!("{item} {state}"), LIMIT, reported).await;
            capw.kill();
            step(format!("killed at {item} {state}"));
            wait_for("nothing of the guest runs", Duration::from_secs(10), || async {
                let left = crate::real_windows_node::processes_of(capw.state());
                if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
            })
            .await;
            capw.start_again().await;
        }
        workers.wait_settled(&cp, &cp, LIMIT).await;
        let lines = std::fs::read_to_string(console(capw.state()).expect("a guest")).expect("its console");
        for item in ["join", "sentinel", "no-secrets"] {
            assert_eq!(reports(&lines, item, "done"), 1, "{item} in:\n{lines}");
        }
        assert_eq!(reports(&lines, "join", "started"), 1, "kubeadm ran once:\n{lines}");
        assert_eq!(reports(&lines, "plan", "finished"), 1, "{lines}");
        assert_eq!(cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await.len(), 1);
        let nodes = cp.list(Kind::NODE, None).await;
        assert_eq!(nodes.len(), 1);
        assert!(nodes.iter().all(workers::is_ready), "{}", text(&nodes[0], "/metadata/name"));
    });
}

/// The console of the only guest.
fn console(state: &Path) -> Option<PathBuf> {
    simulated_vms(state).first().map(|vm| state.join(&vm.datacenter).join(&vm.directory).join("console.log"))
}

/// How often the guest reported this.
fn reports(lines: &str, item: &str, state: &str) -> usize {
    lines.lines().filter(|line| line.split(' ').skip(3).take(2).eq([item, state])).count()
}
