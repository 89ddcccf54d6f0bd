//! The places of VMs: folder, resource pool, datastore and networks, found by the paths of the settings.

use super::client::Client;
use super::properties::Properties;
use super::selection::{Selection, Through};
use super::soap::{Reference, text_at, typed};
use crate::api::hypervisor::Vsphere;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::Thing;
use crate::xml::{Element, element};

/// The places of one WindowsHypervisor.
#[derive(Clone, Debug)]
pub struct Place {
    pub datacenter: Reference,
    pub folder: Reference,
    pub pool: Reference,
    /// A datastore, or a cluster of datastores until one of its datastores is chosen.
    pub datastore: Reference,
}

/// A datastore of a datastore cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Store {
    datastore: Reference,
    is_usable: bool,
    free: i64,
}

/// The type of a datastore cluster.
const STORAGE_POD: &str = "StoragePod";

/// The path of the folder in which VMs are created.
pub fn folder_path(settings: &Vsphere) -> String {
    let below = settings.folder.as_ref().map(|folder| format!("/{folder}")).unwrap_or_default();
    format!("{}/vm{below}", settings.datacenter)
}

/// The total capacity of a pool's hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    pub cpus: Option<i64>,
    pub memory_mib: Option<u64>,
}

impl Place {
    pub async fn find(client: &Client, settings: &Vsphere) -> Result<Self, DriverError> {
        let Vsphere { datacenter, folder, resource_pool, datastore, .. } = settings;
        let find = async |field: &str, value: &str, path: &str, kinds: &[&str]| {
            let missing = |why: String| {
                let text = format!(
                    "spec.vsphere.{field} {value:?}: {why} on {} (looked for /{path}). Correct it, or let the user see it: it needs System.Read there",
                    client.server()
                );
                DriverError::Missing { thing: Thing::Placement, text }
            };
            let found = client.find_path(path).await?.ok_or_else(|| missing("there is no such thing".into()))?;
            if kinds.contains(&found.kind.as_str()) {
                Ok(found)
            } else {
                Err(missing(format!("it is a {}, not a {}", found.kind, kinds.join(" or "))))
            }
        };
        let below = |kind: &str, path: &str| format!("{datacenter}/{kind}/{path}");
        let place = Self {
            datacenter: find("datacenter", datacenter, datacenter, &["Datacenter"]).await?,
            folder: find("folder", folder.as_deref().unwrap_or_default(), &folder_path(settings), &["Folder"]).await?,
            pool: find("resourcePool", resource_pool, &below("host", resource_pool), &["ResourcePool", "VirtualApp"]).await?,
            datastore: find("datastore", datastore, &below("datastore", datastore), &["Datastore", STORAGE_POD]).await?,
        };
        Ok(place)
    }

    /// Replaces a datastore cluster by its datastore with the most free space at the moment.
    pub async fn with_datastore(mut self, client: &Client, settings: &Vsphere) -> Result<Self, DriverError> {
        if self.datastore.kind != STORAGE_POD {
            return Ok(self);
        }
        let paths = ["summary.accessible", "summary.maintenanceMode", "summary.freeSpace"].map(str::to_owned);
        let through = Some(Through { kind: STORAGE_POD, path: "childEntity", deep: false });
        let selection = Selection { of: &self.datastore, kind: "Datastore", paths: &paths, through };
        let read = |store: Properties| {
            let is_usable =
                store.text("summary.accessible") == Some("true") && matches!(store.text("summary.maintenanceMode"), None | Some("normal"));
            Some(Store { datastore: store.object()?, is_usable, free: store.number("summary.freeSpace").unwrap_or_default() })
        };
        self.datastore = roomiest(client.properties(&selection, read).await?).ok_or_else(|| {
            DriverError::Capacity(format!(
                "spec.vsphere.datastore {:?} is a cluster of datastores, and none of it can be used on {}: each is inaccessible or in maintenance, or the user does not see it (it needs System.Read and Datastore.AllocateSpace, with propagation)",
                settings.datastore,
                client.server()
            ))
        })?;
        Ok(self)
    }

    pub async fn capacity(&self, client: &Client) -> Result<Capacity, DriverError> {
        let owner = client.of_one(&self.pool, "ResourcePool", &["owner".to_owned()], |pool| pool.reference("owner")).await?;
        let Some(owner) = owner else { return Ok(Capacity::default()) };
        let paths = ["summary.numCpuThreads", "summary.effectiveMemory"].map(str::to_owned);
        let read = client.of_one(&owner, "ComputeResource", &paths, |resource| {
            Some(Capacity { cpus: resource.number("summary.numCpuThreads"), memory_mib: resource.number("summary.effectiveMemory") })
        });
        Ok(read.await?.unwrap_or_default())
    }

    /// The privileges for creating and removing VMs here that the credentials lack.
    pub async fn lacks(&self, client: &Client) -> Result<Vec<String>, DriverError> {
        const NEEDED: [(&str, &[&str]); 3] = [
            (
                "folder",
                &[
                    "System.Read",
                    "VirtualMachine.Inventory.CreateFromExisting",
                    "VirtualMachine.Inventory.Delete",
                    "VirtualMachine.Interact.PowerOn",
                    "VirtualMachine.Interact.PowerOff",
                    "VirtualMachine.Config.AddNewDisk",
                    "VirtualMachine.Config.AddRemoveDevice",
                    "VirtualMachine.Config.AdvancedConfig",
                    "VirtualMachine.Config.CPUCount",
                    "VirtualMachine.Config.DiskExtend",
                    "VirtualMachine.Config.EditDevice",
                    "VirtualMachine.Config.Memory",
                    "VirtualMachine.Config.Settings",
                ],
            ),
            ("resource pool", &["Resource.AssignVMToPool"]),
            ("datastore", &["Datastore.AllocateSpace"]),
        ];
        let mut lacks = Vec::new();
        for ((what, privileges), object) in NEEDED.iter().zip([&self.folder, &self.pool, &self.datastore]) {
            let lacking = client.lacking(object, privileges).await?;
            lacks.extend(lacking.into_iter().map(|privilege| format!("{privilege} on the {what}")));
        }
        Ok(lacks)
    }

    /// Checks whether seeds may be CDs here: their files are written to the datastore.
    pub async fn admits_drives(&self, client: &Client) -> Result<(), DriverError> {
        const NEEDED: [(&str, &[&str]); 2] = [
            ("datastore", &["Datastore.FileManagement"]),
            ("folder", &["VirtualMachine.Interact.DeviceConnection", "VirtualMachine.Interact.SetCDMedia"]),
        ];
        for ((what, privileges), object) in NEEDED.iter().zip([&self.datastore, &self.folder]) {
            let lacking = client.lacking(object, privileges).await?;
            if !lacking.is_empty() {
                return Err(DriverError::Denied(format!(
                    "a CD with the machine's data needs {} on the {what}: grant it to the user, or set spec.channel of the WindowsBootstrapConfig to GuestInfo",
                    lacking.join(", ")
                )));
            }
        }
        Ok(())
    }
}

fn roomiest(stores: Vec<Store>) -> Option<Reference> {
    stores.into_iter().filter(|store| store.is_usable).max_by_key(|store| store.free).map(|store| store.datastore)
}

/// How an interface is connected to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// A port group of each host.
    Standard {
        name: String,
    },
    Distributed {
        switch: String,
        port_group: String,
    },
    /// A segment of NSX.
    Opaque {
        id: String,
        kind: String,
    },
}

impl Network {
    /// Finds the network of that name in the datacenter.
    pub async fn find(client: &Client, datacenter: &Reference, name: &str) -> Result<Self, DriverError> {
        let paths = ["name".to_owned()];
        let through = Some(Through { kind: "Datacenter", path: "network", deep: false });
        let selection = Selection { of: datacenter, kind: "Network", paths: &paths, through };
        let all = client.properties(&selection, |network| Some((network.text("name")?.to_owned(), network.object()?))).await?;
        let Some((_, found)) = all.iter().find(|(known, _)| known == name) else {
            let there = listed(all.iter().map(|(name, _)| name.as_str()));
            let text = format!(
                "{} has no network {name:?} in that datacenter; it has {there}: correct spec.networks of the machine, or spec.networks or spec.vsphere.network of the WindowsHypervisor",
                client.server()
            );
            return Err(DriverError::Missing { thing: Thing::Network, text });
        };
        let gone = || DriverError::Transient(format!("network {name:?} was there and is not"));
        match found.kind.as_str() {
            "DistributedVirtualPortgroup" => {
                let paths = ["key", "config.distributedVirtualSwitch"].map(str::to_owned);
                let group = client.of_one(found, "DistributedVirtualPortgroup", &paths, |group| {
                    Some((group.text("key")?.to_owned(), group.reference("config.distributedVirtualSwitch")?))
                });
                let (port_group, switch) = group.await?.ok_or_else(gone)?;
                let paths = ["uuid".to_owned()];
                let uuid = client.of_one(&switch, "DistributedVirtualSwitch", &paths, |switch| switch.text("uuid").map(str::to_owned));
                Ok(Self::Distributed { switch: uuid.await?.ok_or_else(gone)?, port_group })
            }
            "OpaqueNetwork" => {
                let paths = ["summary".to_owned()];
                let segment = client.of_one(found, "OpaqueNetwork", &paths, |network| {
                    let of = |name: &str| text_at(network.get("summary")?, &[name]).map(str::to_owned);
                    Some(Self::Opaque { id: of("opaqueNetworkId")?, kind: of("opaqueNetworkType")? })
                });
                segment.await?.ok_or_else(gone)
            }
            _ => Ok(Self::Standard { name: name.to_owned() }),
        }
    }

    pub fn backing(&self) -> Element {
        match self {
            Self::Standard { name } => typed("backing", "VirtualEthernetCardNetworkBackingInfo").with(element("deviceName").text(name)),
            Self::Distributed { switch, port_group } => {
                let port = element("port").with(element("switchUuid").text(switch)).with(element("portgroupKey").text(port_group));
                typed("backing", "VirtualEthernetCardDistributedVirtualPortBackingInfo").with(port)
            }
            Self::Opaque { id, kind } => typed("backing", "VirtualEthernetCardOpaqueNetworkBackingInfo")
                .with(element("opaqueNetworkId").text(id))
                .with(element("opaqueNetworkType").text(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_cluster_the_usable_datastore_with_the_most_room_is_taken() {
        let store = |id: &str, is_usable, free| Store { datastore: Reference { kind: "Datastore".into(), id: id.into() }, is_usable, free };
        let chosen = |stores: &[Store]| roomiest(stores.to_vec()).map(|datastore| datastore.id);
        assert_eq!(chosen(&[store("a", true, 1), store("b", true, 3), store("c", true, 2)]).as_deref(), Some("b"));
        assert_eq!(chosen(&[store("a", true, 1), store("b", false, 3)]).as_deref(), Some("a"));
        assert_eq!(chosen(&[store("a", false, 1)]), None);
        assert_eq!(chosen(&[]), None);
    }
}
