//! What is read of a VM, and what the driver writes into one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::client::{Client, Properties};
use super::fault::Error;
use super::soap::{Reference, children, text_at, text_of, typed};
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::hypervisor::xml::{Element, element};
use crate::vm::{GuestReport, MachineKey, Power, Present, Seed, Seeded, usable};

/// Longest name of a VM.
const NAME: usize = 80;
/// Our keys of a VM's extra configuration. Those of the guest begin with `guestinfo.`; it can read and write no others.
const MARK: &str = "capw.mark";
const MACHINE: &str = "capw.machine";
/// A digest of the values that its guest was given; empty when they were taken away.
const SEED: &str = "capw.seed";
/// Where the guest says how far it is.
const REPORT: &str = "guestinfo.capw.report";

/// Name of a machine's VM.
pub fn name_of(key: &MachineKey) -> String {
    key.vm_name(NAME)
}

/// What the driver needs of a VM that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub vm: Reference,
    pub name: String,
    uuid: Option<Uuid>,
    mark: String,
    /// Name of the WindowsMachine that it was made for.
    machine: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// It is being made, or cannot be read: nothing is known of it but its name.
    pub is_unknown: bool,
    is_template: bool,
    power: String,
    trouble: Option<String>,
    addresses: Vec<IpAddr>,
    report: Option<GuestReport>,
    pub seed: String,
}

fn extra(key: &str) -> String {
    format!("config.extraConfig[\"{key}\"]")
}

/// The properties that are read. The whole extra configuration never is: it holds the secrets of each guest.
pub fn paths() -> Vec<String> {
    const PLAIN: [&str; 9] = [
        "name",
        "config.instanceUuid",
        "config.template",
        "config.hardware.numCPU",
        "config.hardware.memoryMB",
        "runtime.powerState",
        "runtime.connectionState",
        "runtime.question",
        "guest.net",
    ];
    PLAIN.into_iter().map(str::to_owned).chain([MARK, MACHINE, SEED, REPORT].map(extra)).collect()
}

/// Those whose changes concern machines.
pub fn telling() -> Vec<String> {
    let plain = ["runtime.powerState", "runtime.connectionState", "runtime.question", "guest.net"].map(str::to_owned);
    plain.into_iter().chain([extra(REPORT)]).collect()
}

impl Found {
    pub fn read(properties: Properties) -> Option<Self> {
        let value = |key: &str| {
            let value = properties.get(&extra(key)).and_then(|option| text_at(option, &["value"]));
            value.unwrap_or_default().to_owned()
        };
        let text = |path: &str| properties.text(path).unwrap_or_default();
        let addresses = properties.get("guest.net").into_iter().flat_map(|net| children(net, "GuestNicInfo")).filter(|nic| {
            // Those of no device are made by the guest itself, e.g. for its containers.
            text_at(*nic, &["deviceConfigId"]).and_then(|id| id.parse::<i64>().ok()).is_some_and(|id| id >= 0)
        });
        let addresses = addresses.flat_map(|nic| children(nic, "ipAddress")).filter_map(|address| text_of(address).parse().ok());
        let question = properties.get("runtime.question").and_then(|question| text_at(question, &["text"])).filter(|text| !text.is_empty());
        let power = text("runtime.powerState");
        let trouble = match (text("runtime.connectionState"), power, question) {
            (_, _, Some(question)) => Some(format!("it waits for an answer: {question}. Answer it in the vSphere Client")),
            (_, "suspended", _) => Some("it was suspended, but not by CAPW: power it on".to_owned()),
            ("connected" | "", _, _) => None,
            (state, _, _) => Some(format!("the vCenter calls it {state}: look at its host and datastore")),
        };
        Some(Self {
            vm: properties.object()?,
            name: text("name").to_owned(),
            uuid: Uuid::try_parse(text("config.instanceUuid")).ok(),
            mark: value(MARK),
            machine: value(MACHINE),
            cpus: properties.number("config.hardware.numCPU").unwrap_or_default(),
            memory_mib: properties.number("config.hardware.memoryMB").unwrap_or_default(),
            is_unknown: properties.text("config.hardware.numCPU").is_none(),
            is_template: text("config.template") == "true",
            power: power.to_owned(),
            trouble,
            addresses: usable(addresses),
            report: GuestReport::newest([value(REPORT).as_bytes()]),
            seed: value(SEED),
        })
    }

    /// The machine that it was made for. A copy of such a VM carries its mark too, but has neither its UUID nor its name.
    pub fn key(&self) -> Option<MachineKey> {
        MachineKey::of_mark(&self.mark, &self.machine).filter(|key| self.is_ours(key))
    }

    pub fn is_ours(&self, key: &MachineKey) -> bool {
        self.mark == key.owner_mark() && (self.uuid == Some(key.vm.0) || self.name == name_of(key)) && !self.is_template
    }

    /// Whether its mark names that machine, in whatever cluster.
    pub fn is_marked_for(&self, key: &MachineKey) -> bool {
        key.is_named_by(&self.mark)
    }

    /// Why it cannot be read, if it is not just being made.
    pub fn unreadable(&self) -> Option<DriverError> {
        unreadable(&self.present())
    }

    pub fn is_off(&self) -> bool {
        self.power == "poweredOff"
    }

    pub fn present(&self) -> Present {
        let power = if self.is_unknown {
            Power::Creating
        } else if self.is_off() {
            Power::Off
        } else {
            Power::On
        };
        Present {
            power,
            seeded: Seeded::from_attached(!self.seed.is_empty()),
            vm: true,
            addresses: if power == Power::On { self.addresses.clone() } else { Vec::new() },
            report: self.report.clone(),
            trouble: self.trouble.clone(),
        }
    }

    pub fn creating() -> Present {
        Present { power: Power::Creating, seeded: Seeded::Yes, vm: true, addresses: Vec::new(), report: None, trouble: None }
    }
}

/// Why a VM of which only the name is known does not become more.
pub fn unreadable(present: &Present) -> Option<DriverError> {
    let trouble = present.trouble.as_ref().filter(|_| present.power == Power::Creating)?;
    Some(DriverError::Invalid(format!("its VM cannot be read: {trouble}")))
}

/// Reads a VM; `None`: it is not there any more.
pub async fn read(client: &Client, vm: &Reference) -> Result<Option<Found>, Error> {
    client.of_one(vm, "VirtualMachine", &paths(), Found::read).await
}

fn option(key: &str, value: &str) -> Element {
    typed("extraConfig", "OptionValue").with(element("key").text(key)).with(typed("value", "xsd:string").text(value))
}

/// The mark of a machine.
pub fn mark(key: &MachineKey) -> [Element; 2] {
    [option(MARK, &key.owner_mark()), option(MACHINE, &key.name)]
}

/// The values that a guest is given.
pub fn seed(values: &BTreeMap<String, String>) -> Vec<Element> {
    values.iter().map(|(key, value)| option(key, value)).chain([option(SEED, &digest(values))]).collect()
}

/// The values that a guest is given, emptied: an empty value is none.
pub fn no_seed() -> Vec<Element> {
    let keys = crate::bootstrap::delivery::guest_info::KEYS;
    keys.iter().map(|key| option(key, "")).chain([option(SEED, "")]).collect()
}

pub fn digest(values: &BTreeMap<String, String>) -> String {
    let mut digest = Sha256::new();
    for text in values.iter().flat_map(|(key, value)| [key, value]) {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    data_encoding::HEXLOWER.encode(&digest.finalize())
}

/// The values of a seed, if it is one of this kind.
pub fn values(seed: &Seed) -> Option<&BTreeMap<String, String>> {
    match seed {
        Seed::GuestInfo(values) => Some(values),
        Seed::Drive { .. } => None,
    }
}

/// What is remembered of VMs: one request less for each look. A reference is never used for another VM.
#[derive(Default)]
pub struct Known(HashMap<VmUuid, Memory>);

/// What is remembered of a VM.
#[derive(Clone)]
pub enum Memory {
    /// It is being cloned since then.
    Cloning(Instant),
    /// It was read.
    Is(Reference),
    /// It was destroyed.
    Gone,
}

impl Known {
    pub fn get(&self, vm: VmUuid) -> Option<Memory> {
        self.0.get(&vm).cloned()
    }

    pub fn note(&mut self, vm: VmUuid, memory: Memory) {
        self.0.insert(vm, memory);
    }

    pub fn forget(&mut self, vm: VmUuid) {
        self.0.remove(&vm);
    }

    /// Forgets those that were destroyed.
    pub fn tidy(&mut self) {
        self.0.retain(|_, memory| !matches!(memory, Memory::Gone));
    }
}
