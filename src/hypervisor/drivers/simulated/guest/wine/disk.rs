//! The files of a Wine guest, and the state that is stored beside its prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::services::Service;
use crate::bootstrap::plan::Kind;
use crate::hypervisor::drivers::simulated::guest::journal::Journal;
use crate::hypervisor::drivers::simulated::record::replace;

/// The state that is stored beside the prefix.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kept {
    pub journal: Journal,
    /// The seed's data about the machine: the seed may be removed once the plan is done.
    pub known: Option<Known>,
    pub recorded: Recorded,
}

/// The data that every start of the machine needs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    pub host_name: String,
    /// The version of the programs in the image.
    pub kubernetes: String,
    /// The API server's address if it is on this host.
    pub server: Option<SocketAddr>,
}

/// Files of the guest below the VM's `disk/`.
pub struct Disk {
    pub directory: PathBuf,
}

impl Disk {
    pub fn prefix(&self) -> PathBuf {
        self.directory.join("wine")
    }

    /// The directory of the programs' output.
    pub fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// The file with the number of the process that holds the machine's namespaces, while the machine is on.
    pub fn pid(&self) -> PathBuf {
        self.directory.join("machine.pid")
    }

    fn kept(&self) -> PathBuf {
        self.directory.join("wine.json")
    }

    pub fn read(&self) -> io::Result<Kept> {
        match fs::read(self.kept()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error),
        }
    }

    pub fn write(&self, kept: &Kept) -> io::Result<()> {
        replace(&self.kept(), &serde_json::to_vec_pretty(kept)?)
    }
}

/// State without a place in Wine: it is recorded, so that it can be inspected.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Recorded {
    pub features: BTreeSet<String>,
    pub firewall: BTreeMap<String, Kind>,
    /// The scripts by id of the item.
    pub scripts: BTreeMap<String, Kind>,
    /// Commands without a check that ran, by id of the item.
    pub ran: BTreeMap<String, Kind>,
    pub tasks: BTreeMap<String, Vec<String>>,
    pub services: BTreeMap<String, Service>,
    /// Digests of unpacked archives, by id of the item.
    pub unpacked: BTreeMap<String, String>,
    pub restart_pending: bool,
}
