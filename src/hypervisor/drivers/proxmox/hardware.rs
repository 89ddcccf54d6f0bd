//! The hardware of a VM in its configuration, and the changes that a machine requires.

use super::client::Config;
use super::connection::Form;
use super::names;
use crate::hypervisor::DriverError;
use crate::vm::{MachineKey, Nic, VmSpec};

/// The buses of disks, with the most disks of each.
const BUSES: [(&str, usize); 4] = [("scsi", 31), ("virtio", 16), ("sata", 6), ("ide", 4)];
/// The drives for CDs; the driver takes the last free drive, so that the image may use the first.
const CDS: [&str; 6] = ["sata5", "sata4", "sata3", "sata2", "sata1", "sata0"];
/// The models of network interfaces. In a configuration the model is the key of the address.
const MODELS: [&str; 5] = ["virtio", "e1000e", "e1000", "vmxnet3", "rtl8139"];
const MOST_NICS: usize = 32;

/// A disk of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The key of the disk, e.g. `scsi0`.
    pub key: String,
    pub storage: String,
    /// The size; `None`: the configuration does not state it.
    pub gib: Option<u64>,
}

impl Disk {
    fn read(key: &str, value: &str) -> Option<Self> {
        let mut parts = value.split(',');
        let storage = parts.next()?.split_once(':')?.0.to_owned();
        if value.split(',').any(|part| part == "media=cdrom") {
            return None;
        }
        let gib = parts.find_map(|part| part.strip_prefix("size=")).and_then(gib);
        Some(Self { key: key.to_owned(), storage, gib })
    }

    fn bus(&self) -> &str {
        self.key.trim_end_matches(|c: char| c.is_ascii_digit())
    }
}

/// Reads a size as Proxmox VE writes it, in whole GiB, rounded up.
fn gib(text: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    if let Some(number) = text.strip_suffix('T').and_then(number) {
        return Some(number << 10);
    }
    if let Some(number) = text.strip_suffix('G').and_then(number) {
        return Some(number);
    }
    if let Some(number) = text.strip_suffix('M').and_then(number) {
        return Some(number.div_ceil(1 << 10));
    }
    text.strip_suffix('K').and_then(number).map(|number| number.div_ceil(1 << 20))
}

/// Returns the disk that a VM boots from: the first disk of its boot order, or of its buses.
pub fn system_disk(config: &Config) -> Option<Disk> {
    let disk = |key: &str| Disk::read(key, config.get(key)?);
    let ordered = config.get("boot").and_then(|boot| boot.strip_prefix("order=")).into_iter().flat_map(|order| order.split(';'));
    let numbered = BUSES.iter().flat_map(|(bus, count)| (0..*count).map(move |number| format!("{bus}{number}")));
    ordered.filter(|key| BUSES.iter().any(|(bus, _)| key.starts_with(bus))).find_map(disk).or_else(|| numbered.into_iter().find_map(|key| disk(&key)))
}

/// Lists all storages that hold something of a VM.
pub fn storages(config: &Config) -> Vec<String> {
    let is_drive = |key: &str| key == "efidisk0" || key == "tpmstate0" || BUSES.iter().any(|(bus, _)| has_number(key, bus));
    let mut all: Vec<String> =
        config.iter().filter(|(key, _)| is_drive(key)).filter_map(|(key, value)| Disk::read(key, value)).map(|disk| disk.storage).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn has_number(key: &str, bus: &str) -> bool {
    key.strip_prefix(bus).is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

pub fn is_uefi(config: &Config) -> bool {
    config.get("bios") == Some("ovmf")
}

/// Whether the firmware has the keys of Secure Boot.
pub fn has_secure_boot(config: &Config) -> bool {
    config.get("efidisk0").is_some_and(|value| value.split(',').any(|part| part == "pre-enrolled-keys=1"))
}

/// Returns the drive that holds a medium of that name.
pub fn drive_with<'c>(config: &'c Config, volume: &str) -> Option<&'c str> {
    config.iter().find(|(_, value)| value.split(',').next() == Some(volume)).map(|(key, _)| key)
}

/// The changes to a clone before its start, in one request: they turn the clone into the machine's VM.
pub struct Asked<'a> {
    pub key: &'a MachineKey,
    pub spec: &'a VmSpec,
    /// The configuration drive, e.g. `local:iso/capw-….iso`.
    pub medium: &'a str,
    /// The storage of disks that are created.
    pub storage: Option<&'a str>,
    /// The network of interfaces that name none.
    pub network: Option<&'a str>,
}

impl Asked<'_> {
    pub fn form(&self, config: &Config) -> Result<Form, DriverError> {
        let spec = self.spec;
        let mut form = Form::new();
        let mut set = |key: &str, value: String| form.push((key.to_owned(), value));
        set("sockets", "1".into());
        set("cores", spec.cpus.to_string());
        set("memory", spec.memory_mib.to_string());
        // The kubelet relies on the memory that it sees at its start.
        set("balloon", "0".into());
        set("smbios1", smbios(config, self.key));
        set("tags", tags(config, self.key));
        if config.get("protection").is_some_and(|value| value != "0") {
            set("protection", "0".into());
        }
        if spec.nested_virtualization {
            set("cpu", "host".into());
        }
        let cd = CDS.iter().find(|drive| config.get(drive).is_none());
        let cd = cd.ok_or_else(|| DriverError::Invalid("the image uses all SATA drives: free one for the configuration drive".into()))?;
        set(cd, format!("{},media=cdrom", self.medium));
        for (index, nic) in spec.nics.iter().enumerate() {
            set(&format!("net{index}"), self.interface(config, index, nic)?);
        }
        let system = system_disk(config).ok_or_else(|| DriverError::Invalid("the image has no disk".into()))?;
        let storage = self.storage.unwrap_or(&system.storage);
        if spec.tpm && config.get("tpmstate0").is_none() {
            set("tpmstate0", format!("{storage}:1,version=v2.0"));
        }
        let bus = system.bus();
        let count = BUSES.iter().find(|(name, _)| *name == bus).map_or(0, |(_, count)| *count);
        let mut free = (0..count).map(|number| format!("{bus}{number}")).filter(|key| config.get(key).is_none() && key != cd);
        for disk in &spec.disks {
            let Some(key) = free.next() else {
                return Err(DriverError::Invalid(format!("there is no room for disk {:?} on the bus {bus} of the image's system disk", disk.name)));
            };
            set(&key, format!("{storage}:{}", disk.gib));
        }
        let surplus: Vec<String> = (spec.nics.len()..MOST_NICS).map(|index| format!("net{index}")).filter(|key| config.get(key).is_some()).collect();
        if !surplus.is_empty() {
            set("delete", surplus.join(","));
        }
        // Proxmox VE refuses the change if another process changed the configuration first.
        if let Some(digest) = config.get("digest") {
            set("digest", digest.to_owned());
        }
        Ok(form)
    }

    /// Returns an interface like the image's, with the machine's own address and the requested network.
    fn interface(&self, config: &Config, index: usize, nic: &Nic) -> Result<String, DriverError> {
        let of_image = config.get(&format!("net{index}"));
        let model = of_image.or(config.get("net0")).and_then(|value| {
            let keys = value.split(',').filter_map(|part| part.split('=').next());
            keys.filter_map(|key| MODELS.iter().find(|model| **model == key)).next()
        });
        let mut parts = vec![format!("{}={}", model.unwrap_or(&MODELS[0]), nic.mac)];
        let kept = |part: &&str| {
            let key = part.split('=').next().unwrap_or_default();
            part.contains('=') && key != "macaddr" && !MODELS.contains(&key)
        };
        match (nic.network.as_deref().or(self.network), of_image) {
            (Some(network), _) => {
                let placed = ["bridge", "tag", "trunks"];
                let rest = of_image.into_iter().flat_map(|value| value.split(',')).filter(kept);
                parts.push(format!("bridge={network}"));
                parts.extend(rest.filter(|part| !placed.contains(&part.split('=').next().unwrap_or_default())).map(str::to_owned));
            }
            (None, Some(value)) => parts.extend(value.split(',').filter(kept).map(str::to_owned)),
            (None, None) => {
                return Err(DriverError::Invalid(format!(
                    "the image has no network interface {}: name a network for each in spec.networks of the machine, or in spec.proxmox.network of the WindowsHypervisor",
                    index + 1
                )));
            }
        }
        Ok(parts.join(","))
    }
}

/// Returns the image's description of its board with the machine's UUID.
fn smbios(config: &Config, key: &MachineKey) -> String {
    let rest = config.get("smbios1").into_iter().flat_map(|value| value.split(',')).filter(|part| !part.starts_with("uuid=") && part.contains('='));
    std::iter::once(format!("uuid={}", key.vm)).chain(rest.map(str::to_owned)).collect::<Vec<_>>().join(",")
}

/// Returns the tag that marks the owner in a listing, and the tags of the image.
fn tags(config: &Config, key: &MachineKey) -> String {
    let kept =
        config.get("tags").into_iter().flat_map(|tags| tags.split([';', ',', ' '])).filter(|tag| !tag.is_empty() && !tag.starts_with(names::TAG));
    kept.map(str::to_owned).chain([names::tag(key.vm)]).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::VmUuid;
    use crate::hypervisor::contract;
    use crate::vm::{MacAddress, VmDisk};
    use serde_json::json;

    fn config(values: serde_json::Value) -> Config {
        serde_json::from_value(values).unwrap()
    }

    fn image() -> Config {
        config(json!({
            "bios": "ovmf", "boot": "order=ide2;scsi0", "ide2": "local:iso/virtio.iso,media=cdrom", "scsi0": "ceph:base-9000-disk-0,iothread=1,size=32G",
            "efidisk0": "ceph:base-9000-disk-1,efitype=4m,pre-enrolled-keys=1,size=528K", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=5",
            "net1": "e1000=BC:24:11:00:00:02,bridge=vmbr1", "smbios1": "uuid=11111111-1111-4111-8111-111111111111,base64=1", "tags": "gold;capw-old", "digest": "abc",
        }))
    }

    fn key() -> MachineKey {
        MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win-1".into() }
    }

    fn form(spec: &VmSpec, network: Option<&str>, config: &Config) -> Result<std::collections::BTreeMap<String, String>, DriverError> {
        let asked = Asked { key: &key(), spec, medium: "local:iso/x.iso", storage: None, network };
        asked.form(config).map(|form| form.into_iter().collect())
    }

    #[test]
    fn the_system_disk_is_the_first_of_the_order_that_is_no_cd() {
        let disk = system_disk(&image()).unwrap();
        assert_eq!((disk.key.as_str(), disk.storage.as_str(), disk.gib), ("scsi0", "ceph", Some(32)));
        assert_eq!(system_disk(&config(json!({"virtio1": "a:b,size=600M"}))).unwrap().gib, Some(1));
        assert_eq!(system_disk(&config(json!({"ide2": "none,media=cdrom"}))), None);
        assert_eq!(storages(&image()), ["ceph"]);
        assert!(is_uefi(&image()) && has_secure_boot(&image()));
        assert_eq!([gib("1T"), gib("32G"), gib("33000M"), gib("528K"), gib("x")], [Some(1024), Some(32), Some(33), Some(1), None]);
    }

    #[test]
    fn a_machine_gets_what_it_asks_for_and_keeps_what_the_image_has() {
        let disks = vec![VmDisk { name: "data".into(), gib: 20 }];
        let spec = VmSpec { disks, ..contract::spec() };
        let form = form(&spec, None, &image()).unwrap();
        let uuid = VmUuid::of("a");
        assert_eq!(form["net0"], "virtio=02:00:00:00:00:01,bridge=vmbr0,firewall=1,tag=5");
        assert_eq!(
            (form["smbios1"].as_str(), form["tags"].as_str()),
            (format!("uuid={uuid},base64=1").as_str(), format!("gold;capw-{uuid}").as_str())
        );
        assert_eq!(
            (form["sata5"].as_str(), form["scsi1"].as_str(), form["tpmstate0"].as_str()),
            ("local:iso/x.iso,media=cdrom", "ceph:20", "ceph:1,version=v2.0")
        );
        assert_eq!((form["delete"].as_str(), form["digest"].as_str(), form["balloon"].as_str()), ("net1", "abc", "0"));
        assert!(!form.contains_key("boot") && !form.contains_key("cpu") && !form.contains_key("protection"));
    }

    #[test]
    fn an_interface_is_in_the_network_that_was_asked_for() {
        let nic = |network: Option<&str>| Nic { network: network.map(str::to_owned), mac: MacAddress([2, 0, 0, 0, 0, 1]) };
        let spec = VmSpec { nics: vec![nic(Some("vmbr7,tag=114")), nic(None), nic(None)], ..contract::spec() };
        let made = form(&spec, Some("vmbr9"), &image()).unwrap();
        assert_eq!(made["net0"], "virtio=02:00:00:00:00:01,bridge=vmbr7,tag=114,firewall=1");
        assert_eq!((made["net1"].as_str(), made["net2"].as_str()), ("e1000=02:00:00:00:00:01,bridge=vmbr9", "virtio=02:00:00:00:00:01,bridge=vmbr9"));
        let error = form(&spec, None, &image()).unwrap_err().to_string();
        assert!(error.contains("interface 3") && error.contains("spec.proxmox.network"), "{error}");
    }

    #[test]
    fn an_image_without_room_says_what_is_in_the_way() {
        let full: serde_json::Map<String, serde_json::Value> = (0..6).map(|n| (format!("sata{n}"), json!(format!("a:b{n}")))).collect();
        let error = form(&contract::spec(), Some("vmbr0"), &config(full.into())).unwrap_err().to_string();
        assert!(error.contains("SATA"), "{error}");
        let disks = (0..4).map(|n| VmDisk { name: format!("d{n}"), gib: 1 }).collect();
        let error = form(&VmSpec { disks, ..contract::spec() }, Some("vmbr0"), &config(json!({"ide0": "a:b"}))).unwrap_err().to_string();
        assert!(error.contains("\"d3\"") && error.contains("ide"), "{error}");
    }
}
