//! Images: templates with the same name, one on each node that cannot reach the disks of another node.

use super::client::{Client, Config, Location, Resource};
use super::connection::Form;
use super::hardware;
use super::names;
use crate::api::hypervisor::{CloneMode, Proxmox};
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::{MachineKey, Thing, VmSpec};

#[derive(Clone, Debug)]
pub struct Image {
    pub name: String,
    pub templates: Vec<Template>,
}

#[derive(Clone, Debug)]
pub struct Template {
    pub at: Location,
    pub config: Config,
}

impl Image {
    /// Finds the image of that name, or id.
    pub async fn find(client: &Client, name: &str) -> Result<Self, DriverError> {
        let guests = client.guests().await?;
        let is_named = |guest: &&Resource| guest.is_vm() && (guest.name == name || guest.vmid.to_string() == name);
        let named: Vec<Location> = guests.iter().filter(is_named).filter(|guest| guest.template == 1).map(Resource::location).collect();
        if named.is_empty() {
            return Err(missing(client, name, &guests, guests.iter().find(is_named)));
        }
        let mut templates = Vec::new();
        for at in named {
            if templates.iter().any(|other: &Template| other.at.node == at.node) {
                return Err(DriverError::Invalid(format!(
                    "node {} has several templates {name:?}: name one by its id in spec.images of the WindowsHypervisor, e.g. is: \"{}\"",
                    at.node, at.vmid
                )));
            }
            let config = client.config(&at).await?.ok_or_else(|| DriverError::Transient(format!("image {name:?} was there and is not")))?;
            templates.push(Template { at, config });
        }
        Ok(Self { name: name.to_owned(), templates })
    }

    /// Checks whether a machine can be created from the image; the error explains why not.
    pub fn check(&self, spec: &VmSpec, settings: &Proxmox) -> Result<(), DriverError> {
        self.is_linked(spec, settings).map(drop)
    }

    /// Whether a machine gets a linked clone.
    pub fn is_linked(&self, spec: &VmSpec, settings: &Proxmox) -> Result<bool, DriverError> {
        let name = &self.name;
        let invalid = |text: String| Err(DriverError::Invalid(text));
        let mut linked = settings.clone != CloneMode::Full;
        for Template { at, config } in &self.templates {
            let Some(system) = hardware::system_disk(config) else { return invalid(format!("image {name:?} ({}) has no disk", at.vmid)) };
            if hardware::is_uefi(config) != spec.uefi {
                let (has, asked) = if spec.uefi { ("BIOS", "UEFI") } else { ("UEFI", "BIOS") };
                return invalid(format!(
                    "image {name:?} was made for {has}, and the machine asks for {asked}: set spec.firmware.type of the machine to {has}"
                ));
            }
            if spec.secure_boot && !hardware::has_secure_boot(config) {
                return invalid(format!(
                    "the EFI disk of image {name:?} has no keys of Secure Boot: make it with pre-enrolled-keys=1, or set spec.firmware.secureBoot of the machine to false"
                ));
            }
            if let Some((asked, smallest)) = spec.system_disk_gib.zip(system.gib).filter(|(asked, smallest)| asked < smallest) {
                return invalid(format!("image {name:?} needs a system disk of {smallest} GiB, not {asked}: raise spec.systemDisk of the machine"));
            }
            let elsewhere = settings.storage.as_ref().is_some_and(|storage| *storage != system.storage);
            linked = linked && !(settings.clone == CloneMode::Auto && elsewhere);
        }
        Ok(linked)
    }

    /// Returns the template to clone, and the request that creates a VM from it at that location.
    pub fn clone_form(&self, key: &MachineKey, spec: &VmSpec, settings: &Proxmox, to: &Location) -> Result<(Location, Form), DriverError> {
        let is_full = !self.is_linked(spec, settings)?;
        let near = self.templates.iter().find(|template| template.at.node == to.node);
        let template = near.or(self.templates.first()).ok_or_else(|| DriverError::Transient("the image has no template any more".into()))?;
        let mut form = Form::new();
        let mut set = |key: &str, value: String| form.push((key.to_owned(), value));
        set("newid", to.vmid.to_string());
        set("name", names::name_of(key));
        set("description", names::description(key));
        set("full", u8::from(is_full).to_string());
        if template.at.node != to.node {
            set("target", to.node.clone());
        }
        if let Some(pool) = &settings.pool {
            set("pool", pool.clone());
        }
        if let Some(storage) = settings.storage.as_ref().filter(|_| is_full) {
            set("storage", storage.clone());
        }
        Ok((template.at.clone(), form))
    }
}

fn missing(client: &Client, name: &str, guests: &[Resource], vm: Option<&Resource>) -> DriverError {
    let text = match vm {
        Some(vm) => format!("image {name:?} on {} is a VM, not a template: qm template {}", client.server(), vm.vmid),
        None => format!(
            "{} has no image {name:?}; templates that the token may see (VM.Audit on them): {}. Correct spec.image of the machine or spec.images of the WindowsHypervisor, or add the template",
            client.server(),
            listed(guests.iter().filter(|guest| guest.template == 1).map(|guest| guest.name.as_str()))
        ),
    };
    DriverError::Missing { thing: Thing::Image, text }
}
