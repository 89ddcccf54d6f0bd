//! Answers that Proxmox VE gives and fakepve does not: a script answers each request. The scripted answers come from the source of Proxmox VE.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cluster::login;
use crate::api::hypervisor::Proxmox;
use crate::hypervisor::contract::authority::Authority;
use crate::hypervisor::contract::machine::Machine;
use crate::hypervisor::contract::server::{self, Answer, Request};
use crate::hypervisor::drivers::proxmox::driver::ProxmoxDriver;
use crate::hypervisor::drivers::proxmox::names::{description, image_of, name_of};
use crate::hypervisor::wire::{Fate, Wire};
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{Observed, Power, Present, StopMode};

const TASK: &str = "UPID:pve1:000003E8:00001B58:69210000:qmclone:9000:capw@pve!capw:";

/// The answer to a request.
enum Reply {
    Data(Value),
    /// A refusal up to version 8: the text is in the first line.
    Refused(u16, &'static str),
    /// A refusal from version 9 on: the text is in the body.
    Message(u16, &'static str),
    Text(&'static str),
    Torn,
}

/// Answers for a cluster that has everything but VMs, unless the script answers first.
fn usual(line: &str) -> Reply {
    let storage = |name: &str, content: &str| json!({"type": "storage", "node": "pve1", "storage": name, "status": "available", "content": content, "shared": 1});
    let image = json!({"type": "qemu", "node": "pve1", "vmid": 9000, "name": "windows-server-2022", "status": "stopped", "template": 1});
    let data = match line {
        "GET /version" => json!({"version": "8.4.1"}),
        line if line.starts_with("GET /access/permissions") => {
            let page = include_str!("../../../../../docs/hypervisors/proxmox.md");
            let all = page.lines().filter_map(|line| line.trim().strip_prefix("pveum role add ")?.split('"').nth(1)).flat_map(|role| role.split(' '));
            json!({"/": all.map(|privilege| (privilege.to_owned(), json!(1))).collect::<serde_json::Map<_, _>>()})
        }
        "GET /cluster/resources" => {
            json!([{"type": "node", "node": "pve1", "status": "online", "maxcpu": 8, "maxmem": 8u64 << 30}, storage("isos", "iso"), storage("ceph", "images"), image])
        }
        "GET /cluster/resources?type=vm" => json!([image]),
        "GET /nodes/pve1/certificates/info" => json!([{"filename": "pve-root-ca.pem", "fingerprint": "AA:AA"}]),
        "GET /nodes/pve1/network?type=any_bridge" => json!([{"iface": "vmbr0"}]),
        "GET /nodes/pve1/qemu/9000/config" => json!({
            "bios": "ovmf", "boot": "order=scsi0", "scsi0": "ceph:base-9000-disk-0,size=32G", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
            "efidisk0": "ceph:base-9000-disk-1,pre-enrolled-keys=1,size=528K"
        }),
        line if line.starts_with("GET /nodes/pve1/storage/isos/content") => json!([]),
        line if line.starts_with("GET /nodes/pve1/tasks/") => json!({"status": "stopped", "exitstatus": "OK"}),
        line if line.ends_with("/config") => return Reply::Refused(500, "Configuration file 'nodes/pve1/qemu-server/1.conf' does not exist"),
        _ => json!(TASK),
    };
    Reply::Data(data)
}

/// Returns a driver for a cluster that answers by the script, and the requests that the cluster gets.
async fn driver(script: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static) -> (ProxmoxDriver, Arc<Mutex<Vec<String>>>) {
    let (authority, requests) = (Authority::new("lab"), Arc::new(Mutex::new(Vec::new())));
    let noted = requests.clone();
    let answers = move |request: &Request| {
        let line = request.line.replace("/api2/json", "");
        noted.lock().push(format!("{line} {}", request.body).trim().to_owned());
        let whole = |head: String, body: String| Answer::Whole { head, body };
        match script(&line).unwrap_or_else(|| usual(&line)) {
            Reply::Data(data) => whole("200 OK".into(), json!({"data": data}).to_string()),
            Reply::Refused(status, text) => whole(format!("{status} {text}"), json!({"data": null}).to_string()),
            Reply::Message(status, text) => whole(format!("{status} Error"), json!({"data": null, "message": format!("{text}\n")}).to_string()),
            Reply::Text(text) => whole("200 OK".into(), text.into()),
            Reply::Torn => Answer::Torn,
        }
    };
    let server = server::serve(&authority, Arc::new(answers)).await;
    let settings = Proxmox {
        servers: vec![server],
        nodes: vec!["pve1".into()],
        iso_storage: "isos".into(),
        storage: Some("ceph".into()),
        pool: Some("capw".into()),
        ..Proxmox::default()
    };
    (ProxmoxDriver::new(settings, &login("secret", &authority), Wire::new(Arc::new(|_| Fate::Pass))).unwrap(), requests)
}

fn machine() -> Machine {
    Machine::new("scripted", crate::hypervisor::contract::spec())
}

/// Whether a request reads the configuration of a VM that is not the image.
fn is_of_vm(line: &str) -> bool {
    line.starts_with("GET /nodes/pve1/qemu/") && line.ends_with("/config") && !line.contains("/9000/")
}

fn is_task(line: &str) -> bool {
    line.starts_with("GET /nodes/pve1/tasks/")
}

/// Returns the configuration that a clone writes before it copies the first disk.
fn temporary() -> Reply {
    Reply::Data(json!({"lock": "clone", "description": "qmclone temporary file\n", "digest": "x"}))
}

fn clones(requests: &Mutex<Vec<String>>) -> usize {
    requests.lock().iter().filter(|line| line.contains("/clone ")).count()
}

async fn begin(machine: &Machine, driver: &ProxmoxDriver) {
    for _ in 0..2 {
        assert!(matches!(machine.advance(driver).await, Ok(DriverStep::Started { .. })));
    }
}

/// A clone begins with a configuration that does not name its owner. The clone is neither ours nor foreign, whether its task is known or
/// the answer with the task was lost.
#[tokio::test]
async fn a_clone_that_does_not_say_yet_whose_it_is_is_waited_for() {
    let (driver, requests) = driver(|line| match line {
        line if is_of_vm(line) => Some(temporary()),
        line if is_task(line) => Some(Reply::Data(json!({"status": "running"}))),
        _ => None,
    })
    .await;
    let machine = machine();
    machine.store([("vmid", "20001"), ("node", "pve1"), ("task", TASK)]);
    assert_eq!(machine.present(&driver).await.power, Power::Creating);
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Wait { .. })));
    // The answer with the task was lost.
    machine.store([("vmid", "20001"), ("node", "pve1")]);
    assert_eq!(machine.present(&driver).await.power, Power::Creating);
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Wait { .. })));
    assert!(matches!(machine.retire(&driver, StopMode::Hard).await, Ok(DriverStep::Wait { .. })), "it will be removed when it says that it is ours");
    assert_eq!(clones(&requests), 0);
    let touched = requests.lock().iter().any(|line| line.starts_with("DELETE") || line.starts_with("PUT"));
    assert!(!touched);
}

/// The task of the clone has ended, e.g. with its node, and has left the clone half finished.
#[tokio::test]
async fn a_clone_that_was_left_half_made_is_told_with_the_remedy() {
    for exit in ["unexpected status", "unable to open file - No such file or directory"] {
        let (driver, _) = driver(move |line| match line {
            line if is_of_vm(line) => Some(temporary()),
            line if is_task(line) => Some(Reply::Data(json!({"status": "stopped", "exitstatus": exit}))),
            _ => None,
        })
        .await;
        let machine = machine();
        machine.store([("vmid", "20001"), ("node", "pve1"), ("task", TASK)]);
        for error in [machine.advance(&driver).await.unwrap_err(), machine.retire(&driver, StopMode::Hard).await.unwrap_err()] {
            assert!(matches!(&error, DriverError::Invalid(text) if text.contains("qm unlock 20001") && text.contains("pve1")), "{error}");
        }
    }
}

/// A clone that fails leaves nothing; its task has the reason, at once or later. The driver reports it, and retries under the same id.
#[tokio::test]
async fn a_clone_that_fails_says_why_and_is_tried_again() {
    for (exit, label) in [
        ("clone failed: unable to create image: got lock request timeout", "transient"),
        ("clone failed: lvcreate error: Volume group has insufficient free space", "capacity"),
        ("clone failed: command 'rbd clone' failed: exit code 1", "invalid"),
        ("unexpected status", "invalid"),
    ] {
        for looks in [0, 5] {
            // The number of polls of the task; `None` before the clone has begun.
            let seen = Arc::new(Mutex::new(None));
            let (driver, requests) = driver(move |line| match line {
                line if line.ends_with("/clone") => {
                    *seen.lock() = Some(0);
                    None
                }
                line if is_of_vm(line) => seen.lock().is_some_and(|seen| seen < looks).then(temporary),
                line if is_task(line) => {
                    let mut seen = seen.lock();
                    *seen = seen.map(|seen| seen + 1);
                    let is_over = *seen > Some(looks);
                    Some(Reply::Data(if is_over { json!({"status": "stopped", "exitstatus": exit}) } else { json!({"status": "running"}) }))
                }
                _ => None,
            })
            .await;
            let machine = machine();
            begin(&machine, &driver).await;
            let error = loop {
                match machine.advance(&driver).await {
                    Ok(DriverStep::Wait { .. }) => assert_eq!(clones(&requests), 1),
                    other => break other.unwrap_err(),
                }
            };
            assert!(error.label() == label && error.to_string().contains(exit), "{exit}: {error:?}");
            assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })), "the cause may be gone");
            let ids: Vec<String> = requests.lock().iter().filter_map(|line| line.split("newid=").nth(1)?.get(..5).map(str::to_owned)).collect();
            assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
        }
    }
}

/// The task of the clone has reported success, but the VM is missing: a person removed it, or the clone did not succeed.
#[tokio::test]
async fn a_vm_that_is_not_there_after_its_clone_is_made_again() {
    let (driver, requests) = driver(|_| None).await;
    let machine = machine();
    begin(&machine, &driver).await;
    let error = machine.advance(&driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Transient(text) if text.contains("made again")), "{error}");
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })));
    assert_eq!(clones(&requests), 2);
}

/// With rights through a pool only, the token may read a VM once it has joined the pool, at the end of its clone.
#[tokio::test]
async fn a_vm_that_may_not_be_read_yet_is_being_made() {
    let is_running = Arc::new(Mutex::new(true));
    let told = is_running.clone();
    let (driver, _) = driver(move |line| match line {
        line if is_of_vm(line) => Some(Reply::Refused(403, "Permission check failed (/vms/20001, VM.Audit)")),
        line if is_task(line) && *told.lock() => Some(Reply::Data(json!({"status": "running"}))),
        _ => None,
    })
    .await;
    let machine = machine();
    machine.store([("vmid", "20001"), ("node", "pve1"), ("task", TASK)]);
    assert_eq!(machine.present(&driver).await.power, Power::Creating);
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Wait { .. })));
    assert!(matches!(machine.retire(&driver, StopMode::Hard).await, Ok(DriverStep::Wait { .. })));
    *is_running.lock() = false;
    let error = machine.advance(&driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Denied(text) if text.contains("VM.Audit")), "{error}");
}

/// A token without Sys.Audit on / sees no tasks in a list: the driver reads each task on the node that runs it.
#[tokio::test]
async fn tasks_are_asked_for_one_by_one() {
    let (driver, requests) = driver(|line| is_task(line).then(|| Reply::Data(json!({"status": "running"})))).await;
    let machine = machine();
    begin(&machine, &driver).await;
    assert_eq!(machine.present(&driver).await.power, Power::Creating);
    assert!(matches!(machine.retire(&driver, StopMode::Hard).await, Ok(DriverStep::Wait { .. })));
    let requests = requests.lock();
    let path = "/nodes/pve1/tasks/UPID%3Apve1%3A000003E8%3A00001B58%3A69210000%3Aqmclone%3A9000%3Acapw%40pve%21capw%3A";
    assert!(requests.contains(&format!("GET {path}/status")) && requests.contains(&format!("DELETE {path}")), "{requests:?}");
    assert!(!requests.iter().any(|line| line.contains("/cluster/tasks") || line.ends_with("/tasks")), "{requests:?}");
}

/// A listing omits the VMs that the token may not see, so a VM that is not listed is not absent: the driver reads its own configuration.
#[tokio::test]
async fn a_vm_that_a_listing_hides_is_not_gone() {
    let machine = machine();
    let config = json!({"name": name_of(&machine.key), "description": description(&machine.key), "smbios1": format!("uuid={}", machine.key.vm), "sata5": format!("isos:iso/{},media=cdrom", image_of(machine.key.vm))});
    let (driver, _) = driver(move |line| match line {
        line if is_of_vm(line) => Some(Reply::Data(config.clone())),
        line if line.ends_with("/status/current") => Some(Reply::Data(json!({"status": "running", "qmpstatus": "running"}))),
        line if line.starts_with("GET /access/permissions?path=%2Fpool%2Fcapw") => Some(Reply::Data(json!({"/pool/capw": {"VM.Allocate": 1}}))),
        _ => None,
    })
    .await;
    machine.store([("vmid", "20001"), ("node", "pve1")]);
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert!(matches!(machine.present(&driver).await, Present { power: Power::On, vm: true, .. }));
    let lacks = driver.describe().await.unwrap().lacks;
    assert!(lacks.contains(&"VM.Audit on /pool/capw".to_owned()) && !lacks.contains(&"VM.Allocate on /pool/capw".to_owned()), "{lacks:?}");
}

/// Version 8 has the reason in the first line of its answer, version 9 in the body.
#[tokio::test]
async fn the_reason_is_read_where_each_version_has_it() {
    for refused in [|| Reply::Refused(500, "cluster not ready - no quorum?"), || Reply::Message(500, "cluster not ready - no quorum?")] {
        let (driver, _) = driver(move |line| line.ends_with("/clone").then(refused)).await;
        let machine = machine();
        let _ = machine.advance(&driver).await.unwrap();
        let error = machine.advance(&driver).await.unwrap_err();
        assert!(matches!(&error, DriverError::Invalid(text) if text.contains("no quorum?") && text.contains("pvecm status")), "{error}");
    }
}

#[tokio::test]
async fn replies_that_are_lost_torn_or_of_another_type_are_told_apart() {
    let torn: [fn() -> Reply; 5] = [
        || Reply::Torn,
        || Reply::Text("<html>"),
        || Reply::Data(json!({"no": "task"})),
        || Reply::Refused(596, "Connection timed out"),
        || Reply::Refused(502, "Bad Gateway"),
    ];
    for reply in torn {
        let (driver, requests) = driver(move |line| line.ends_with("/clone").then(reply)).await;
        let machine = machine();
        let _ = machine.advance(&driver).await.unwrap();
        let error = machine.advance(&driver).await.unwrap_err();
        assert!(matches!(error, DriverError::Unknown(_)), "it may have been done: {error:?}");
        assert!(!format!("{error:?}").contains("secret") && clones(&requests) == 1);
    }
    for reply in torn {
        let (driver, _) = self::driver(move |line| line.contains("/cluster/resources").then(reply)).await;
        let error = driver.observe(&machine().key, &Default::default()).await.unwrap_err();
        assert!(matches!(error, DriverError::Unreachable(_)), "{error:?}");
    }
    let (driver, _) = driver(|line| line.ends_with("/clone").then_some(Reply::Refused(595, "No route to host"))).await;
    let machine = machine();
    let _ = machine.advance(&driver).await.unwrap();
    let error = machine.advance(&driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("goes on when it is back")), "{error}");
    assert_eq!(machine.see(&driver).await, Observed::Absent);
}

/// The journal was lost while the VM was cloned: a VM that does not name its owner yet has the id. The driver creates no second VM.
#[tokio::test]
async fn an_id_that_may_be_ours_is_not_passed_over() {
    let vmid = Arc::new(Mutex::new(0_u64));
    let told = vmid.clone();
    let (driver, requests) = driver(move |line| {
        let vmid = *told.lock();
        let clone = json!([{"type": "qemu", "node": "pve1", "vmid": 9000, "name": "windows-server-2022", "template": 1}, {"type": "qemu", "node": "pve1", "vmid": vmid, "lock": "clone"}]);
        (line == "GET /cluster/resources?type=vm" && vmid > 0).then_some(Reply::Data(clone))
    })
    .await;
    let machine = machine();
    let _ = machine.advance(&driver).await.unwrap();
    *vmid.lock() = machine.journal()["vmid"].parse().unwrap();
    machine.lose_journal();
    assert!(matches!(machine.advance(&driver).await, Err(DriverError::Busy { .. })));
    *vmid.lock() = 1;
    begin(&machine, &driver).await;
    assert_eq!(clones(&requests), 1);
}
