//! Reads the hypervisors of files, and what is meant for them.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;

use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec, WindowsMachineTemplate};
use crate::cli::documents::{at, documents, secret, text, typed};
use crate::hypervisor::login::Login;

/// The relevant objects of the files.
#[derive(Default)]
pub(super) struct Objects {
    pub hypervisors: Vec<WindowsHypervisor>,
    secrets: Vec<Secret>,
    /// The machines with their kind and name.
    machines: Vec<(String, WindowsMachineSpec)>,
}

impl Objects {
    pub fn read(files: &[PathBuf]) -> Result<Self, String> {
        let mut objects = Self::default();
        for path in files {
            for (number, document) in documents(&text(path)?).iter().enumerate() {
                let origin = format!("{}: document {}", path.display(), number + 1);
                let value: serde_json::Value = serde_saphyr::from_str(document).map_err(|e| format!("{origin}: {e}"))?;
                let (kind, name) = (at(&value, "kind").unwrap_or_default(), at(&value, "metadata.name").unwrap_or("unnamed"));
                let (origin, named) = (format!("{origin} ({kind} {name})"), format!("{kind} {name}"));
                match kind {
                    "WindowsHypervisor" => objects.hypervisors.push(typed(&origin, &value)?),
                    "WindowsMachine" => objects.machines.push((named, typed::<WindowsMachine>(&origin, &value)?.spec)),
                    "WindowsMachineTemplate" => {
                        let spec = typed::<WindowsMachineTemplate>(&origin, &value)?.spec.template.spec;
                        objects.machines.push((named, spec));
                    }
                    "Secret" => objects.secrets.push(secret(&origin, &value)?),
                    _ => {}
                }
            }
        }
        if objects.hypervisors.is_empty() {
            return Err("no document is a WindowsHypervisor: give the file that holds it with -f".into());
        }
        Ok(objects)
    }

    /// The credentials, if the Secret is among the documents.
    pub fn login(&self, hypervisor: &WindowsHypervisor) -> Login {
        let named = hypervisor.spec.credentials_ref.as_ref().map(|reference| reference.name.as_str());
        let found = self.secrets.iter().find(|secret| named.is_some() && secret.metadata.name.as_deref() == named);
        let Some(secret) = found else { return Login::default() };
        let data = secret.data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        let plain = secret.string_data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        Login::new(named.unwrap_or_default().to_owned(), data.chain(plain).collect())
    }

    /// The machines that may be created on a hypervisor, with their kind and name.
    pub fn machines_of(&self, hypervisor: &WindowsHypervisor) -> impl Iterator<Item = &(String, WindowsMachineSpec)> {
        let name = hypervisor.metadata.name.as_deref().unwrap_or_default();
        self.machines.iter().filter(move |(_, spec)| spec.hypervisor_ref.as_ref().is_none_or(|reference| reference.name == name))
    }
}
