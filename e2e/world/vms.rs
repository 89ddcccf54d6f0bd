//! The VMs of simulated hypervisors on disk: the only record of a VM that the program under test has
//! forgotten. It must not judge and must not change anything.

use std::path::Path;

use serde_json::Value;

use super::client::text;

/// The directory of a VM, complete or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimulatedVm {
    /// Name of the data centre, `NAMESPACE.NAME` of the WindowsHypervisor unless its spec names one.
    pub datacenter: String,
    /// The directory's name: the UUID, with `.new` or `.gone` while the VM is created or removed.
    pub directory: String,
    /// Name of the WindowsMachine; empty while the directory has no record, before or after.
    pub name: String,
    /// `NAMESPACE/NAME` of the Cluster.
    pub cluster: String,
    /// Name of the image.
    pub image: String,
    /// Virtual processors.
    pub cpus: u64,
    /// Whether its seed is attached.
    pub seeded: bool,
    /// `Off`, `On` or `Stopping`, as last switched.
    pub power: String,
}

impl SimulatedVm {
    /// Whether the VM is neither being created nor being removed.
    pub fn is_whole(&self) -> bool {
        !self.directory.contains('.')
    }
}

/// All VMs below a directory given with `--simulated-state`, sorted. A VM that is removed during the listing is omitted.
pub fn simulated_vms(state: &Path) -> Vec<SimulatedVm> {
    let mut vms = Vec::new();
    for datacenter in directories(state) {
        for directory in directories(&state.join(&datacenter)) {
            let home = state.join(&datacenter).join(&directory);
            let record = std::fs::read(home.join("vm.json")).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            let record = record.unwrap_or_default();
            vms.push(SimulatedVm {
                datacenter: datacenter.clone(),
                directory,
                name: text(&record, "/name").to_owned(),
                cluster: text(&record, "/cluster").to_owned(),
                image: text(&record, "/image").to_owned(),
                cpus: record["cpus"].as_u64().unwrap_or_default(),
                seeded: ["config-drive.iso", "guestinfo.json"].iter().any(|name| home.join(name).exists()),
                power: text(&record, "/power").to_owned(),
            });
        }
    }
    vms.sort();
    vms
}

/// Names of the directories in a directory; none if it does not exist.
fn directories(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
