//! Logs of any length, and logs that virtlogd has renamed and restarted.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use capw_libvirtd::Daemon;
use futures::future::join_all;

use super::between;
use super::rig::{IMAGE, LibvirtEndpoint};
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine, Requests};
use crate::hypervisor::contract::program::until;
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::wire::Fate;
use crate::hypervisor::{Driver, DriverStep, Wanted};
use crate::vm::{GuestReport, StopMode};

fn said(sequence: u64) -> GuestReport {
    GuestReport { sequence, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "x".into() }
}

impl LibvirtEndpoint {
    /// Writes to the log as the guest would.
    fn speak(&self, machine: &Machine, text: &str) {
        let log = self.file(&Volumes::of(&machine.key).log());
        fs::OpenOptions::new().append(true).open(log).unwrap().write_all(text.as_bytes()).unwrap();
    }
}

/// Lists until the guest's report has that sequence number. A busy daemon may end a stream before its first byte.
async fn is_read(driver: &dyn Driver, machine: &Machine, sequence: u64) -> bool {
    let wanted = Wanted { awaiting_reports: [machine.key.vm].into() };
    for _ in 0..MANY {
        let rows = driver.list(&wanted).await.unwrap().rows;
        if rows.into_iter().find(|row| row.key == machine.key).unwrap().present.report == Some(said(sequence)) {
            return true;
        }
    }
    false
}

/// A log is longer than the part that one listing may read: its newest part is read, also by another process.
#[tokio::test]
async fn a_log_of_any_length_is_read_in_bounded_parts() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, requests) = Requests::of(&endpoint);
    let machine = Machine::new("talks", endpoint.spec());
    assert!(machine.create(&*driver, 10).await);
    endpoint.speak(&machine, &("noise ".repeat(1 << 20) + "\n" + &said(1).line() + "\n"));
    assert!(is_read(&*driver, &machine, 1).await);
    endpoint.speak(&machine, &("noise ".repeat(1 << 20) + "\n" + &said(2).line() + "\n"));
    assert!(is_read(&*driver, &machine, 2).await);
    requests.take();
    endpoint.speak(&machine, &(said(3).line() + "\n"));
    assert!(is_read(&*driver, &machine, 3).await);
    assert!(!requests.take().contains(&"StorageVolGetInfo"), "who keeps up with the guest asks for no length");
    assert!(is_read(&*endpoint.driver(), &machine, 3).await, "a process that begins now");
}

/// The log of one guest cannot be read: its machine reports that, and the others go on.
#[tokio::test]
async fn one_guest_never_fails_the_others() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let driver = endpoint.driver();
    let [torn, talks] = ["torn", "talks"].map(|name| Machine::new(name, endpoint.spec()));
    for machine in [&torn, &talks] {
        assert!(machine.create(&*driver, MANY).await);
    }
    fs::remove_file(endpoint.file(&Volumes::of(&torn.key).log())).unwrap();
    endpoint.speak(&talks, &(said(1).line() + "\n"));
    assert!(is_read(&*driver, &talks, 1).await);
    let listing = driver.list(&Wanted { awaiting_reports: [torn.key.vm, talks.key.vm].into() }).await.unwrap();
    for row in listing.rows {
        let warning = row.present.warning.unwrap_or_default();
        assert_eq!(warning.contains("cannot be read"), row.key == torn.key, "{:?}: {warning}", row.key);
    }
}

/// virtlogd renames a full log and begins a new one; libvirt does not notice.
#[tokio::test]
async fn a_log_that_was_begun_again_is_read_on_and_goes_with_its_vm() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let driver = endpoint.driver();
    let [turned, restarted] = ["turned", "restarted"].map(|name| Machine::new(name, endpoint.spec()));
    for machine in [&turned, &restarted] {
        assert!(machine.create(&*driver, MANY).await);
        endpoint.speak(machine, &(said(1).line() + "\n" + &"noise ".repeat(100)));
        assert!(is_read(&*driver, machine, 1).await);
        let log = Volumes::of(&machine.key).log();
        fs::rename(endpoint.file(&log), endpoint.file(&format!("{log}.1"))).unwrap();
        fs::write(endpoint.file(&format!("{log}.0")), "between").unwrap();
        fs::write(endpoint.file(&log), "").unwrap();
        endpoint.speak(machine, &("another beginning that is as long as the first one\n".repeat(20) + &said(2).line() + "\n"));
    }
    assert!(is_read(&*driver, &turned, 2).await);
    assert!(turned.delete(&*driver, StopMode::Hard, MANY).await);
    // A new process cannot know whether a log was restarted.
    assert!(restarted.delete(&*endpoint.driver(), StopMode::Hard, MANY).await);
    assert_eq!(endpoint.files(), [IMAGE], "nothing is left");
}

/// A process that has read a log from its first byte on, as one file, needs no refresh of the pool.
#[tokio::test]
async fn a_pool_is_read_again_only_where_files_may_be_that_nobody_has_told_of() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, requests) = Requests::of(&endpoint);
    let [followed, silent] = ["followed", "silent"].map(|name| Machine::new(name, endpoint.spec()));
    for (machine, refreshes) in [(&followed, 0), (&silent, 1)] {
        assert!(machine.create(&*driver, MANY).await);
        if refreshes == 0 {
            endpoint.speak(machine, &(said(1).line() + "\n"));
            assert!(is_read(&*driver, machine, 1).await);
        }
        requests.take();
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
        let asked = requests.take().into_iter().filter(|request| *request == "StoragePoolRefresh").count();
        assert_eq!(asked, refreshes, "{:?}", machine.key);
    }
}

/// After a restart CAPW has followed no log of the existing VMs.
#[tokio::test]
async fn a_process_that_begins_reads_a_pool_again_once_for_all_vms() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machines = ["one", "two", "three"].map(|name| Machine::new(name, endpoint.spec()));
    for machine in &machines {
        assert!(machine.create(&*endpoint.driver(), MANY).await);
        let log = Volumes::of(&machine.key).log();
        fs::rename(endpoint.file(&log), endpoint.file(&format!("{log}.0"))).unwrap();
        fs::write(endpoint.file(&log), "").unwrap();
    }
    let (driver, requests) = Requests::of(&endpoint);
    driver.list(&Wanted::default()).await.unwrap();
    requests.take();
    for deleted in join_all(machines.iter().map(|machine| machine.delete(&*driver, StopMode::Hard, MANY))).await {
        assert!(deleted);
    }
    assert_eq!(requests.take().into_iter().filter(|request| *request == "StoragePoolRefresh").count(), 1);
    assert_eq!(endpoint.files(), [IMAGE], "nothing is left");
}

/// The daemon does not refresh a pool while it creates a volume there: a removal waits a short time, and continues.
#[tokio::test]
async fn a_pool_that_cannot_be_read_again_now_is_waited_for() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machine = Machine::new("waits", endpoint.spec());
    assert!(machine.create(&*endpoint.driver(), MANY).await);
    const REFRESH: u32 = 83;
    let refused = AtomicU32::new(0);
    let between = between::Between::new(&daemon.socket(), move |_, procedure, _| {
        if procedure == REFRESH && refused.fetch_add(1, Ordering::Relaxed) < 2 {
            return between::Answer::Refused(1, "internal error: pool 'pool-0' has asynchronous jobs running.");
        }
        between::Answer::Real
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    for _ in 0..2 {
        assert!(matches!(machine.retire(&*driver, StopMode::Hard).await, Ok(DriverStep::Wait { .. })));
        assert!(endpoint.files().len() > 1, "nothing is removed yet");
    }
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(endpoint.count().await, 0);
}

/// The driver reads the guest's serial output from the file that QEMU writes.
#[tokio::test]
async fn the_words_of_a_guest_are_read_to_the_last() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("talks", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let log = endpoint.file(&Volumes::of(&machine.key).log());
    until("the guest says hello", || fs::read_to_string(&log).unwrap_or_default().contains("hello\r\n")).await;
    let wanted = Wanted { awaiting_reports: [machine.key.vm].into() };
    let report = async |wanted: &Wanted| driver.list(wanted).await.unwrap().rows.remove(0).present.report;
    assert_eq!(report(&wanted).await, None, "the firmware's words are no report");
    let speak = |text: &str| fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(text.as_bytes()).unwrap();
    speak(&(said(1).line() + "\n" + &"noise ".repeat(6000) + "\n"));
    assert_eq!(report(&wanted).await, Some(said(1)));
    speak(&(said(2).line() + "\n"));
    assert_eq!(report(&Wanted::default()).await, Some(said(1)), "who is not asked for is not read");
    assert_eq!(report(&wanted).await, Some(said(2)));
}
