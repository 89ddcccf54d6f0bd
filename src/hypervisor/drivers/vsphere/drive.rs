//! A seed as a CD: an image file in the VM's own directory. The VM's extra configuration records the drive for as long as the file may
//! exist, so the file never outlives its VM, whenever CAPW ends.

use roxmltree::Node;

use super::client::Client;
use super::datastore_file::DatastoreFile;
use super::fault::Error;
use super::properties::Properties;
use super::soap::{Reference, attribute, child, children, text_at, typed};
use crate::hypervisor::DriverError;
use crate::xml::{Element, element};

/// The types of controllers that take a CD, and how many devices each takes. A VM without a controller gets the first type.
const CONTROLLERS: [(&str, i64); 2] = [("VirtualAHCIController", 30), ("VirtualIDEController", 2)];
/// The keys of added devices: any negative numbers.
const NEW_CONTROLLER: i64 = -400;
const NEW_CD: i64 = -401;
/// The PCI controller that each VM has.
const PCI: i64 = 100;

/// The place of a VM's CD, or a place where the VM can get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub file: DatastoreFile,
    pub has_file: bool,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A CD drive that exists in the VM.
    Existing { key: i64, controller: i64, unit: i64 },
    /// A free unit of a controller.
    Free { controller: i64, unit: i64 },
    /// The VM needs another controller.
    NoController,
}

struct Device<'a, 'input> {
    node: Node<'a, 'input>,
    kind: String,
    key: i64,
    controller: i64,
    unit: i64,
}

impl<'a, 'input> Device<'a, 'input> {
    fn of(node: Node<'a, 'input>) -> Self {
        let number = |name: &str| text_at(node, &[name]).and_then(|text| text.parse().ok()).unwrap_or_default();
        let kind = attribute(node, "type").unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned();
        Self { node, kind, key: number("key"), controller: number("controllerKey"), unit: number("unitNumber") }
    }

    fn backing_file(&self) -> Option<&'a str> {
        child(self.node, "backing").and_then(|backing| text_at(backing, &["fileName"]))
    }
}

impl Slot {
    /// Reads the slot of a VM; `None`: the VM does not exist any more.
    pub async fn read(client: &Client, vm: &Reference) -> Result<Option<Self>, Error> {
        let paths = ["config.files.vmPathName", "config.hardware.device"].map(str::to_owned);
        match client.of_one(vm, "VirtualMachine", &paths, |properties| Some(Self::of(properties))).await? {
            Some(Some(slot)) => Ok(Some(slot)),
            Some(None) => Err(DriverError::Transient("the vCenter does not say yet where the VM's files are".into()).into()),
            None => Ok(None),
        }
    }

    fn of(properties: Properties) -> Option<Self> {
        let file = DatastoreFile::beside(properties.text("config.files.vmPathName")?)?;
        let devices: Vec<Device> = children(properties.get("config.hardware.device")?, "VirtualDevice").map(Device::of).collect();
        let drives: Vec<&Device> = devices.iter().filter(|device| device.kind == "VirtualCdrom").collect();
        let ours = drives.iter().find(|drive| drive.backing_file() == Some(file.name().as_str()));
        let place = match ours.or(drives.first()) {
            Some(drive) => Place::Existing { key: drive.key, controller: drive.controller, unit: drive.unit },
            None => Self::free(&devices).unwrap_or(Place::NoController),
        };
        Some(Self { has_file: ours.is_some(), file, place })
    }

    fn free(devices: &[Device]) -> Option<Place> {
        CONTROLLERS.iter().find_map(|(kind, most)| {
            let mut controllers = devices.iter().filter(|device| device.kind == *kind);
            controllers.find_map(|controller| {
                let is_free = |unit: &i64| !devices.iter().any(|device| device.controller == controller.key && device.unit == *unit);
                (0..*most).find(is_free).map(|unit| Place::Free { controller: controller.key, unit })
            })
        })
    }

    /// The changes that give the CD to a VM that is off.
    pub fn attach(&self) -> Vec<Element> {
        let backing = typed("backing", "VirtualCdromIsoBackingInfo").with(element("fileName").text(self.file.name()));
        match self.place {
            Place::Existing { key, controller, unit } => vec![change("edit", cd(key, backing, true, controller, unit))],
            Place::Free { controller, unit } => vec![change("add", cd(NEW_CD, backing, true, controller, unit))],
            Place::NoController => {
                let (kind, _) = CONTROLLERS[0];
                let controller = typed("device", kind)
                    .with(element("key").text(NEW_CONTROLLER))
                    .with(element("controllerKey").text(PCI))
                    .with(element("busNumber").text(0));
                vec![change("add", controller), change("add", cd(NEW_CD, backing, true, NEW_CONTROLLER, 0))]
            }
        }
    }

    /// The change that ejects the CD, also from a VM that is on.
    pub fn eject(&self) -> Option<Element> {
        let Place::Existing { key, controller, unit } = self.place else { return None };
        let backing = typed("backing", "VirtualCdromRemotePassthroughBackingInfo")
            .with(element("deviceName"))
            .with(element("useAutoDetect").text(false))
            .with(element("exclusive").text(false));
        self.has_file.then(|| change("edit", cd(key, backing, false, controller, unit)))
    }
}

fn change(operation: &'static str, device: Element) -> Element {
    typed("deviceChange", "VirtualDeviceConfigSpec").with(element("operation").text(operation)).with(device)
}

fn cd(key: i64, backing: Element, is_connected: bool, controller: i64, unit: i64) -> Element {
    let connectable = element("connectable")
        .with(element("startConnected").text(is_connected))
        .with(element("allowGuestControl").text(true))
        .with(element("connected").text(is_connected));
    typed("device", "VirtualCdrom")
        .with(element("key").text(key))
        .with(backing)
        .with(connectable)
        .with(element("controllerKey").text(controller))
        .with(element("unitNumber").text(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    fn free(devices: &[(&str, i64, i64, i64)]) -> Option<Place> {
        let text: String = devices
            .iter()
            .map(|(kind, key, controller, unit)| {
                format!(r#"<d type="{kind}"><key>{key}</key><controllerKey>{controller}</controllerKey><unitNumber>{unit}</unitNumber></d>"#)
            })
            .collect();
        let text = format!("<all>{text}</all>");
        let document = Document::parse(&text).unwrap();
        Slot::free(&document.root_element().children().map(Device::of).collect::<Vec<_>>())
    }

    #[test]
    fn a_cd_goes_to_the_first_free_place() {
        let (sata, ide) = (("VirtualAHCIController", 15000, PCI, 24), ("VirtualIDEController", 200, 0, 0));
        assert_eq!(free(&[ide, sata]), Some(Place::Free { controller: 15000, unit: 0 }));
        assert_eq!(free(&[ide, sata, ("VirtualDisk", 1, 15000, 0)]), Some(Place::Free { controller: 15000, unit: 1 }));
        assert_eq!(free(&[ide, ("VirtualDisk", 1, 200, 0)]), Some(Place::Free { controller: 200, unit: 1 }));
        assert_eq!(free(&[ide, ("VirtualDisk", 1, 200, 0), ("VirtualDisk", 2, 200, 1)]), None);
        assert_eq!(free(&[("ParaVirtualSCSIController", 1000, PCI, 3)]), None);
    }
}
