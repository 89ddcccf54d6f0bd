//! The life of a Wine guest, from power on until the power goes off.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::disk::{Disk, Kept, Known};
use super::items::Windows;
use super::machine::Machine;
use super::services::{CONSOLE, Services};
use super::{prefix, registry};
use crate::api::hypervisor::Fault;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{REPORT_PLAN, state};
use crate::bootstrap::read::Payload;
use crate::hypervisor::drivers::simulated::guest::error::JoinError;
use crate::hypervisor::drivers::simulated::guest::files::read_seed;
use crate::hypervisor::drivers::simulated::guest::journal::Ended;
use crate::hypervisor::drivers::simulated::guest::kubeadm::JoinConfiguration;
use crate::hypervisor::drivers::simulated::guest::powered::Guest;
use crate::hypervisor::drivers::simulated::guest::runner;
use crate::hypervisor::drivers::simulated::guest::windows::INPUT;
use crate::hypervisor::drivers::simulated::record::{address, remove_all};

/// The time limit of Wine's first start on a busy host.
const START: Duration = Duration::from_secs(120);

/// Runs from power on until the power goes off; after the return nothing of the guest runs any more. `programs` is the folder of the programs
/// that it runs.
pub async fn live(guest: &Guest, programs: Option<&Path>, power: &CancellationToken) {
    if guest.record.has(Fault::NoBoot) {
        return;
    }
    let disk = Disk { directory: guest.home.disk() };
    let mut on = None;
    let lived = tokio::select! {
        () = power.cancelled() => Ok(()),
        lived = run(guest, &disk, programs, &mut on) => lived,
    };
    if let Err(error) = lived {
        debug!(vm = %guest.record.vm, %error, "a Wine guest stopped");
    }
    if let Some(on) = on {
        on.switch_off().await;
    }
    let _ = fs::remove_file(disk.pid());
}

/// A machine that is on, with its service manager.
struct On {
    services: Services,
    machine: Arc<Machine>,
}

impl On {
    async fn switch_off(self) {
        let Self { services, machine } = self;
        // The tasks of the services hold the machine.
        drop(services);
        let mut machine = machine;
        loop {
            match Arc::try_unwrap(machine) {
                Ok(machine) => return machine.switch_off().await,
                Err(shared) => machine = shared,
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn run(guest: &Guest, disk: &Disk, programs: Option<&Path>, on: &mut Option<On>) -> io::Result<()> {
    guest.until(guest.record.boots_at()).await;
    let mut kept = disk.read()?;
    fs::create_dir_all(disk.logs())?;
    let (payload, known) = match kept.known.clone().filter(|_| kept.journal.finished()) {
        Some(known) => (None, known),
        None => match guest.files(|home| Ok(read_seed(home))).await? {
            Ok((payload, host_name)) => {
                let known = Known { host_name, kubernetes: payload.plan.kubernetes.clone(), server: server_of(&payload) };
                (Some(payload), known)
            }
            Err(error) => return fail(guest, disk, &mut kept, &error).await,
        },
    };
    kept.known = Some(known.clone());
    if let Err(error) = insert_disk(guest, disk, programs, &known.kubernetes).await {
        return fail(guest, disk, &mut kept, &error).await;
    }
    loop {
        let started = kept.journal.start();
        disk.write(&kept)?;
        let running = match boot(guest, disk, &known, kept.journal.boot).await {
            Ok(running) => on.insert(running),
            Err(error) => return fail(guest, disk, &mut kept, &JoinError(format!("the Wine guest does not start: {error}"))).await,
        };
        if let Err(error) = running.services.start_automatic(&kept.recorded.services).await {
            debug!(vm = %guest.record.vm, error, "a service of a Wine guest does not start");
        }
        let Some(payload) = payload.as_ref().filter(|_| !kept.journal.finished()) else {
            if let Some(report) = kept.journal.untold() {
                guest.print(report.line() + "\n").await;
                disk.write(&kept)?;
            }
            break;
        };
        unpack(&disk.prefix(), payload)?;
        let mut windows = Windows {
            guest,
            disk,
            machine: &running.machine,
            services: &mut running.services,
            plan: &payload.plan,
            kept: &mut kept,
            started,
            services_started: BTreeMap::new(),
        };
        if runner::carry_out(&mut windows, &payload.plan).await? == Ended::ForGood {
            break;
        }
        kept.recorded.restart_pending = false;
        if let Some(on) = on.take() {
            on.machine.shut_down().await;
            on.switch_off().await;
        }
    }
    // Windows runs until the power goes off.
    std::future::pending().await
}

/// The disk with the content of its image, created at the first start.
async fn insert_disk(guest: &Guest, disk: &Disk, programs: Option<&Path>, kubernetes: &str) -> Result<(), JoinError> {
    let Some(programs) = programs.map(Path::to_owned) else {
        return Err(JoinError("this process has no Windows programs for guests of kind Wine: start capw with --wine-programs=DIR".into()));
    };
    let (prefix, image, kubernetes) = (disk.prefix(), guest.record.image.clone(), kubernetes.to_owned());
    let make = move || {
        if !prefix.exists() {
            prefix::make(&programs, &prefix)?;
        }
        prefix::install(&programs, &prefix, &image, &kubernetes)
    };
    tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| Err(JoinError(error.to_string())))
}

async fn boot(guest: &Guest, disk: &Disk, known: &Known, boot: u32) -> io::Result<On> {
    let record = &guest.record;
    let mut machine = Machine::switch_on(&disk.prefix(), &known.host_name, record.vm, address(record.vm)).await?;
    fs::write(disk.pid(), machine.pid().to_string())?;
    if let Some(server) = known.server {
        machine.forward(server).await?;
    }
    let machine = Arc::new(machine);
    let services = Services::new(machine.clone(), disk.logs());
    let on = On { services, machine };
    // Wine's session, which ends with the last ordinary program.
    let directory = on.machine.drive();
    let mut session = on.machine.windows(&directory, None, &[CONSOLE, r"C:\windows\hold.exe"]);
    let mut session = session.kill_on_drop(false).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    if let Some(output) = session.stdout.take() {
        timeout(START, BufReader::new(output).read_line(&mut line)).await.map_err(io::Error::other)??;
    }
    tokio::spawn(async move { session.wait().await });
    if line.trim() != "holding" {
        return Err(io::Error::other("Wine does not start: is the package wine64 whole?"));
    }
    registry::import(&on.machine, &prefix::description(&record.image, record.vm, boot)).await.map_err(io::Error::other)?;
    Ok(on)
}

/// The API server's address if it is on this host: the same address answers inside the machine as well.
fn server_of(payload: &Payload) -> Option<SocketAddr> {
    let configuration = JoinConfiguration::read(payload.file(paths::JOIN_CONFIG)?).ok()?;
    let endpoint = configuration.discovery.bootstrap_token.api_server_endpoint.replace("localhost", "127.0.0.1");
    endpoint.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback())
}

/// Records that the machine has failed permanently.
async fn fail(guest: &Guest, disk: &Disk, kept: &mut Kept, error: &JoinError) -> io::Result<()> {
    let report = kept.journal.report(REPORT_PLAN, state::FAILED, INPUT, &error.to_string());
    guest.print(report.line() + "\n").await;
    kept.journal.end = Some(state::FAILED.into());
    disk.write(kept)
}

/// Does the loader's work: unpacks the payload and its secrets once, for the runner. The stamp is written
/// last, as by the loader, so that an interrupted unpack is repeated.
fn unpack(prefix: &Path, payload: &Payload) -> io::Result<()> {
    let at = |path: &str| prefix::resolve(prefix, path).map_err(io::Error::other);
    let digest = payload.files.iter().fold(Sha256::new(), |all, (name, bytes)| all.chain_update(name).chain_update(bytes));
    let (stamp, digest) = (at(paths::PAYLOAD_STAMP)?, HEXLOWER.encode(&digest.finalize()));
    if fs::read_to_string(&stamp).is_ok_and(|known| known == digest) {
        return Ok(());
    }
    remove_all(&at(paths::PAYLOAD)?)?;
    for (name, bytes) in &payload.files {
        let path = at(&format!(r"{}\{}", paths::PAYLOAD, name.replace('/', r"\")))?;
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, bytes)?;
    }
    fs::write(stamp, digest)
}
