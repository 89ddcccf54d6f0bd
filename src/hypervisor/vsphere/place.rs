//! Where VMs are put: folder, resource pool, datastore and networks, found by the paths of the settings.

use super::client::{Client, Selection, Through};
use super::soap::{Reference, text_at, typed};
use crate::api::hypervisor::Vsphere;
use crate::hypervisor::DriverError;
use crate::hypervisor::xml::{Element, element};
use crate::vm::Thing;

/// The places of one WindowsHypervisor.
#[derive(Clone, Debug)]
pub struct Place {
    pub datacenter: Reference,
    pub folder: Reference,
    pub pool: Reference,
    pub datastore: Reference,
}

/// Path of the folder that VMs are made in.
pub fn folder_path(settings: &Vsphere) -> String {
    let below = settings.folder.as_ref().map(|folder| format!("/{folder}")).unwrap_or_default();
    format!("{}/vm{below}", settings.datacenter)
}

/// What the hosts of a pool have in all.
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
            datastore: find("datastore", datastore, &below("datastore", datastore), &["Datastore"]).await?,
        };
        Ok(place)
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

    /// What the credentials lack for making and removing VMs here.
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
    /// The network of that name in the datacenter.
    pub async fn find(client: &Client, datacenter: &Reference, name: &str) -> Result<Self, DriverError> {
        let paths = ["name".to_owned()];
        let through = Some(Through { kind: "Datacenter", path: "network", deep: false });
        let selection = Selection { of: datacenter, kind: "Network", paths: &paths, through };
        let all = client.properties(&selection, |network| Some((network.text("name")?.to_owned(), network.object()?))).await?;
        let Some((_, found)) = all.iter().find(|(known, _)| known == name) else {
            let mut there: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            there.sort_unstable();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
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
