//! A Windows machine before its first start: the parts of Windows that plans check, and the content of its image.

use super::node::build;
use crate::bootstrap::paths;
use crate::bootstrap::plan::RegistryData;

pub const COMPUTER_NAME: (&str, &str) = (r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName", "ComputerName");
pub const BUILD: (&str, &str) = (r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion", "CurrentBuildNumber");
/// The registry key of Windows services.
pub const SERVICES: &str = r"HKLM:\SYSTEM\CurrentControlSet\Services";
/// The registry value for the start type of a service, and its data.
pub const START: &str = "Start";
pub const AUTOMATIC: u32 = 2;
pub const ON_DEMAND: u32 = 3;

/// Services of Windows that are off until an event starts them.
pub const TRIGGERED: [&str; 1] = ["W32Time"];
/// The keys of their trigger events, below the key of the service.
pub const TRIGGERS: [&str; 2] = ["TriggerInfo", r"TriggerInfo\0"];

/// The content of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The build of Windows, e.g. 20348.
    pub build: u32,
    pub programs: Vec<String>,
    /// The optional features that are on.
    pub features: Vec<String>,
}

impl Image {
    /// The image of that name: the name determines its Windows, and the image has the programs of a node.
    pub fn named(name: &str) -> Self {
        let programs = [paths::CONTAINERD, paths::KUBELET, paths::KUBEADM, paths::LOG_RUNNER, paths::KUBE_PROXY];
        Self { build: build(name), programs: programs.map(str::to_owned).to_vec(), features: Vec::new() }
    }
}

/// The registry at the first start: keys, names and data.
pub fn registry(image: &Image, computer_name: &str) -> Vec<(String, &'static str, RegistryData)> {
    let mut values = vec![
        (COMPUTER_NAME.0.to_owned(), COMPUTER_NAME.1, RegistryData::String(computer_name.to_uppercase())),
        (BUILD.0.to_owned(), BUILD.1, RegistryData::String(image.build.to_string())),
    ];
    for service in TRIGGERED {
        values.push((format!(r"{SERVICES}\{service}"), START, RegistryData::Dword(ON_DEMAND)));
        for key in TRIGGERS {
            values.push((format!(r"{SERVICES}\{service}\{key}"), "", RegistryData::String(String::new())));
        }
    }
    values
}
