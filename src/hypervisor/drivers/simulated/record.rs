//! The files of a simulated VM: their content and their atomic replacement.
//!
//! ```text
//! <state>/<data centre>/lock            held during every change
//!                       faults.json     the VMs that have counted faults
//!                       <vm uuid>/vm.json  config-drive.iso  console.log  guest.lock  disk/…
//!                       <vm uuid>.new   a VM being created; renamed to <vm uuid> when complete
//!                       <vm uuid>.gone  a VM being removed
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::api::hypervisor::{Fault, GuestKind};
use crate::api::name::VmUuid;
use crate::bootstrap::delivery::SeedImage;
use crate::vm::{GuestReport, MachineKey, Power, VmSpec};

/// `vm.json`: a VM and its power state.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The [`MachineKey::owner_mark`] of the owner.
    pub mark: String,
    pub vm: Uuid,
    pub name: String,
    pub cluster: String,
    pub host_name: String,
    pub image: String,
    pub cpus: u32,
    pub memory_mib: u64,
    pub exists_from: Timestamp,
    pub power: RecordedPower,
    /// The time at which `power` was written.
    pub since: Timestamp,
    /// How often the VM was switched on.
    pub power_ons: u32,
    /// The delay from power on until the guest reads its seed.
    pub boot_milliseconds: i64,
    /// The delay from reading the seed until the join.
    pub join_milliseconds: i64,
    /// The delay from the stop call until the VM is off.
    pub stop_milliseconds: i64,
    pub faults: Vec<Fault>,
    #[serde(default)]
    pub guest: GuestKind,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum RecordedPower {
    Off,
    On,
    Stopping,
}

impl Record {
    /// A VM that is off and exists `create_milliseconds` after `now`.
    pub fn new(key: &MachineKey, spec: &VmSpec, faults: Vec<Fault>, create_milliseconds: i64, now: Timestamp) -> Self {
        Self {
            mark: key.owner_mark(),
            vm: key.vm.0,
            name: key.name.clone(),
            cluster: key.cluster.clone(),
            host_name: spec.host_name.to_string(),
            image: spec.image.clone(),
            cpus: spec.cpus,
            memory_mib: spec.memory_mib,
            exists_from: after(now, create_milliseconds),
            power: RecordedPower::Off,
            since: now,
            power_ons: 0,
            boot_milliseconds: 0,
            join_milliseconds: 0,
            stop_milliseconds: 0,
            faults,
            guest: GuestKind::Model,
        }
    }

    /// The power state at `now`.
    pub fn power(&self, now: Timestamp) -> Power {
        match self.power {
            _ if now < self.exists_from => Power::Creating,
            RecordedPower::Off => Power::Off,
            RecordedPower::On => Power::On,
            RecordedPower::Stopping if now < self.stops_at() => Power::Stopping,
            RecordedPower::Stopping => Power::Off,
        }
    }

    pub fn stops_at(&self) -> Timestamp {
        after(self.since, self.stop_milliseconds)
    }

    pub fn boots_at(&self) -> Timestamp {
        after(self.since, self.boot_milliseconds)
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The addresses of a running guest, which never change.
    pub fn addresses(&self, now: Timestamp) -> Vec<IpAddr> {
        let running = self.power(now) == Power::On && now >= self.boots_at() && !self.has(Fault::NoBoot);
        if running { vec![address(self.vm).into()] } else { Vec::new() }
    }

    pub fn key(&self) -> MachineKey {
        MachineKey { vm: VmUuid(self.vm), cluster: self.cluster.clone(), name: self.name.clone() }
    }
}

/// An address from 10.160.0.1 to 10.239.255.254, by the last bytes of the UUID, which are a hash. Networks of pods or Services, which would keep
/// Windows nodes from the cluster, usually do not overlap this range. Never a network or broadcast address of a /24.
pub fn address(vm: Uuid) -> Ipv4Addr {
    let [.., x, y, z] = *vm.as_bytes();
    Ipv4Addr::new(10, 160 + x % 80, y, 1 + z % 254)
}

/// The point in time some milliseconds later.
pub fn after(at: Timestamp, milliseconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_millis(milliseconds)).unwrap_or(Timestamp::MAX)
}

/// The directory of one VM with the paths below it.
#[derive(Clone, Debug)]
pub struct Home(pub PathBuf);

impl Home {
    pub fn record(&self) -> PathBuf {
        self.0.join("vm.json")
    }

    pub fn config_drive(&self) -> PathBuf {
        self.0.join("config-drive.iso")
    }

    /// VMware's extra configuration.
    pub fn guest_info(&self) -> PathBuf {
        self.0.join("guestinfo.json")
    }

    pub fn seeded(&self) -> bool {
        self.config_drive().exists() || self.guest_info().exists()
    }

    /// The attached seed.
    pub fn seed(&self) -> io::Result<Option<SeedImage>> {
        if let Some(image) = found(fs::read(self.config_drive()))? {
            return Ok(Some(SeedImage::Drive(image)));
        }
        let values = found(fs::read(self.guest_info()))?.map(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other));
        Ok(values.transpose()?.map(SeedImage::GuestInfo))
    }

    /// Attaches a seed and replaces any other.
    pub fn attach(&self, seed: &SeedImage) -> io::Result<()> {
        match seed {
            SeedImage::Drive(image) => {
                found(fs::remove_file(self.guest_info()))?;
                replace(&self.config_drive(), image)
            }
            SeedImage::GuestInfo(values) => {
                found(fs::remove_file(self.config_drive()))?;
                replace(&self.guest_info(), &serde_json::to_vec_pretty(values)?)
            }
        }
    }

    /// Detaches the seed; false if there was none.
    pub fn detach(&self) -> io::Result<bool> {
        let removed = [found(fs::remove_file(self.config_drive()))?, found(fs::remove_file(self.guest_info()))?];
        Ok(removed.iter().any(Option::is_some))
    }

    pub fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    pub fn disk(&self) -> PathBuf {
        self.0.join("disk")
    }

    /// The lock that the process holds while it runs the guest.
    pub fn guest_lock(&self) -> PathBuf {
        self.0.join("guest.lock")
    }

    /// Reads `vm.json`, if it exists.
    pub fn read(&self) -> io::Result<Option<Record>> {
        let path = self.record();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn write(&self, record: &Record) -> io::Result<()> {
        replace(&self.record(), &serde_json::to_vec_pretty(record)?)
    }

    /// The newest report on the console.
    pub fn report(&self) -> io::Result<Option<GuestReport>> {
        const TAIL: u64 = 4096;
        let mut file = match File::open(self.console()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        Ok(GuestReport::newest([tail.as_slice()]))
    }
}

/// Converts a missing file to `None`.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file by a rename: a reader, or a kill, finds either the old content or the new.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, path)
}

/// Opens a lock file and creates it if needed. The lock ends with the file handle, also when the process is killed.
pub fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Removes a directory and its content; succeeds if nothing exists.
pub fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_vm_has_a_usable_address(bytes in any::<u128>()) {
            let address = address(Uuid::from_u128(bytes));
            prop_assert!(address.is_private() && !address.is_loopback());
            prop_assert!((1..=254).contains(&address.octets()[3]));
        }
    }

    #[test]
    fn the_newest_complete_line_of_the_console_is_the_report() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home(dir.path().to_owned());
        assert_eq!(home.report().unwrap(), None);
        let report = |sequence| GuestReport { sequence, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "x".repeat(200) };
        let lines: String = (0..50).map(|n| report(n).line() + "\n").collect();
        fs::write(home.console(), lines + "capw1 99 1 torn").unwrap();
        assert_eq!(home.report().unwrap(), Some(report(49)));
    }
}
