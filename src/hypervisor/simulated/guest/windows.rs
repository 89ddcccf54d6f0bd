//! The programs of a guest after power on: the start of Windows, the plan item by item, then the kubelet. They write only files
//! below `disk/` and the console.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use secrecy::SecretString;
use tracing::debug;

use super::disk::Disk;
use super::image::Image;
use super::kubelet::Running;
use super::model::{Kept, Model, World};
use super::node::Kubelet;
use super::server::Server;
use super::{Guest, JoinError, failure, join};
use crate::api::hypervisor::Fault;
use crate::bootstrap::plan::{Item, REPORT_PLAN, state};
use crate::bootstrap::read::{Delivered, Payload};
use crate::hypervisor::simulated::record::{Home, replace};
use crate::vm::FailureCode;

/// The files of key and certificate on the disk.
pub const KEY: &str = "kubelet-client.key";
pub const CERTIFICATE: &str = "kubelet-client.pem";
const CA: &str = "ca.crt";
const KUBELET: &str = "kubelet.json";
const STATE: &str = "state.json";
/// The code of reports about the plan as a whole.
pub const INPUT: u32 = FailureCode::Input.number();

pub fn registered(home: &Home) -> PathBuf {
    home.disk().join("registered")
}

/// Appends to the console. Never creates the directory: a removed VM stays removed.
fn append(home: &Home, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(home.console())?.write_all(bytes)
}

impl Guest {
    /// Runs the plan after power on, then the kubelet until the power goes off.
    pub async fn live(&self) {
        if self.record.has(Fault::NoBoot) {
            return;
        }
        self.until(self.record.boots_at()).await;
        if let Err(error) = Box::pin(self.carry_out()).await {
            // The disk failed: no state can be stored, so the guest does nothing. A later start of the operator tries again.
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
        let known = self.files(read_kept).await?;
        let started = known.as_ref().is_some_and(|kept| kept.power_ons == self.record.power_ons);
        if started && known.as_ref().is_some_and(|kept| kept.journal.is_over()) {
            return Ok(());
        }
        let (payload, name) = match self.files(|home| Ok(read_seed(home))).await? {
            Ok((payload, name)) => (Ok(payload), name),
            Err(error) => (Err(error), String::new()),
        };
        let world = Vm { guest: self, payload: payload.as_ref().ok() };
        let mut model = match known {
            Some(kept) => Model::new(kept, world),
            None => Model::of_image(&Image::named(&self.record.image), &name, world),
        };
        if !started {
            model.kept.power_ons = self.record.power_ons;
            model.start();
        }
        match &payload {
            // The VM may have lost its seed since.
            _ if model.kept.journal.finished() => {
                if let Some(report) = model.kept.journal.untold() {
                    self.print(report.line() + "\n").await;
                }
                model.world.keep(&model.kept).await
            }
            Ok(payload) => model.carry_out(&payload.plan).await,
            Err(error) => {
                let report = model.kept.journal.report(REPORT_PLAN, state::FAILED, INPUT, &error.to_string());
                model.kept.journal.end = Some(state::FAILED.into());
                self.print(report.line() + "\n").await;
                model.world.keep(&model.kept).await
            }
        }
    }

    /// Prints text on the console.
    pub async fn print(&self, text: String) {
        if let Err(error) = self.files(move |home| append(home, text.as_bytes())).await {
            debug!(vm = %self.record.vm, %error, "a simulated guest cannot write to its console");
        }
    }
}

/// A VM of the simulator, as the model's surroundings.
struct Vm<'a> {
    guest: &'a Guest,
    payload: Option<&'a Payload>,
}

impl World for Vm<'_> {
    fn broken(&self, item: &Item) -> Option<String> {
        failure::words(&self.guest.record.faults, item).map(str::to_owned)
    }

    async fn join(&mut self, disk: &Disk, configuration: &str) -> Result<(), JoinError> {
        let payload = self.payload.ok_or_else(|| JoinError("there is no payload".into()))?;
        join::join(self.guest, payload, disk, configuration).await
    }

    async fn reset(&mut self) {
        if let Err(error) = self.guest.files(forget_configuration).await {
            debug!(vm = %self.guest.record.vm, %error, "a simulated kubeadm cannot reset");
        }
    }

    async fn say(&mut self, lines: String) {
        self.guest.print(lines).await;
    }

    async fn keep(&mut self, kept: &Kept) -> io::Result<()> {
        let bytes = serde_json::to_vec(kept)?;
        self.guest.files(move |home| replace(&home.disk().join(STATE), &bytes)).await
    }
}

/// Stores the kubelet's needs for its next start.
pub async fn keep(guest: &Guest, running: &Running) -> Result<(), JoinError> {
    write(guest, CA, running.server.ca_pem.clone().unwrap_or_default().into_bytes()).await?;
    let kubelet =
        serde_json::to_vec_pretty(&running.kubelet).map_err(|error| JoinError(format!("the kubelet's state cannot be written: {error}")))?;
    write(guest, KUBELET, kubelet).await
}

/// Reads key and certificate from the disk.
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

/// Loads the kubelet of a machine that joined, and whether this start of it registered its Node.
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

/// Removes the files that `kubeadm reset` removes. Key and certificate lie outside its reach.
fn forget_configuration(home: &Home) -> io::Result<()> {
    match fs::remove_file(home.disk().join(KUBELET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read_kept(home: &Home) -> io::Result<Option<Kept>> {
    text(home, STATE)?.map(|text| serde_json::from_str(&text).map_err(io::Error::other)).transpose()
}

fn text(home: &Home, name: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(home.disk().join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the seed as Windows does at its first start: the payload, and the machine's name.
pub fn read_seed(home: &Home) -> Result<(Payload, String), JoinError> {
    let seed = home.seed().map_err(|error| JoinError(format!("what the machine was given cannot be read: {error}")))?;
    let seed = seed.ok_or_else(|| JoinError("the machine was given neither a config drive nor guestinfo".into()))?;
    let delivered = Delivered::of(&seed).map_err(|error| JoinError(format!("what the machine was given cannot be used: {error}")))?;
    // The name of Windows without a given name.
    Ok((delivered.payload, delivered.host_name.unwrap_or_else(|| "win-simulated".into())))
}
