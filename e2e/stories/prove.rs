//! Story *prove*: `capw hypervisor prove`, as a process, creates VMs on a real libvirt daemon until Ctrl-C, then removes and reports them.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use capw_libvirtd::Daemon;
use tokio::process::Command;

use crate::world::{self, hardware, interrupt, program, wait_for};

/// The limit until the first VM exists.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn ctrl_c_removes_what_was_made() {
    world::run(async {
        let Some(daemon) = Daemon::start() else { return };
        daemon.pool(hardware::POOL, hardware::IMAGE);
        let file = daemon.path("lab.json");
        fs::write(&file, hardware::manifest(&daemon)).unwrap();
        let mut prove = Command::new(program());
        prove.args(["hypervisor", "prove", "-f"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = prove.process_group(0).kill_on_drop(true).spawn().unwrap();
        wait_for("a VM of the run", LIMIT, || async { (!daemon.domains().is_empty()).then_some(()) }).await;
        interrupt(process.id().unwrap());

        let output = process.wait_with_output().await.unwrap();
        let [table, progress] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert_eq!(output.status.code(), Some(1), "{table}{progress}");
        assert!(progress.contains("stopping: what was made is removed"), "{progress}");
        let is_stopped = table.lines().any(|line| line.contains("not run: ") && line.contains("stopped"));
        assert!(is_stopped && !table.contains("--remove"), "something is said to be left: {table}");
        assert_eq!((daemon.domains(), hardware::volumes(&daemon)), (vec![], vec![]));
    });
}
