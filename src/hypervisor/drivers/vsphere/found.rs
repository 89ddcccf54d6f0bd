//! The properties that the driver reads from a VM, and the values that it writes into one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use roxmltree::Node;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::alarms;
use super::properties::Properties;
use super::soap::{Reference, children, text_at, text_of, typed};
use crate::api::name::VmUuid;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::DriverError;
use crate::vm::{GuestReport, MachineKey, Power, Present, Seed, Seeded, usable};
use crate::xml::{Element, element};

/// The longest name of a VM.
const NAME: usize = 80;
/// The driver's keys in a VM's extra configuration. The guest's keys begin with `guestinfo.`; the guest can read and write no others.
const MARK: &str = "capw.mark";
const MACHINE: &str = "capw.machine";
/// The digest of the seed that the guest was given; empty after the seed was taken away.
const SEED: &str = "capw.seed";
/// The prefix of a drive's digest; alone, it marks a VM that gets a drive later.
const DRIVE: &str = "drive:";
/// The key of the guest's progress report.
const REPORT: &str = "guestinfo.capw.report";

/// The name of a machine's VM.
pub fn name_of(key: &MachineKey) -> String {
    key.vm_name(NAME)
}

/// The properties of an existing VM that the driver needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub vm: Reference,
    pub name: String,
    uuid: Option<Uuid>,
    mark: String,
    /// The name of the WindowsMachine that owns the VM.
    machine: String,
    /// `None`: the VM is being created, or cannot be read. Then only its name is known.
    cpus: Option<u32>,
    pub memory_mib: u64,
    is_template: bool,
    power: String,
    connection: String,
    question: String,
    /// Alarms that need a person's attention.
    pub alarms: Vec<Reference>,
    addresses: Vec<IpAddr>,
    report: Option<GuestReport>,
    pub seed: String,
    /// The properties came with the vCenter's updates: they were not read now.
    pub is_told: bool,
}

/// The start of the property path of one key in the extra configuration.
const EXTRA: &str = "config.extraConfig[\"";
const END: &str = "\"]";

fn extra(key: &str) -> String {
    format!("{EXTRA}{key}{END}")
}

fn addresses(net: Node) -> Vec<IpAddr> {
    let interfaces = children(net, "GuestNicInfo").filter(|interface| {
        // The guest itself creates interfaces without a device, e.g. for its containers.
        text_at(*interface, &["deviceConfigId"]).and_then(|id| id.parse::<i64>().ok()).is_some_and(|id| id >= 0)
    });
    usable(interfaces.flat_map(|interface| children(interface, "ipAddress")).filter_map(|address| text_of(address).parse().ok()))
}

/// The properties that are read. The whole extra configuration is never read: it holds the secrets of each guest.
pub fn paths() -> Vec<String> {
    const PLAIN: [&str; 10] = [
        "name",
        "config.instanceUuid",
        "config.template",
        "config.hardware.numCPU",
        "config.hardware.memoryMB",
        "runtime.powerState",
        "runtime.connectionState",
        "runtime.question",
        "guest.net",
        alarms::PATH,
    ];
    PLAIN.into_iter().map(str::to_owned).chain([MARK, MACHINE, SEED, REPORT].map(extra)).collect()
}

impl Found {
    /// A VM without any known property.
    fn new(vm: Reference) -> Self {
        Self {
            vm,
            name: String::new(),
            uuid: None,
            mark: String::new(),
            machine: String::new(),
            cpus: None,
            memory_mib: 0,
            is_template: false,
            power: String::new(),
            connection: String::new(),
            question: String::new(),
            alarms: Vec::new(),
            addresses: Vec::new(),
            report: None,
            seed: String::new(),
            is_told: false,
        }
    }

    /// A VM that the vCenter's updates begin to describe.
    pub fn told(vm: Reference) -> Self {
        Self { is_told: true, ..Self::new(vm) }
    }

    pub fn read(properties: Properties) -> Option<Self> {
        let mut found = Self::new(properties.object()?);
        properties.all().for_each(|(path, value)| found.set(path, Some(value)));
        Some(found)
    }

    /// Sets a property; `None`: the property has no value.
    pub fn set(&mut self, path: &str, value: Option<Node>) {
        let text = || value.map(text_of).unwrap_or_default();
        match path {
            "name" => self.name = text().to_owned(),
            "config.instanceUuid" => self.uuid = Uuid::try_parse(text()).ok(),
            "config.template" => self.is_template = text() == "true",
            "config.hardware.numCPU" => self.cpus = text().parse().ok(),
            "config.hardware.memoryMB" => self.memory_mib = text().parse().unwrap_or_default(),
            "runtime.powerState" => self.power = text().to_owned(),
            "runtime.connectionState" => self.connection = text().to_owned(),
            "runtime.question" => self.question = value.and_then(|question| text_at(question, &["text"])).unwrap_or_default().to_owned(),
            alarms::PATH => self.alarms = value.map(alarms::raised).unwrap_or_default(),
            "guest.net" => self.addresses = value.map(addresses).unwrap_or_default(),
            path => {
                let value = || value.and_then(|option| text_at(option, &["value"])).unwrap_or_default().to_owned();
                match path.strip_prefix(EXTRA).and_then(|rest| rest.strip_suffix(END)) {
                    Some(MARK) => self.mark = value(),
                    Some(MACHINE) => self.machine = value(),
                    Some(SEED) => self.seed = value(),
                    Some(REPORT) => self.report = GuestReport::newest([value().as_bytes()]),
                    _ => {}
                }
            }
        }
    }

    pub fn cpus(&self) -> u32 {
        self.cpus.unwrap_or_default()
    }

    /// Whether the VM is being created or cannot be read. Then only its name is known.
    pub fn is_unknown(&self) -> bool {
        self.cpus.is_none()
    }

    pub fn has_uuid(&self, vm: VmUuid) -> bool {
        self.uuid == Some(vm.0)
    }

    /// Why the VM does not run, with the vCenter's message.
    fn trouble(&self) -> Option<String> {
        match (self.connection.as_str(), self.power.as_str(), self.question.as_str()) {
            ("connected" | "", power, "") if power != "suspended" => None,
            (_, "suspended", "") => Some("it was suspended, but not by CAPW: power it on".to_owned()),
            (state, _, "") => Some(format!("the vCenter calls it {state}: look at its host and datastore")),
            (_, _, question) => Some(format!("it waits for an answer: {question}. Answer it in the vSphere Client")),
        }
    }

    /// The owner of the VM. A copy of the VM carries its mark too, but has neither its UUID nor its name.
    pub fn key(&self) -> Option<MachineKey> {
        MachineKey::of_mark(&self.mark, &self.machine).filter(|key| self.is_ours(key))
    }

    pub fn is_ours(&self, key: &MachineKey) -> bool {
        let is_named = self.has_uuid(key.vm) || self.name == name_of(key);
        is_named && self.mark == key.owner_mark() && !self.is_template
    }

    pub fn is_unmarked(&self) -> bool {
        self.mark.is_empty()
    }

    /// Whether the mark names that machine, in any cluster.
    pub fn is_marked_for(&self, key: &MachineKey) -> bool {
        key.is_named_by(&self.mark)
    }

    /// Why the VM cannot be read, unless it is just being created.
    pub fn unreadable(&self) -> Option<DriverError> {
        unreadable(&self.present())
    }

    /// Whether the VM's directory may have the file of a drive.
    pub fn has_drive(&self) -> bool {
        self.seed.starts_with(DRIVE)
    }

    pub fn is_off(&self) -> bool {
        self.power == "poweredOff"
    }

    pub fn present(&self) -> Present {
        let power = if self.is_unknown() {
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
            trouble: self.trouble(),
            warning: None,
        }
    }

    pub fn creating() -> Present {
        Present { power: Power::Creating, seeded: Seeded::Yes, vm: true, addresses: Vec::new(), report: None, trouble: None, warning: None }
    }
}

/// The error for a VM that has a name but cannot be read.
pub fn unreadable(present: &Present) -> Option<DriverError> {
    let trouble = present.trouble.as_ref().filter(|_| present.power == Power::Creating)?;
    Some(DriverError::Invalid(format!("its VM cannot be read: {trouble}")))
}

fn option(key: &str, value: &str) -> Element {
    typed("extraConfig", "OptionValue").with(element("key").text(key)).with(typed("value", "xsd:string").text(value))
}

/// The mark of a machine.
pub fn mark(key: &MachineKey) -> [Element; 2] {
    [option(MARK, &key.owner_mark()), option(MACHINE, &key.name)]
}

/// The part of the seed that a clone gets: all values, or the note that a drive follows.
pub fn seed_of_clone(given: &Seed) -> Vec<Element> {
    match given {
        Seed::GuestInfo(values) => seed(values),
        Seed::Drive { .. } => vec![seeded(DRIVE)],
    }
}

/// The values that a guest gets, with their digest.
pub fn seed(values: &BTreeMap<String, String>) -> Vec<Element> {
    values.iter().map(|(key, value)| option(key, value)).chain([seeded(&digest_of(values))]).collect()
}

/// The same keys with empty values: an empty value removes the key.
pub fn no_seed() -> Vec<Element> {
    let keys = crate::bootstrap::delivery::guest_info::KEYS;
    keys.iter().map(|key| option(key, "")).chain([seeded("")]).collect()
}

/// Records which seed the guest was given.
pub fn seeded(digest: &str) -> Element {
    option(SEED, digest)
}

pub fn digest(seed: &SeedImage) -> String {
    match seed {
        SeedImage::GuestInfo(values) => digest_of(values),
        SeedImage::Drive(bytes) => format!("{DRIVE}{}", data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))),
    }
}

fn digest_of(values: &BTreeMap<String, String>) -> String {
    let mut digest = Sha256::new();
    for text in values.iter().flat_map(|(key, value)| [key, value]) {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    data_encoding::HEXLOWER.encode(&digest.finalize())
}

/// How long a destroyed VM is remembered.
const GONE: Duration = Duration::from_secs(300);

/// The remembered VMs, which save one request per observation. A vCenter never uses a reference for another VM.
#[derive(Default)]
pub struct Known(HashMap<VmUuid, Memory>);

/// The remembered state of a VM.
#[derive(Clone)]
pub enum Memory {
    /// The VM has been in cloning since then.
    Cloning(Instant),
    /// The VM was read.
    Is(Reference),
    /// The VM was destroyed then.
    Gone(Instant),
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

    /// Forgets the VMs that were destroyed some time ago.
    pub fn tidy(&mut self) {
        self.0.retain(|_, memory| !matches!(memory, Memory::Gone(since) if since.elapsed() > GONE));
    }
}
