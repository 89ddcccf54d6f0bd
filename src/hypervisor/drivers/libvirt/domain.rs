//! Writes and reads the definition of a VM.

use roxmltree::{Document, Node};
use uuid::Uuid;

use super::client::Domain;
use super::disks::{self, Chain, Source, Storage};
use super::hardware;
use super::volumes::{self, Volumes};
use crate::api::hypervisor::{Acceleration, Console, DeviceModel};
use crate::api::name::VmUuid;
use crate::vm::{MachineKey, VmSpec};
use crate::xml::{Element, element};

/// The namespace of our element in a domain's metadata.
const NAMESPACE: &str = "https://infrastructure.cluster.x-k8s.io/capw/libvirt/1";
/// The device and bus of the configuration drive.
const DRIVE: (&str, &str) = ("sda", "sata");
/// The prefix of a network name that means a bridge of the host.
pub const BRIDGE: &str = "bridge:";

/// The settings that all VMs of an endpoint share.
pub struct Host<'a> {
    pub storage: &'a Storage,
    pub acceleration: Acceleration,
    pub devices: DeviceModel,
    /// The network of interfaces that name none; `None`: QEMU's own network, which needs no rights.
    pub default_network: Option<&'a str>,
    /// The path of the file for the output of the guest's serial port, if there is one.
    pub log: Option<&'a str>,
    pub console: Console,
}

/// Names the domain of a machine.
pub fn of(key: &MachineKey) -> Domain {
    Domain { name: Volumes::of(key).vm().to_owned(), uuid: key.vm.0 }
}

/// Writes the definition of a new VM, whose system disk is over the files of `under_system`. The definition uses only what `host` and
/// `spec` name.
pub fn definition(key: &MachineKey, spec: &VmSpec, host: &Host, under_system: &Chain) -> String {
    let virtual_hardware = matches!(host.devices, DeviceModel::Virtio);
    let (bus, letters) = if virtual_hardware { ("virtio", "vd") } else { ("sata", "sd") };
    let names = Volumes::of(key);
    let nothing = Chain::none();
    let disks = std::iter::once((names.system(), under_system)).chain(spec.disks.iter().map(|disk| (names.disk(&disk.name), &nothing)));
    let disks = disks.zip(if virtual_hardware { 'a'..='y' } else { 'b'..='z' }).map(|((volume, under), letter)| {
        let driver = element("driver").attribute("name", "qemu").attribute("type", "qcow2").attribute("discard", "unmap");
        let target = element("target").attribute("dev", format!("{letters}{letter}")).attribute("bus", bus);
        host.storage.disk("disk", driver, &volume, Some(under)).with(target)
    });
    let nics = spec.nics.iter().map(|nic| {
        let network = nic.network.as_deref().or(host.default_network);
        let (kind, source) = match network.map(|name| (name, name.strip_prefix(BRIDGE))) {
            None => ("user", None),
            Some((_, Some(bridge))) => ("bridge", Some(("bridge", bridge))),
            Some((name, None)) => ("network", Some(("network", name))),
        };
        element("interface")
            .attribute("type", kind)
            .with_all(source.map(|(what, name)| element("source").attribute(what, name)))
            .with(element("mac").attribute("address", nic.mac))
            .with(element("model").attribute("type", if virtual_hardware { "virtio" } else { "e1000e" }))
    });
    let drive = drive(Some((host.storage, &names.drive())));
    let serial = element("serial")
        .attribute("type", "pty")
        .with_all(host.log.map(|file| element("log").attribute("file", file).attribute("append", "on")))
        .with(element("target").attribute("port", 0));
    let agent =
        element("channel").attribute("type", "unix").with(element("target").attribute("type", "virtio").attribute("name", "org.qemu.guest_agent.0"));
    let tpm = spec.tpm.then(|| {
        let emulator = element("backend").attribute("type", "emulator").attribute("version", "2.0");
        element("tpm").attribute("model", "tpm-crb").with(emulator)
    });
    let devices = element("devices")
        .with_all(disks)
        .with(drive)
        .with_all(nics)
        .with(serial)
        .with(agent)
        .with_all(tpm)
        .with_all(hardware::console(host.console))
        .with(element("video").with(element("model").attribute("type", "vga")))
        .with(element("memballoon").attribute("model", "none"));
    element("domain")
        .attribute("type", hardware::domain_type(host.acceleration))
        .with(element("name").text(names.vm()))
        .with(element("uuid").text(key.vm))
        .with(element("metadata").with(mark(key)))
        .with(element("memory").attribute("unit", "MiB").text(spec.memory_mib))
        .with(element("vcpu").text(spec.cpus))
        .with(hardware::firmware(spec))
        .with(hardware::features(spec))
        .with(hardware::processor(spec, host.acceleration))
        .with(hardware::clock())
        .with(element("on_poweroff").text("destroy"))
        .with(element("on_reboot").text("restart"))
        .with(element("on_crash").text("destroy"))
        .with(devices)
        .to_string()
}

/// Builds the configuration drive, without a medium for `None`.
fn drive(medium: Option<(&Storage, &str)>) -> Element {
    const DEVICE: &str = "cdrom";
    let driver = element("driver").attribute("name", "qemu").attribute("type", "raw");
    let disk = match medium {
        Some((storage, volume)) => storage.disk(DEVICE, driver, volume, None),
        None => element("disk").attribute("type", "file").attribute("device", DEVICE).with(driver),
    };
    disk.with(element("target").attribute("dev", DRIVE.0).attribute("bus", DRIVE.1)).with(element("readonly"))
}

/// Writes the ejected configuration drive.
pub fn empty_drive() -> String {
    drive(None).to_string()
}

fn mark(key: &MachineKey) -> Element {
    element("capw:machine")
        .attribute("xmlns:capw", NAMESPACE)
        .attribute("mark", key.owner_mark())
        .attribute("cluster", &key.cluster)
        .attribute("name", &key.name)
}

/// The properties of an existing domain that the driver needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    pub is_active: bool,
    /// The key and mark of the domain, if it has our mark.
    pub owner: Option<(MachineKey, String)>,
    pub cpus: u32,
    pub memory_mib: u64,
    /// Whether a medium is in the configuration drive.
    pub has_medium: bool,
    disks: Vec<Source>,
}

impl Found {
    /// Reads a definition; `None`: it is not a domain of libvirt.
    pub fn read(xml: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let root = document.root_element();
        let child = |name: &str| root.children().find(|node| node.has_tag_name(name));
        let text = |name: &str| child(name).and_then(|node| node.text()).map(str::trim);
        let vm = VmUuid(Uuid::try_parse(text("uuid")?).ok()?);
        let owner = child("metadata").and_then(|metadata| metadata.children().find(|node| node.has_tag_name((NAMESPACE, "machine"))));
        let owner = owner.and_then(|node| {
            let attribute = |name: &str| node.attribute(name).map(str::to_owned);
            Some((MachineKey { vm, cluster: attribute("cluster")?, name: attribute("name")? }, attribute("mark")?))
        });
        let drive = root.descendants().find(|node| {
            node.has_tag_name("disk") && node.children().any(|target| target.has_tag_name("target") && target.attribute("dev") == Some(DRIVE.0))
        });
        let medium =
            |drive: Node| drive.children().any(|node| node.has_tag_name("source") && (node.has_attribute("volume") || node.has_attribute("file")));
        Some(Self {
            name: text("name")?.to_owned(),
            is_active: root.has_attribute("id"),
            owner,
            cpus: text("vcpu")?.parse().ok()?,
            memory_mib: mebibytes(child("memory")?)?,
            has_medium: drive.is_some_and(medium),
            disks: disks::sources(root),
        })
    }

    /// Lists the names of the domain's volumes in that pool, as far as the definition names files.
    pub fn volumes<'a>(&'a self, storage: &'a Storage) -> impl Iterator<Item = &'a str> {
        self.disks.iter().filter_map(|disk| storage.volume(disk))
    }

    pub fn is_in(&self, storage: &Storage) -> bool {
        self.disks.iter().any(|disk| storage.holds(disk))
    }

    pub fn is_ours(&self, key: &MachineKey) -> bool {
        self.owner.as_ref().is_some_and(|(_, mark)| *mark == key.owner_mark()) && self.name == Volumes::of(key).vm()
    }
}

fn mebibytes(memory: Node) -> Option<u64> {
    let number: u64 = memory.text()?.trim().parse().ok()?;
    match memory.attribute("unit").unwrap_or("KiB") {
        "KiB" => Some(number >> 10),
        "MiB" => Some(number),
        "GiB" => Some(number << 10),
        _ => None,
    }
}

/// Whether the name of a domain ends in the digits of its UUID, as ours do; the driver does not read the definitions of others.
pub fn may_be_ours(name: &str, uuid: Uuid) -> bool {
    volumes::digits(name).is_some_and(|digits| uuid.simple().to_string().starts_with(digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::HostName;
    use crate::judges;
    use crate::vm::{MacAddress, Nic, VmDisk};

    fn key() -> MachineKey {
        MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win-1".into() }
    }

    fn spec() -> VmSpec {
        let nic = |network: Option<&str>, last| Nic { network: network.map(str::to_owned), mac: MacAddress([2, 0, 0, 0, 0, last]) };
        VmSpec {
            image: "w".into(),
            cpus: 4,
            memory_mib: 8192,
            system_disk_gib: None,
            disks: vec![VmDisk { name: "data".into(), gib: 20 }],
            nics: vec![nic(None, 1), nic(Some("vlan<114>"), 2), nic(Some("bridge:br0"), 3)],
            uefi: true,
            secure_boot: true,
            tpm: true,
            nested_virtualization: false,
            host_name: HostName::parse("win-1").unwrap(),
        }
    }

    fn pool(kind: &str) -> Storage {
        Storage::read(&format!("<pool type='{kind}'><name>default</name><target><path>/pool</path></target></pool>")).unwrap()
    }

    fn host(storage: &Storage, acceleration: Acceleration, devices: DeviceModel) -> Host<'_> {
        Host { storage, acceleration, devices, default_network: Some("default"), log: Some("/pool/win-1.log"), console: Console::None }
    }

    /// The chain of an image over another image.
    fn under() -> Chain {
        let volume = "<volume><name>w</name><capacity>9</capacity><target><path>/pool/w</path><format type='qcow2'/></target></volume>";
        let base = volume.replace("/pool/w", "/base/w");
        let [image, base] = [volume, &base].map(|xml| volumes::Image::read(xml).unwrap());
        volumes::Image { chain: base.under_disks(), ..image }.under_disks()
    }

    /// Every kind of definition fits libvirt's own schema, where its validator is installed.
    #[test]
    fn definitions_are_valid_for_libvirt() {
        let directory = tempfile::tempdir().unwrap();
        let bios = VmSpec { uefi: false, secure_boot: false, tpm: false, disks: Vec::new(), ..spec() };
        let open = VmSpec { secure_boot: false, nested_virtualization: true, cpus: 128, ..spec() };
        for (number, (spec, host)) in [
            (spec(), host(&pool("dir"), Acceleration::Kvm, DeviceModel::Virtio)),
            (open, Host { console: Console::Vnc, ..host(&pool("logical"), Acceleration::Kvm, DeviceModel::Emulated) }),
            (bios, Host { log: None, default_network: None, ..host(&pool("netfs"), Acceleration::Tcg, DeviceModel::Virtio) }),
        ]
        .into_iter()
        .enumerate()
        {
            let xml = definition(&key(), &spec, &host, &under());
            Document::parse(&xml).unwrap();
            let path = directory.path().join(format!("{number}.xml"));
            std::fs::write(&path, &xml).unwrap();
            let judge = judges::output(std::process::Command::new("virt-xml-validate").arg(&path).arg("domain"));
            let Some(output) = judge else { continue };
            assert!(output.status.success(), "{}\n{xml}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn what_is_defined_is_read() {
        let xml = definition(&key(), &spec(), &host(&pool("dir"), Acceleration::Kvm, DeviceModel::Virtio), &under());
        let found = Found::read(&xml).unwrap();
        assert_eq!((found.cpus, found.memory_mib, found.is_active, found.has_medium), (4, 8192, false, true));
        let other = Storage::read("<pool type='dir'><name>other</name><target><path>/other</path></target></pool>").unwrap();
        assert!(found.is_ours(&key()) && found.is_in(&pool("dir")) && !found.is_in(&other));
        let of_volumes = Found::read(&definition(&key(), &spec(), &host(&pool("rbd"), Acceleration::Kvm, DeviceModel::Virtio), &under())).unwrap();
        assert!(of_volumes.has_medium && of_volumes.is_in(&pool("dir")) && !of_volumes.is_in(&other), "VMs of earlier versions name their pool");
        assert!(!found.is_ours(&MachineKey { cluster: "lab/two".into(), ..key() }));
        assert!(may_be_ours(&found.name, key().vm.0) && !may_be_ours("win-1", key().vm.0) && !may_be_ours(&found.name, Uuid::nil()));
        let ejected = xml.replace(&drive(Some((&pool("dir"), &Volumes::of(&key()).drive()))).to_string(), &empty_drive());
        assert!(!Found::read(&ejected).unwrap().has_medium);
        // The drive as a daemon shows it while the VM runs.
        assert!(!Found::read(&ejected.replace("<target dev='sda'", "<source index='4'/><target dev='sda'")).unwrap().has_medium);
        assert!(!Found::read(&xml.replace("capw:machine", "capw:other")).unwrap().is_ours(&key()));
        assert_eq!((Found::read(""), Found::read("<domain/>")), (None, None));
    }

    #[test]
    fn networks_are_named_as_libvirt_names_them() {
        let interfaces = |default: Option<&'static str>| {
            let storage = pool("dir");
            let host = Host { default_network: default, ..host(&storage, Acceleration::Tcg, DeviceModel::Virtio) };
            let xml = definition(&key(), &spec(), &host, &under());
            let document = Document::parse(&xml).unwrap();
            let interfaces = document.descendants().filter(|node| node.has_tag_name("interface"));
            let source = |node: Node| {
                let found = node.children().find(|child| child.has_tag_name("source"));
                found.and_then(|source| source.attributes().next().map(|a| format!("{}={}", a.name(), a.value()))).unwrap_or_default()
            };
            interfaces.map(|node| (node.attribute("type").unwrap().to_owned(), source(node))).collect::<Vec<_>>()
        };
        let pair = |kind: &str, source: &str| (kind.to_owned(), source.to_owned());
        let named = [pair("network", "network=vlan<114>"), pair("bridge", "bridge=br0")];
        assert_eq!(interfaces(None), [vec![pair("user", "")], named.to_vec()].concat());
        assert_eq!(interfaces(Some("default")), [vec![pair("network", "network=default")], named.to_vec()].concat());
    }
}
