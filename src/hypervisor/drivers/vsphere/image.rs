//! Images, and the request that clones a VM from an image.

use roxmltree::Node;

use super::client::Client;
use super::found;
use super::library::Item;
use super::place::{Network, Place};
use super::properties::Properties;
use super::selection::{Selection, Through};
use super::soap::{Reference, attribute, child, children, text_at, typed};
use crate::api::hypervisor::{CloneMode, Vsphere};
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::{MachineKey, Thing, VmSpec};
use crate::xml::{Element, element};

/// A template, or a VM that serves as a template.
#[derive(Clone, Debug)]
pub struct Image {
    pub name: String,
    vm: Reference,
    snapshot: Option<Reference>,
    is_uefi: bool,
    has_tpm: bool,
    disks: Vec<Disk>,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Debug)]
struct Disk {
    key: i64,
    controller: i64,
    unit: i64,
    kib: u64,
    file: String,
}

#[derive(Clone, Debug)]
struct Interface {
    key: i64,
    /// The type of the interface, e.g. `VirtualVmxnet3`.
    kind: String,
}

/// The types of network interfaces.
const INTERFACES: [&str; 6] = ["VirtualVmxnet3", "VirtualE1000e", "VirtualE1000", "VirtualVmxnet2", "VirtualPCNet32", "VirtualSriovEthernetCard"];
/// The unit that the SCSI controller itself takes.
const OWN_UNIT: i64 = 7;
const MOST_CORES: u32 = 64;

impl Image {
    pub async fn find(client: &Client, settings: &Vsphere, name: &str) -> Result<Self, DriverError> {
        let at = match Item::of(name) {
            Some(item) => item?.template(client).await?,
            None => Self::by_path(client, settings, name).await?,
        };
        let paths = ["config.firmware", "config.hardware.device", "snapshot.currentSnapshot"].map(str::to_owned);
        let read = client.of_one(&at, "VirtualMachine", &paths, |properties| Some(Self::read(name, &at, properties)));
        read.await?.ok_or_else(|| DriverError::Transient(format!("image {name:?} was there and is not")))
    }

    async fn by_path(client: &Client, settings: &Vsphere, name: &str) -> Result<Reference, DriverError> {
        let root = format!("{}/vm", settings.datacenter);
        match client.find_path(&format!("{root}/{name}")).await? {
            Some(found) if found.kind == "VirtualMachine" => Ok(found),
            _ => Self::search(client, &root, name).await,
        }
    }

    /// Searches all folders of the datacenter.
    async fn search(client: &Client, root: &str, name: &str) -> Result<Reference, DriverError> {
        let folder = client.find_path(root).await?;
        let paths = ["name", "config.template"].map(str::to_owned);
        let templates: Vec<(String, Reference)> = match &folder {
            Some(of) => {
                let through = Some(Through { kind: "Folder", path: "childEntity", deep: true });
                let selection = Selection { of, kind: "VirtualMachine", paths: &paths, through };
                let read = |vm: Properties| Some((vm.text("name")?.to_owned(), vm.object()?)).filter(|_| vm.text("config.template") == Some("true"));
                client.properties(&selection, read).await?
            }
            None => Vec::new(),
        };
        let mut named = templates.iter().filter(|(known, _)| known == name).map(|(_, template)| template);
        match (named.next(), named.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => Err(DriverError::Invalid(format!(
                "{} has several templates {name:?}: write the path below the datacenter's folder of VMs, e.g. templates/{name}",
                client.server()
            ))),
            (None, _) => {
                let there = listed(templates.iter().map(|(name, _)| name.as_str()));
                let text = format!(
                    "{} has no image {name:?} in {root}; templates that the user may see: {there}. Correct spec.image of the machine or spec.images of the WindowsHypervisor, or add the template",
                    client.server()
                );
                Err(DriverError::Missing { thing: Thing::Image, text })
            }
        }
    }

    fn read(name: &str, vm: &Reference, properties: Properties) -> Self {
        let number = |device: Node, name: &str| text_at(device, &[name]).and_then(|text| text.parse().ok()).unwrap_or_default();
        let devices: Vec<Node> = properties.get("config.hardware.device").into_iter().flat_map(|list| children(list, "VirtualDevice")).collect();
        let kind = |device: &Node| attribute(*device, "type").unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned();
        let disks = devices.iter().filter(|device| kind(device) == "VirtualDisk").map(|device| Disk {
            key: number(*device, "key"),
            controller: number(*device, "controllerKey"),
            unit: number(*device, "unitNumber"),
            kib: text_at(*device, &["capacityInKB"]).and_then(|text| text.parse().ok()).unwrap_or_default(),
            file: child(*device, "backing").and_then(|backing| text_at(backing, &["fileName"])).unwrap_or_default().to_owned(),
        });
        let interfaces = devices.iter().map(|device| Interface { key: number(*device, "key"), kind: kind(device) });
        Self {
            name: name.to_owned(),
            vm: vm.clone(),
            snapshot: properties.reference("snapshot.currentSnapshot"),
            is_uefi: properties.text("config.firmware") == Some("efi"),
            has_tpm: devices.iter().any(|device| kind(device) == "VirtualTPM"),
            disks: disks.collect(),
            interfaces: interfaces.filter(|device| INTERFACES.contains(&device.kind.as_str())).collect(),
        }
    }

    pub fn vm(&self) -> &Reference {
        &self.vm
    }

    /// Whether a machine gets a linked clone; an error states why the image does not fit the machine.
    pub fn is_linked(&self, spec: &VmSpec, mode: CloneMode) -> Result<bool, DriverError> {
        let name = &self.name;
        let invalid = |text: String| Err(DriverError::Invalid(text));
        let Some(system) = self.disks.first() else { return invalid(format!("image {name:?} has no disk")) };
        if self.is_uefi != spec.uefi {
            let (has, asked) = if self.is_uefi { ("UEFI", "BIOS") } else { ("BIOS", "UEFI") };
            return invalid(format!(
                "image {name:?} was made for {has}, and the machine asks for {asked}: set spec.firmware.type of the machine to {has}"
            ));
        }
        let smallest = system.kib.div_ceil(1 << 20);
        if spec.system_disk_gib.is_some_and(|gib| gib < smallest) {
            return invalid(format!("image {name:?} needs a system disk of {smallest} GiB: raise spec.systemDisk of the machine"));
        }
        let grows = spec.system_disk_gib.is_some_and(|gib| gib << 20 > system.kib);
        match (mode, self.snapshot.is_some()) {
            (CloneMode::Full, _) | (CloneMode::Auto, false) => Ok(false),
            (CloneMode::Linked, false) => invalid(format!(
                "image {name:?} has no snapshot, and spec.vsphere.clone of the WindowsHypervisor is Linked: take one of it, or set clone to Full"
            )),
            (CloneMode::Linked, true) if grows => invalid(format!(
                "the system disk of a linked clone cannot grow: leave out spec.systemDisk of the machine ({smallest} GiB in image {name:?}), or set spec.vsphere.clone of the WindowsHypervisor to Auto or Full"
            )),
            (CloneMode::Linked | CloneMode::Auto, true) => Ok(!grows),
        }
    }

    /// The specification for CloneVM_Task. Elements are in the order of VMware's definition, which a vCenter requires.
    pub fn clone_spec(&self, key: &MachineKey, spec: &VmSpec, asked: &Asked) -> Result<Element, DriverError> {
        let linked = self.is_linked(spec, asked.mode)?;
        let move_type = if linked { "createNewChildDiskBacking" } else { "moveAllDiskBackingsAndConsolidate" };
        let location = element("location")
            .with(asked.place.datastore.element("datastore"))
            .with(element("diskMoveType").text(move_type))
            .with(asked.place.pool.element("pool"));
        let boot = spec.uefi.then(|| element("bootOptions").with(element("efiSecureBootEnabled").text(spec.secure_boot)));
        let config = element("config")
            .with(element("instanceUuid").text(key.vm))
            .with(element("annotation").text(format!("WindowsMachine {} of cluster {}, made by Cluster API Provider Windows", key.name, key.cluster)))
            .with(element("numCPUs").text(spec.cpus))
            .with(element("numCoresPerSocket").text(cores_per_socket(spec.cpus)))
            .with(element("memoryMB").text(spec.memory_mib))
            .with_all(self.device_changes(spec, asked)?)
            .with_all(found::mark(key))
            .with_all(asked.seed.iter().cloned())
            .with_all(boot)
            .with(element("nestedHVEnabled").text(spec.nested_virtualization));
        let snapshot = self.snapshot.as_ref().filter(|_| linked).map(|snapshot| snapshot.element("snapshot"));
        Ok(element("spec")
            .with(location)
            .with(element("template").text(false))
            .with(config)
            .with(element("powerOn").text(asked.starts))
            .with_all(snapshot))
    }

    fn device_changes(&self, spec: &VmSpec, asked: &Asked) -> Result<Vec<Element>, DriverError> {
        let mut changes = Vec::new();
        let Some(system) = self.disks.first() else { return Ok(changes) };
        if let Some(gib) = spec.system_disk_gib.filter(|gib| gib << 20 > system.kib) {
            changes.push(change("edit", None, disk(system.key, &system.file, system.controller, system.unit, gib << 20)));
        }
        let taken = |unit: &i64| *unit == OWN_UNIT || self.disks.iter().any(|disk| disk.controller == system.controller && disk.unit == *unit);
        let free = (0..64).filter(|unit| !taken(unit));
        for ((more, unit), key) in spec.disks.iter().zip(free).zip(200_i64..) {
            changes.push(change("add", Some("create"), disk(-key, "", system.controller, unit, more.gib << 20)));
        }
        let of_image = self.interfaces.iter().map(Some).chain(std::iter::repeat(None));
        for ((network, interface), key) in asked.networks.iter().zip(of_image).zip(100_i64..) {
            match (interface, network) {
                // The interface stays as it is in the image.
                (Some(_), None) => {}
                (Some(interface), Some(network)) => changes.push(change("edit", None, card(&interface.kind, interface.key, network))),
                (None, Some(network)) => changes.push(change("add", None, card("VirtualVmxnet3", -key, network))),
                (None, None) => {
                    return Err(DriverError::Invalid(format!(
                        "image {:?} has {} network interfaces, and the machine has more: name a network for each in spec.networks of the machine, or in spec.vsphere.network of the WindowsHypervisor",
                        self.name,
                        self.interfaces.len()
                    )));
                }
            }
        }
        for surplus in self.interfaces.iter().skip(asked.networks.len()) {
            changes.push(change("remove", None, typed("device", &surplus.kind).with(element("key").text(surplus.key))));
        }
        if spec.tpm && !self.has_tpm {
            changes.push(change("add", None, typed("device", "VirtualTPM").with(element("key").text(-300))));
        }
        Ok(changes)
    }
}

/// The parameters of a clone beside the machine's spec.
pub struct Asked<'a> {
    pub place: &'a Place,
    pub mode: CloneMode,
    /// One network per interface; `None`: the network of the image's interface.
    pub networks: &'a [Option<Network>],
    /// The seed for the guest.
    pub seed: Vec<Element>,
    /// Whether the VM starts when it is cloned, because it is complete then.
    pub starts: bool,
}

/// The cores per socket for one socket, or for as few sockets as possible.
fn cores_per_socket(cpus: u32) -> u32 {
    (1..=cpus.min(MOST_CORES)).rev().find(|cores| cpus.is_multiple_of(*cores)).unwrap_or(1)
}

fn change(operation: &'static str, file_operation: Option<&'static str>, device: Element) -> Element {
    typed("deviceChange", "VirtualDeviceConfigSpec")
        .with(element("operation").text(operation))
        .with_all(file_operation.map(|operation| element("fileOperation").text(operation)))
        .with(device)
}

fn disk(key: i64, file: &str, controller: i64, unit: i64, kib: u64) -> Element {
    let backing = typed("backing", "VirtualDiskFlatVer2BackingInfo")
        .with(element("fileName").text(file))
        .with(element("diskMode").text("persistent"))
        .with_all(file.is_empty().then(|| element("thinProvisioned").text(true)));
    typed("device", "VirtualDisk")
        .with(element("key").text(key))
        .with(backing)
        .with(element("controllerKey").text(controller))
        .with(element("unitNumber").text(unit))
        .with(element("capacityInKB").text(kib))
        .with(element("capacityInBytes").text(kib << 10))
}

fn card(kind: &str, key: i64, network: &Network) -> Element {
    let connected = element("connectable")
        .with(element("startConnected").text(true))
        .with(element("allowGuestControl").text(true))
        .with(element("connected").text(true));
    typed("device", kind).with(element("key").text(key)).with(network.backing()).with(connected).with(element("addressType").text("generated"))
}
