//! The names and definitions of a VM's volumes.

use roxmltree::Document;

use super::disks::{Chain, Layer};
use crate::vm::MachineKey;
use crate::xml::{Element, element};

/// The longest name of a VM; its volumes are files, whose names may have 255 bytes.
const NAME_LENGTH: usize = 100;
/// The number of digits at the end of a VM's name.
const DIGITS: usize = 8;

/// The volumes of one VM, all named `<vm>.<what>`.
pub struct Volumes {
    vm: String,
}

impl Volumes {
    pub fn of(key: &MachineKey) -> Self {
        Self { vm: key.vm_name(NAME_LENGTH) }
    }

    pub fn vm(&self) -> &str {
        &self.vm
    }

    pub fn system(&self) -> String {
        format!("{}.qcow2", self.vm)
    }

    pub fn disk(&self, name: &str) -> String {
        format!("{}.disk-{name}.qcow2", self.vm)
    }

    /// Returns the name of the configuration drive.
    pub fn drive(&self) -> String {
        format!("{}.iso", self.vm)
    }

    /// Returns the name of the log of the guest's serial port.
    pub fn log(&self) -> String {
        format!("{}.log", self.vm)
    }

    pub fn contain(&self, volume: &str) -> bool {
        volume.strip_prefix(&self.vm).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// Returns the digits at the end of a VM's name, if the name has our form.
pub fn digits(vm: &str) -> Option<&str> {
    let (_, digits) = vm.rsplit_once('-')?;
    (digits.len() == DIGITS && digits.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))).then_some(digits)
}

/// Returns the name of the VM that a volume belongs to, if the name has our form.
pub fn vm_of(volume: &str) -> Option<&str> {
    let ours = |rest: &str| rest == "qcow2" || rest == "iso" || rest == "log" || rest.starts_with("log.") || rest.starts_with("disk-");
    volume.match_indices('.').find_map(|(at, _)| {
        let (vm, rest) = (volume.get(..at)?, volume.get(at + 1..)?);
        (digits(vm).is_some() && ours(rest)).then_some(vm)
    })
}

/// An image: a file under the disks of VMs, or the original of their copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub name: String,
    pub path: String,
    pub format: String,
    pub bytes: u64,
    /// The bytes that the image takes in the pool.
    pub allocated: u64,
    /// The files under the image, as far as they are known.
    pub chain: Chain,
}

impl Image {
    /// Reads the definition of a volume.
    pub fn read(xml: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let root = document.root_element();
        let target = root.children().find(|node| node.has_tag_name("target"))?;
        let in_target = |name: &str| target.children().find(|node| node.has_tag_name(name));
        let backing = root.children().find(|node| node.has_tag_name("backingStore"));
        let below = backing.and_then(|node| {
            let child = |name: &str| node.children().find(|child| child.has_tag_name(name));
            let format = child("format").and_then(|format| format.attribute("type")).unwrap_or_default();
            Some(Layer { path: child("path")?.text()?.to_owned(), format: format.to_owned() })
        });
        let bytes = |name: &str| root.children().find(|node| node.has_tag_name(name))?.text()?.trim().parse::<u64>().ok();
        Some(Self {
            name: root.children().find(|node| node.has_tag_name("name"))?.text()?.to_owned(),
            path: in_target("path")?.text()?.to_owned(),
            format: in_target("format")?.attribute("type")?.to_owned(),
            bytes: bytes("capacity")?,
            allocated: bytes("allocation").unwrap_or_default(),
            chain: Chain::begun(below),
        })
    }

    /// Returns the chain of the disks over this image.
    pub fn under_disks(&self) -> Chain {
        Chain::over(Layer { path: self.path.clone(), format: self.format.clone() }, &self.chain)
    }
}

/// Defines a disk that holds only the differences from the image.
pub fn over_image(name: &str, image: &Image, gib: Option<u64>) -> String {
    let bytes = gib.map_or(image.bytes, |gib| gib << 30);
    let backing = element("backingStore").with(element("path").text(&image.path)).with(element("format").attribute("type", &image.format));
    element("volume").with(element("name").text(name)).with(capacity(bytes)).with(target("qcow2")).with(backing).to_string()
}

/// Defines a disk that holds all of the image.
pub fn copy(name: &str, image: &Image) -> String {
    disk(name, image.bytes)
}

pub fn empty_disk(name: &str, gib: u64) -> String {
    disk(name, gib << 30)
}

fn disk(name: &str, bytes: u64) -> String {
    element("volume").with(element("name").text(name)).with(capacity(bytes)).with(target("qcow2")).to_string()
}

/// Defines a file of that length.
pub fn raw(name: &str, bytes: usize) -> String {
    element("volume").with(element("name").text(name)).with(capacity(u64::try_from(bytes).unwrap_or_default())).with(target("raw")).to_string()
}

fn capacity(bytes: u64) -> Element {
    element("capacity").attribute("unit", "bytes").text(bytes)
}

fn target(format: &str) -> Element {
    element("target").with(element("format").attribute("type", format))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::VmUuid;

    #[test]
    fn a_volume_shows_whose_it_is() {
        let key = MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win.1".into() };
        let names = Volumes::of(&key);
        for volume in [names.system(), names.disk("data"), names.drive(), names.log(), format!("{}.0", names.log())] {
            assert_eq!(vm_of(&volume), Some(names.vm()), "{volume}");
            assert!(names.contain(&volume), "{volume}");
        }
        for other in ["windows-server-2022.qcow2", "win-1.iso", "win-3f2504e0.vmdk", "win-3F2504E0.iso", "win-3f2504e0", ".iso", ""] {
            assert_eq!(vm_of(other), None, "{other}");
            assert!(!names.contain(other), "{other}");
        }
        assert!(!names.contain(&format!("{}x.iso", names.vm())));
    }

    #[test]
    fn the_longest_name_fits_into_a_file_name() {
        let key = MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "ü".repeat(253) };
        assert!(Volumes::of(&key).disk(&"d".repeat(40)).len() <= 255);
    }
}
