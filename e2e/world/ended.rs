//! The last report of a test: the state of the machine when the test failed, and the pending waits when its time-out, an interrupt or the
//! end of its runner ended it. It must not decide anything.

use std::sync::Once;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::scratch;

/// Time between two checks whether the runner still lives.
const LOOK: Duration = Duration::from_secs(1);

/// From now on this process reports why it ends, if it is a test of cargo-nextest. Called within the runtime of all stories.
pub(super) fn explain() {
    static ONCE: Once = Once::new();
    if std::env::var_os("NEXTEST").is_none() {
        return;
    }
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            usual(info);
            eprintln!("{}", machine());
        }));
        tokio::spawn(signalled());
        tokio::spawn(orphaned());
    });
}

/// Waits for SIGTERM or SIGINT: a time-out of cargo-nextest, or an interrupt that it passes on.
async fn signalled() {
    let handler = |kind| signal(kind).expect("a handler of signals");
    let (mut terminate, mut interrupt) = (handler(SignalKind::terminate()), handler(SignalKind::interrupt()));
    let which = tokio::select! {
        _ = terminate.recv() => "its time-out",
        _ = interrupt.recv() => "an interrupt",
    };
    end(which);
}

/// Waits until the runner has died: a killed runner cannot end its tests.
async fn orphaned() {
    let parent = rustix::process::getppid();
    loop {
        tokio::time::sleep(LOOK).await;
        if rustix::process::getppid() != parent {
            end("the end of its runner");
        }
    }
}

/// The guardian removes processes and directories, as after a kill.
fn end(by: &str) -> ! {
    eprintln!("ended by {by} while it waited for: {}", capw_patience::pending());
    eprintln!("{}", machine());
    scratch::report_all();
    std::process::exit(1);
}

/// Current load, memory and disk.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let load = read("/proc/loadavg").split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    let memory = read("/proc/meminfo").lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let disk = rustix::fs::statvfs(std::env::temp_dir()).map(|disk| (disk.f_bavail * disk.f_frsize) >> 20);
    format!("machine: load {load}, {} MiB of memory and {} MiB of disk free", memory.unwrap_or(0) >> 10, disk.unwrap_or(0))
}
