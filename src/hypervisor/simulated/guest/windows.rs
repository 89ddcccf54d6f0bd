//! What runs in a guest after power on: the start of Windows, the plan item by item, then the kubelet. Files below `disk/` and
//! the console are all that it writes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::disk::{Act, Disk};
use super::kubelet::Running;
use super::node::{Kubelet, build};
use super::server::Server;
use super::{Guest, JoinError, failure, join};
use crate::api::hypervisor::Fault;
use crate::bootstrap::plan::{Item, Kind, REPORT_PLAN, state};
use crate::bootstrap::read::{Delivered, Payload};
use crate::hypervisor::simulated::record::{Home, replace};
use crate::vm::{FailureCode, GuestReport};

/// Files on the disk.
pub const KEY: &str = "kubelet-client.key";
pub const CERTIFICATE: &str = "kubelet-client.pem";
const CA: &str = "ca.crt";
const KUBELET: &str = "kubelet.json";
const STATE: &str = "state.json";
/// Code of reports about the plan as a whole.
pub const INPUT: u32 = FailureCode::Input.number();

pub fn registered(home: &Home) -> PathBuf {
    home.disk().join("registered")
}

/// The serial port, on which the guest reports.
pub struct Console<'a> {
    guest: &'a Guest,
    sequence: AtomicU64,
    boot: u32,
    /// Id and code of the item at hand.
    item: (String, u32),
}

impl<'a> Console<'a> {
    /// `sequence` is the number of the last report.
    pub fn new(guest: &'a Guest, sequence: u64, boot: u32) -> Self {
        Self { guest, sequence: AtomicU64::new(sequence), boot, item: (REPORT_PLAN.into(), INPUT) }
    }

    /// Number of the last report.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// The item at hand goes on, but not well.
    pub async fn retry(&self, message: &str) {
        self.line(state::RETRY, message).await;
    }

    async fn line(&self, state: &str, message: &str) {
        let (item, code) = &self.item;
        self.say(item, *code, state, message).await;
    }

    /// A report about any item.
    pub async fn say(&self, item: &str, code: u32, state: &str, message: &str) {
        let item = item.to_owned();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let report = GuestReport { sequence, boot: self.boot, item, state: state.into(), code, message: message.into() };
        let line = report.line() + "\n";
        let written = self.guest.files(move |home| append(home, line.as_bytes())).await;
        if let Err(error) = written {
            debug!(vm = %self.guest.record.vm, %error, "a simulated guest cannot write to its console");
        }
    }
}

/// Not into a directory that is gone: a removed VM stays removed.
fn append(home: &Home, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(home.console())?.write_all(bytes)
}

impl Guest {
    /// From power on to the end of the plan, then the kubelet until the power goes.
    pub async fn live(&self) {
        if self.record.has(Fault::NoBoot) {
            return;
        }
        self.until(self.record.boots_at()).await;
        if let Err(error) = Box::pin(self.carry_out()).await {
            // The disk failed: nothing can be kept, so nothing is done. A later start of the operator tries again.
            debug!(vm = %self.record.vm, %error, "a simulated guest stopped");
            return;
        }
        match load(self).await {
            Ok(Some((running, registered))) => running.run(self, registered).await,
            Ok(None) => {}
            Err(error) => debug!(vm = %self.record.vm, %error, "a simulated kubelet cannot start"),
        }
    }

    async fn carry_out(&self) -> io::Result<()> {
        let disk = self.files(read_disk).await?;
        let ended = disk.as_ref().is_some_and(|disk| disk.end.is_some());
        if ended && disk.as_ref().is_some_and(|disk| disk.power_ons == self.record.power_ons) {
            return Ok(());
        }
        let payload = self.files(|home| Ok(read_seed(home))).await?;
        let name = payload.as_ref().map(|(_, name)| name.clone()).unwrap_or_default();
        let mut disk = disk.unwrap_or_else(|| Disk::of_image(&name, build(&self.record.image)));
        if disk.power_ons != self.record.power_ons {
            disk.power_ons = self.record.power_ons;
            disk.start();
            // After a restart the plan is looked at again, unless it succeeded.
            disk.end = disk.end.filter(|end| end == state::FINISHED);
        }
        let mut console = Console::new(self, disk.sequence, disk.boot);
        match payload {
            _ if disk.end.is_some() => {}
            Ok((payload, _)) => self.items(&payload, &mut disk, &mut console).await?,
            Err(error) => {
                console.line(state::FAILED, &error.to_string()).await;
                disk.end = Some(state::FAILED.into());
            }
        }
        self.save(&mut disk, &console).await
    }

    async fn items(&self, payload: &Payload, disk: &mut Disk, console: &mut Console<'_>) -> io::Result<()> {
        for item in &payload.plan.items {
            if disk.finished(item) {
                continue;
            }
            console.item = (item.id.clone(), item.code.number());
            match self.item(payload, disk, item, console).await? {
                Ok(()) => {
                    disk.finish(item);
                    console.line(state::DONE, "").await;
                    self.save(disk, console).await?;
                }
                Err(error) if item.optional => console.line(state::WARNED, &error.to_string()).await,
                Err(error) => {
                    console.line(state::FAILED, &error.to_string()).await;
                    disk.end = Some(state::FAILED.into());
                    return Ok(());
                }
            }
        }
        console.item = (REPORT_PLAN.into(), 0);
        // Before it is told: then the seed may go.
        disk.end = Some(state::FINISHED.into());
        self.save(disk, console).await?;
        console.line(state::FINISHED, "").await;
        Ok(())
    }

    /// All attempts of one item.
    async fn item(&self, payload: &Payload, disk: &mut Disk, item: &Item, console: &mut Console<'_>) -> io::Result<Result<(), JoinError>> {
        let mut attempt = 1;
        loop {
            let broken = failure::words(&self.record.faults, item).map(|words| Act::Never(words.to_owned()));
            let error = match broken.unwrap_or_else(|| disk.act(item)) {
                Act::Done => return Ok(Ok(())),
                Act::Restart => {
                    console.line(state::REBOOT, "").await;
                    disk.start();
                    console.boot = disk.boot;
                    self.save(disk, console).await?;
                    continue;
                }
                Act::Never(reason) => JoinError(reason),
                Act::Join { configuration } => {
                    console.line(state::STARTED, &format!("attempt {attempt} of {}", item.attempts)).await;
                    let limit = Duration::from_secs(u64::from(item.seconds));
                    match timeout(limit, join::join(self, payload, disk, configuration, console)).await {
                        Ok(Ok(_)) => {
                            disk.joined();
                            return Ok(Ok(()));
                        }
                        Ok(Err(error)) => error,
                        Err(_) => JoinError(format!("it did not come to an end within {} s", item.seconds)),
                    }
                }
            };
            if attempt >= item.attempts {
                return Ok(Err(error));
            }
            console.retry(&error.to_string()).await;
            if matches!(&item.kind, Kind::Command { undo, .. } if !undo.is_empty()) {
                self.files(forget_identity).await?;
            }
            sleep(Duration::from_secs(1 << attempt.min(5))).await;
            attempt += 1;
        }
    }

    async fn save(&self, disk: &mut Disk, console: &Console<'_>) -> io::Result<()> {
        disk.sequence = console.sequence();
        let bytes = serde_json::to_vec(disk)?;
        self.files(move |home| replace(&home.disk().join(STATE), &bytes)).await
    }
}

/// Keeps what the kubelet needs at its next start.
pub async fn keep(guest: &Guest, running: &Running) -> Result<(), JoinError> {
    write(guest, CA, running.server.ca_pem.clone().unwrap_or_default().into_bytes()).await?;
    let kubelet =
        serde_json::to_vec_pretty(&running.kubelet).map_err(|error| JoinError(format!("the kubelet's state cannot be written: {error}")))?;
    write(guest, KUBELET, kubelet).await
}

/// Key and certificate on the disk.
pub async fn identity(guest: &Guest) -> Result<(Option<SecretString>, Option<String>), JoinError> {
    let read = guest.files(|home| Ok((text(home, KEY)?.map(SecretString::from), text(home, CERTIFICATE)?)));
    read.await.map_err(|error| JoinError(format!("the guest's disk cannot be read: {error}")))
}

/// Writes a file that only its owner may read.
pub async fn write(guest: &Guest, name: &'static str, bytes: Vec<u8>) -> Result<(), JoinError> {
    let written = guest.files(move |home| {
        let path = home.disk().join(name);
        let temporary = home.disk().join(format!("{name}.tmp"));
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?.write_all(&bytes)?;
        fs::rename(temporary, path)
    });
    written.await.map_err(|error| JoinError(format!("{name} cannot be written to the guest's disk: {error}")))
}

/// The kubelet of a machine that joined, and whether this start of it registered its Node.
async fn load(guest: &Guest) -> io::Result<Option<(Running, bool)>> {
    let power_ons = guest.record.power_ons.to_string();
    let read = move |home: &Home| {
        let (Some(kubelet), Some(key), Some(certificate)) = (text(home, KUBELET)?, text(home, KEY)?, text(home, CERTIFICATE)?) else {
            return Ok(None);
        };
        let kubelet: Kubelet = serde_json::from_str(&kubelet)?;
        let server = Server { url: kubelet.server.clone(), ca_pem: text(home, CA)? };
        let registered = text(home, "registered")?.is_some_and(|noted| noted == power_ons);
        Ok(Some((Running { kubelet, server, certificate, key: key.into() }, registered)))
    };
    guest.files(read).await
}

/// What `kubeadm reset` removes: the next attempt starts with a new key.
fn forget_identity(home: &Home) -> io::Result<()> {
    for name in [CERTIFICATE, KEY, KUBELET] {
        match fs::remove_file(home.disk().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn read_disk(home: &Home) -> io::Result<Option<Disk>> {
    text(home, STATE)?.map(|text| serde_json::from_str(&text).map_err(io::Error::other)).transpose()
}

fn text(home: &Home, name: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(home.disk().join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What Windows finds at its first start: the payload, and the name that it is given.
pub fn read_seed(home: &Home) -> Result<(Payload, String), JoinError> {
    let seed = home.seed().map_err(|error| JoinError(format!("what the machine was given cannot be read: {error}")))?;
    let seed = seed.ok_or_else(|| JoinError("the machine was given neither a config drive nor guestinfo".into()))?;
    let delivered = Delivered::of(&seed).map_err(|error| JoinError(format!("what the machine was given cannot be used: {error}")))?;
    // What Windows calls itself when nobody gives it a name.
    Ok((delivered.payload, delivered.host_name.unwrap_or_else(|| "win-simulated".into())))
}
