//! Story *real VMs*: a real libvirt daemon creates real QEMU VMs. Their Linux guests read our drive through a kernel, carry out its plan in the model
//! of Windows, restart, write to a serial port and join. libvirt's own client checks the host's state. None of it is Windows.
//!
//! As root, the daemon runs in system mode: VMs start by UEFI with Secure Boot and have a TPM, in the profile `judge` after a round with BIOS. They
//! use a libvirt network with DHCP, QEMU's user owns their disks, and virtlogd writes their console output.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use capw_libvirtd::{Daemon, Mode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, hardware, step, text, wait_for};

/// The limit for one wait. QEMU translates the guests' code: a start takes ten seconds on an idle machine, and each guest starts twice.
const LIMIT: Duration = Duration::from_secs(900);
/// The goal for the whole story as the gate runs it, alone on two cores.
const GOAL: Duration = Duration::from_secs(240);
/// The number of VMs that are created and removed while CAPW is killed.
const MANY: usize = 10;

/// Returns workers whose machines cost a host little.
async fn workers(namespace: &str, cp: &ControlPlane, driver: Value) -> Workers {
    let mut workers = Workers { driver, ..Workers::new(namespace, cp).await };
    hardware::shrink(&mut workers.machine, &mut workers.bootstrap);
    workers
}

#[test]
fn machines_become_real_vms() {
    world::run(async {
        let begun = Instant::now();
        let cp = ControlPlane::start(Options::default().named("real-vms")).await;
        let Some(daemon) = hardware::daemon("machines_become_real_vms", &cp) else { return };
        let _words = hardware::Words(&daemon);
        let _capw = Capw::start(&cp, &[]).await;
        // The profile `judge` has two machines, which are replaced one after the other; then one is removed.
        let replicas = if world::is_judge() { 2 } else { 1 };
        let mut workers = Workers { replicas, ..workers("hall", &cp, hardware::hypervisor(&daemon)).await };
        let mut domains = Vec::new();
        let machines = if world::is_judge() {
            domains = by_bios(&cp, &daemon, &mut workers).await;
            replaced_by_uefi(&cp, &daemon, &mut workers).await
        } else {
            workers.machine["firmware"] = uefi(&daemon);
            workers.apply(&cp).await;
            workers.wait_settled(&cp, &cp, LIMIT).await
        };
        step(format!("{replicas} real VMs that start by UEFI are Ready nodes after {:.0} s", begun.elapsed().as_secs_f32()));
        at_rest(&daemon, &machines).await;
        restarted_once(&cp, &daemon, &workers).await;
        as_asked(&daemon);
        leases_are_shown(&cp, &daemon, &workers).await;
        let uuids: Vec<String> = daemon.domains().iter().map(|domain| daemon.virsh(["domuuid", domain]).trim().to_owned()).collect();
        domains.extend(daemon.domains());

        if world::is_judge() {
            workers.replicas = 1;
            cp.apply_objects(&[workers.machine_deployment()]).await;
            let left = workers.wait_settled(&cp, &cp, LIMIT).await;
            at_rest(&daemon, &left).await;
            step("2 -> 1");
        }

        cp.delete(Kind::CLUSTER, &workers.name(&workers.cluster)).await;
        workers.wait_gone(&cp, LIMIT).await;
        nothing_left(&daemon).await;
        for uuid in uuids {
            assert_eq!(daemon.files_of(&uuid), Vec::<PathBuf>::new(), "what its TPM kept");
        }
        for domain in domains {
            assert_eq!(hardware::ends(&daemon, &domain), ["shutdown"], "why {domain} ended: its guest is asked to shut down, and has the time");
        }
        let left = workers::left_in_workload(&cp).await;
        assert!(left.is_empty(), "{left:?}");
        let took = begun.elapsed();
        step(format!("the story took {:.0} s", took.as_secs_f32()));
        assert!(took <= GOAL || !world::has_goals(), "it took {took:?}, with {GOAL:?} allowed");
    });
}

/// Applies workers that start by BIOS, and waits until they are nodes. Returns the names of their VMs.
async fn by_bios(cp: &ControlPlane, daemon: &Daemon, workers: &mut Workers) -> Vec<String> {
    workers.machine["firmware"] = json!({"type": "BIOS"});
    workers.apply(cp).await;
    let machines = workers.wait_settled(cp, cp, LIMIT).await;
    step("real VMs that start by BIOS are Ready nodes");
    at_rest(daemon, &machines).await;
    restarted_once(cp, daemon, workers).await;
    leases_are_shown(cp, daemon, workers).await;
    let domains = daemon.domains();
    for domain in &domains {
        let xml = daemon.virsh(["dumpxml", domain]);
        assert!(!xml.contains("<loader"), "{xml}");
    }
    domains
}

/// Changes the template, and waits until each VM is replaced. Returns the Machines.
async fn replaced_by_uefi(cp: &ControlPlane, daemon: &Daemon, workers: &mut Workers) -> Vec<Value> {
    workers.template = "second".to_owned();
    workers.machine["firmware"] = uefi(daemon);
    workers.machine["memory"] = json!("2100Mi");
    let ready = cp.fewest(Kind::NODE, workers::is_ready).await;
    cp.apply_objects(&[workers.machine_template(), workers.machine_deployment()]).await;
    let machines = workers.wait_settled(cp, cp, LIMIT).await;
    let fewest = ready.so_far(cp).await;
    assert!(fewest >= workers.replicas, "only {fewest} Ready Nodes while {} VMs were replaced", workers.replicas);
    machines
}

/// Returns Secure Boot and a TPM in system mode; a daemon in session mode has no rights to them.
fn uefi(daemon: &Daemon) -> Value {
    match daemon.mode() {
        Mode::System => json!({"type": "UEFI", "secureBoot": true, "tpm": true}),
        Mode::Session => json!({"type": "BIOS"}),
    }
}

/// In system mode, checks that the VM starts by UEFI with Secure Boot, uses libvirt's network, and has its own TPM.
fn as_asked(daemon: &Daemon) {
    if daemon.mode() == Mode::Session {
        return;
    }
    for domain in daemon.domains() {
        let xml = daemon.virsh(["dumpxml", &domain]);
        for part in ["secure='yes'", "<tpm model='tpm-crb'>", "<interface type='network'>"] {
            assert!(xml.contains(part), "{part} is not in\n{xml}");
        }
        let uuid = daemon.virsh(["domuuid", &domain]);
        assert!(daemon.files_of(uuid.trim()).iter().any(|path| path.ends_with("tpm2-00.permall")), "{:?}", daemon.files_of(uuid.trim()));
    }
}

/// In system mode, each WindowsMachine and its Machine have exactly the address that libvirt's network leased to the VM.
async fn leases_are_shown(cp: &ControlPlane, daemon: &Daemon, workers: &Workers) {
    if daemon.mode() == Mode::Session {
        return;
    }
    wait_for("each machine has the address that was leased to its VM", LIMIT, || async {
        let leases: Vec<_> = daemon.domains().into_iter().map(|domain| (daemon.lease(&domain), domain)).collect();
        for (kind, name) in [(Kind::WINDOWS_MACHINE, "/metadata/name"), (Kind::MACHINE, "/spec/infrastructureRef/name")] {
            let machines = cp.list(kind, Some(&workers.namespace)).await;
            if machines.len() != leases.len() {
                return Err(format!("{} {} for {leases:?}", machines.len(), kind.plural));
            }
            for machine in machines {
                let vm = format!("{}-", text(&machine, name));
                let leased = leases.iter().find(|(_, domain)| domain.starts_with(&vm)).and_then(|(lease, _)| *lease);
                let told = internal_addresses(&machine);
                if leased.is_none() || told != Vec::from_iter(leased) {
                    return Err(format!("{} of {vm}: {told:?}; leased: {leases:?}", kind.plural));
                }
            }
        }
        Ok(())
    })
    .await;
    step("machines have the addresses that libvirt's network has leased");
}

/// Returns `status.addresses` of a machine, without names.
fn internal_addresses(machine: &Value) -> Vec<IpAddr> {
    let addresses = machine.pointer("/status/addresses").and_then(Value::as_array).into_iter().flatten();
    let internal = addresses.filter(|address| address["type"] == "InternalIP");
    internal.map(|address| text(address, "/address").parse().expect("an IP address")).collect()
}

/// Waits until each machine has a running VM without its drive, and no other VM exists.
async fn at_rest(daemon: &Daemon, machines: &[Value]) {
    wait_for("a running VM for each machine, without its drive, and no other", LIMIT, || async {
        let domains = daemon.domains();
        let running = daemon.virsh(["list", "--name"]).lines().filter(|line| !line.is_empty()).count();
        let volumes = hardware::volumes(daemon);
        let named = machines.iter().all(|machine| {
            let name = text(machine, "/spec/infrastructureRef/name");
            domains.iter().filter(|domain| domain.starts_with(name)).count() == 1
        });
        let is_whole = named && domains.len() == machines.len() && running == machines.len();
        let is_clean = volumes.len() == 2 * machines.len() && volumes.iter().all(|name| name.ends_with(".qcow2") || name.ends_with(".log"));
        if is_whole && is_clean { Ok(()) } else { Err(format!("{running} of {domains:?} run; {volumes:?}")) }
    })
    .await;
}

/// The plan's restart restarted the VM once, and the guest's reports reached the machine's status.
async fn restarted_once(cp: &ControlPlane, daemon: &Daemon, workers: &Workers) {
    // A node may be Ready before CAPW reads its last report.
    wait_for("every bootstrap is finished", LIMIT, || async {
        let machines = cp.list(Kind::WINDOWS_MACHINE, Some(&workers.namespace)).await;
        match machines.iter().find(|machine| text(machine, "/status/bootstrap/state") != "finished") {
            None => Ok(()),
            Some(machine) => Err(format!("{:#}", machine["status"])),
        }
    })
    .await;
    for domain in daemon.domains() {
        let console = hardware::console(daemon, &domain);
        // The boot loader leaves terminal codes before "start 1 of UUID".
        let uuid = daemon.virsh(["domuuid", &domain]);
        let starts = console.lines().filter(|line| line.contains("start ") && line.contains(uuid.trim())).count();
        assert_eq!(starts, 2, "{domain} started {starts} times; its console:\n{console}");
    }
}

async fn nothing_left(daemon: &Daemon) {
    wait_for("nothing is left on the host", LIMIT, || async {
        let (domains, volumes, files) = (daemon.domains(), hardware::volumes(daemon), daemon.files_of("win-"));
        let leases = leases(daemon);
        let nothing = domains.is_empty() && volumes.is_empty() && files.is_empty() && leases.is_empty();
        if nothing { Ok(()) } else { Err(format!("{domains:?}, {volumes:?}, {files:?}, {leases:?}")) }
    })
    .await;
}

/// Returns the leases of libvirt's network in system mode. A guest that shuts down releases its lease, as the page recommends for Windows.
fn leases(daemon: &Daemon) -> Vec<String> {
    assert!(include_str!("../../docs/hypervisors/libvirt.md").contains(capw_libvirtd::RELEASE), "the page has the option that the network has");
    if daemon.mode() == Mode::Session {
        return Vec::new();
    }
    let all = daemon.virsh(["net-dhcp-leases", capw_libvirtd::NETWORK]);
    all.lines().filter(|line| line.contains("ipv4")).map(str::to_owned).collect()
}

/// The guests are boot sectors, which never join: only the state of the host counts.
#[test]
fn killed_while_real_vms_are_made_and_removed() {
    world::run(async {
        let Some(daemon) = Daemon::start() else { return };
        let _words = hardware::Words(&daemon);
        daemon.pool(hardware::POOL, hardware::IMAGE);
        let cp = ControlPlane::start(Options::default().named("real-kills")).await;
        let capw = Capw::start(&cp, &[]).await;
        let seed = world::seed();
        let workers = Workers { replicas: MANY, ..workers("kills", &cp, hardware::hypervisor(&daemon)).await };
        tokio::select! {
            () = made_and_removed(&cp, &daemon, &workers) => {}
            () = kill_at_random(&capw, seed) => {}
            () = never_two(&cp, &daemon, &workers) => {}
        }
    });
}

async fn made_and_removed(cp: &ControlPlane, daemon: &Daemon, workers: &Workers) {
    workers.apply(cp).await;
    wait_for("all VMs run", LIMIT, || async {
        let running = daemon.virsh(["list", "--name"]).lines().filter(|line| !line.is_empty()).count();
        if running == MANY { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await;
    step(format!("{MANY} VMs run"));
    cp.delete(Kind::CLUSTER, &workers.name(&workers.cluster)).await;
    workers.wait_gone(cp, LIMIT).await;
    nothing_left(daemon).await;
    step("nothing is left");
}

/// Kills and restarts CAPW at random times. Does not return.
async fn kill_at_random(capw: &Capw, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..4000))).await;
        capw.kill();
        capw.start_again().await;
    }
}

/// Checks continuously that no machine has two VMs. Does not return.
async fn never_two(cp: &ControlPlane, daemon: &Daemon, workers: &Workers) {
    loop {
        let domains = daemon.domains();
        for machine in cp.list(Kind::WINDOWS_MACHINE, Some(&workers.namespace)).await {
            let name = format!("{}-", text(&machine, "/metadata/name"));
            let own: Vec<_> = domains.iter().filter(|domain| domain.starts_with(&name)).collect();
            assert!(own.len() < 2, "two VMs for one machine: {own:?}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
