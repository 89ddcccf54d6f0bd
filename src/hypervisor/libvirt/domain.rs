//! The definition of a VM, and what is read of one.

use roxmltree::{Document, Node};
use uuid::Uuid;

use super::volumes::{self, Volumes};
use crate::api::hypervisor::{Acceleration, DeviceModel};
use crate::api::name::VmUuid;
use crate::hypervisor::xml::{Element, element};
use crate::vm::{MachineKey, VmSpec};

/// Namespace of our element in a domain's metadata.
const NAMESPACE: &str = "https://infrastructure.cluster.x-k8s.io/capw/libvirt/1";
/// Where the configuration drive is.
const DRIVE: (&str, &str) = ("sda", "sata");
/// The prefix of a network that is a bridge of the host.
pub const BRIDGE: &str = "bridge:";

/// What all VMs of an endpoint have in common.
pub struct Host<'a> {
    pub pool: &'a str,
    pub acceleration: Acceleration,
    pub devices: DeviceModel,
    /// `None`: QEMU's own network, which needs no rights.
    pub default_network: Option<&'a str>,
    /// Path of the file that the guest's serial port is written to, if it is.
    pub log: Option<&'a str>,
}

/// The definition of a VM that does not exist yet. Nothing of the host is used but what `host` and `spec` name.
pub fn definition(key: &MachineKey, spec: &VmSpec, host: &Host) -> String {
    let virtual_hardware = matches!(host.devices, DeviceModel::Virtio);
    let (bus, letters) = if virtual_hardware { ("virtio", "vd") } else { ("sata", "sd") };
    let names = Volumes::of(key);
    let disks = std::iter::once(names.system()).chain(spec.disks.iter().map(|disk| names.disk(&disk.name)));
    let disks = disks.zip(if virtual_hardware { 'a'..='y' } else { 'b'..='z' }).map(|(volume, letter)| {
        element("disk")
            .attribute("type", "volume")
            .attribute("device", "disk")
            .with(element("driver").attribute("name", "qemu").attribute("type", "qcow2").attribute("discard", "unmap"))
            .with(source(host.pool, &volume))
            .with(element("target").attribute("dev", format!("{letters}{letter}")).attribute("bus", bus))
    });
    let nics = spec.nics.iter().map(|nic| {
        let network = nic.network.as_deref().or(host.default_network);
        let (kind, place) = match network.map(|name| (name, name.strip_prefix(BRIDGE))) {
            None => ("user", None),
            Some((_, Some(bridge))) => ("bridge", Some(("bridge", bridge))),
            Some((name, None)) => ("network", Some(("network", name))),
        };
        element("interface")
            .attribute("type", kind)
            .with_all(place.map(|(what, name)| element("source").attribute(what, name)))
            .with(element("mac").attribute("address", nic.mac))
            .with(element("model").attribute("type", if virtual_hardware { "virtio" } else { "e1000e" }))
    });
    let drive = drive(Some((host.pool, &names.drive())));
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
        .with(element("video").with(element("model").attribute("type", "vga")))
        .with(element("memballoon").attribute("model", "none"));
    element("domain")
        .attribute("type", if host.acceleration == Acceleration::Kvm { "kvm" } else { "qemu" })
        .with(element("name").text(names.vm()))
        .with(element("uuid").text(key.vm))
        .with(element("metadata").with(mark(key)))
        .with(element("memory").attribute("unit", "MiB").text(spec.memory_mib))
        .with(element("vcpu").text(spec.cpus))
        .with(firmware(spec))
        .with(features(spec))
        .with(processor(host.acceleration))
        .with(clock())
        .with(element("on_poweroff").text("destroy"))
        .with(element("on_reboot").text("restart"))
        .with(element("on_crash").text("destroy"))
        .with(devices)
        .to_string()
}

/// The configuration drive, without a medium for `None`.
fn drive(medium: Option<(&str, &str)>) -> Element {
    element("disk")
        .attribute("type", if medium.is_some() { "volume" } else { "file" })
        .attribute("device", "cdrom")
        .with(element("driver").attribute("name", "qemu").attribute("type", "raw"))
        .with_all(medium.map(|(pool, volume)| source(pool, volume)))
        .with(element("target").attribute("dev", DRIVE.0).attribute("bus", DRIVE.1))
        .with(element("readonly"))
}

/// The drive, ejected.
pub fn empty_drive() -> String {
    drive(None).to_string()
}

fn source(pool: &str, volume: &str) -> Element {
    element("source").attribute("pool", pool).attribute("volume", volume)
}

fn mark(key: &MachineKey) -> Element {
    element("capw:machine")
        .attribute("xmlns:capw", NAMESPACE)
        .attribute("mark", key.owner_mark())
        .attribute("cluster", &key.cluster)
        .attribute("name", &key.name)
}

fn firmware(spec: &VmSpec) -> Element {
    let machine = element("type").attribute("arch", "x86_64").attribute("machine", "q35").text("hvm");
    let boot = element("boot").attribute("dev", "hd");
    if !spec.uefi {
        return element("os").with(machine).with(boot);
    }
    let enabled = if spec.secure_boot { "yes" } else { "no" };
    let features = ["secure-boot", "enrolled-keys"].map(|name| element("feature").attribute("enabled", enabled).attribute("name", name));
    element("os").attribute("firmware", "efi").with(machine).with(element("firmware").with_all(features)).with(boot)
}

/// The hints by which Windows knows that it is a guest.
fn features(spec: &VmSpec) -> Element {
    let on = |name: &'static str| element(name).attribute("state", "on");
    let hyperv = element("hyperv").with(on("relaxed")).with(on("vapic")).with(on("spinlocks").attribute("retries", 8191));
    element("features").with(element("acpi")).with(element("apic")).with(hyperv).with_all((spec.uefi && spec.secure_boot).then(|| on("smm")))
}

fn processor(acceleration: Acceleration) -> Element {
    match acceleration {
        Acceleration::Kvm => element("cpu").attribute("mode", "host-passthrough"),
        Acceleration::Tcg => element("cpu").attribute("mode", "maximum"),
    }
}

/// Windows takes the clock of its machine for local time; the node plan sets it right afterwards.
fn clock() -> Element {
    element("clock").attribute("offset", "localtime").with(element("timer").attribute("name", "hypervclock").attribute("present", "yes"))
}

/// What the driver needs of a domain that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    pub is_active: bool,
    /// Its key and mark, if it has ours.
    pub owner: Option<(MachineKey, String)>,
    pub cpus: u32,
    pub memory_mib: u64,
    /// A medium is in the configuration drive.
    pub has_medium: bool,
    /// The pools of its disks.
    pools: Vec<String>,
}

impl Found {
    /// `None`: it is no domain of libvirt's.
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
            pools: root
                .descendants()
                .filter(|node| node.has_tag_name("source"))
                .filter_map(|node| node.attribute("pool").map(str::to_owned))
                .collect(),
        })
    }

    pub fn is_in(&self, pool: &str) -> bool {
        self.pools.iter().any(|used| used == pool)
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

/// Whether the name of a domain ends in the digits that ours have; the definitions of others are not read.
pub fn may_be_ours(name: &str, uuid: Uuid) -> bool {
    volumes::digits(name).is_some_and(|digits| uuid.simple().to_string().starts_with(digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::HostName;
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

    fn host(acceleration: Acceleration, devices: DeviceModel, default_network: Option<&'static str>) -> Host<'static> {
        Host { pool: "default", acceleration, devices, default_network, log: Some("/pool/win-1.log") }
    }

    /// Every kind of definition, judged by libvirt's own schema where its validator is installed.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
    fn definitions_are_valid_for_libvirt() {
        let directory = tempfile::tempdir().unwrap();
        let bios = VmSpec { uefi: false, secure_boot: false, tpm: false, disks: Vec::new(), ..spec() };
        let open = VmSpec { secure_boot: false, ..spec() };
        let mut judged = 0;
        for (number, (spec, host)) in [
            (spec(), host(Acceleration::Kvm, DeviceModel::Virtio, Some("default"))),
            (open, host(Acceleration::Kvm, DeviceModel::Emulated, Some("default"))),
            (bios, Host { log: None, ..host(Acceleration::Tcg, DeviceModel::Virtio, None) }),
        ]
        .into_iter()
        .enumerate()
        {
            let xml = definition(&key(), &spec, &host);
            Document::parse(&xml).unwrap();
            let path = directory.path().join(format!("{number}.xml"));
            std::fs::write(&path, &xml).unwrap();
            let Ok(output) = std::process::Command::new("virt-xml-validate").arg(&path).arg("domain").output() else { continue };
            assert!(output.status.success(), "{}\n{xml}", String::from_utf8_lossy(&output.stderr));
            judged += 1;
        }
        assert!(judged == 3 || std::env::var_os("CI").is_none(), "virt-xml-validate is not installed");
    }

    #[test]
    fn what_is_defined_is_read() {
        let xml = definition(&key(), &spec(), &host(Acceleration::Kvm, DeviceModel::Virtio, Some("default")));
        let found = Found::read(&xml).unwrap();
        assert_eq!((found.cpus, found.memory_mib, found.is_active, found.has_medium), (4, 8192, false, true));
        assert!(found.is_ours(&key()) && found.is_in("default") && !found.is_in("other"));
        assert!(!found.is_ours(&MachineKey { cluster: "lab/two".into(), ..key() }));
        assert!(may_be_ours(&found.name, key().vm.0) && !may_be_ours("win-1", key().vm.0) && !may_be_ours(&found.name, Uuid::nil()));
        let ejected = xml.replace(&drive(Some(("default", &Volumes::of(&key()).drive()))).to_string(), &empty_drive());
        assert!(!Found::read(&ejected).unwrap().has_medium);
        // As a daemon shows it while the VM runs.
        assert!(!Found::read(&ejected.replace("<target dev='sda'", "<source index='4'/><target dev='sda'")).unwrap().has_medium);
        assert!(!Found::read(&xml.replace("capw:machine", "capw:other")).unwrap().is_ours(&key()));
        assert_eq!((Found::read(""), Found::read("<domain/>")), (None, None));
    }

    #[test]
    fn networks_are_named_as_libvirt_names_them() {
        let interfaces = |default: Option<&'static str>| {
            let xml = definition(&key(), &spec(), &host(Acceleration::Tcg, DeviceModel::Virtio, default));
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
