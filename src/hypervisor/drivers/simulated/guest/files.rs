//! The files of a guest: its console, its seed, and what Windows, kubeadm and the kubelet keep on its disk.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use secrecy::SecretString;
use tracing::debug;

use super::error::JoinError;
use super::kubelet::Running;
use super::model::Kept;
use super::node::Kubelet;
use super::powered::Guest;
use super::server::Server;
use crate::bootstrap::read::{Delivered, Payload};
use crate::hypervisor::drivers::simulated::record::{Home, replace};

/// The files of key and certificate on the disk.
pub const KEY: &str = "kubelet-client.key";
pub const CERTIFICATE: &str = "kubelet-client.pem";
const CA: &str = "ca.crt";
const KUBELET: &str = "kubelet.json";
const STATE: &str = "state.json";

fn registered(home: &Home) -> PathBuf {
    home.disk().join("registered")
}

/// Appends to the console. Never creates the directory: a removed VM stays removed.
fn append(home: &Home, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(home.console())?.write_all(bytes)
}

impl Guest {
    /// Prints text on the console.
    pub async fn print(&self, text: String) {
        if let Err(error) = self.files(move |home| append(home, text.as_bytes())).await {
            debug!(vm = %self.record.vm, %error, "a simulated guest cannot write to its console");
        }
    }

    /// Records that this start of the machine registered its Node.
    pub async fn registered(&self) {
        let power_ons = self.record.power_ons;
        let noted = self.files(move |home| replace(&registered(home), power_ons.to_string().as_bytes())).await;
        if let Err(error) = noted {
            debug!(vm = %self.record.vm, %error, "a simulated guest cannot write to its disk");
        }
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
pub async fn load(guest: &Guest) -> io::Result<Option<(Running, bool)>> {
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
pub fn forget_configuration(home: &Home) -> io::Result<()> {
    match fs::remove_file(home.disk().join(KUBELET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Stores the state of the model for another process.
pub async fn write_kept(guest: &Guest, kept: &Kept) -> io::Result<()> {
    let bytes = serde_json::to_vec(kept)?;
    guest.files(move |home| replace(&home.disk().join(STATE), &bytes)).await
}

pub fn read_kept(home: &Home) -> io::Result<Option<Kept>> {
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
