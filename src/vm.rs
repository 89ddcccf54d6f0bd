//! WHAT A VM IS: the words that decisions and drivers share. No behaviour beyond reading them.

use std::collections::BTreeMap;
use std::fmt;

use crate::api::name::{HostName, VmUuid};

/// Which VM: its own identity and the cluster that owns it. Both are known before the VM exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineKey {
    /// UUID of the VM, the last part of its provider ID.
    pub vm: VmUuid,
    /// `<namespace>/<name>` of the Cluster. It survives `clusterctl move`, which gives every object a new UID.
    pub cluster: String,
    /// Name of the VM on the hypervisor: that of the WindowsMachine.
    pub name: String,
}

impl MachineKey {
    /// The mark that every driver puts on what it makes, and compares before it destroys anything.
    pub fn owner_mark(&self) -> String {
        format!("capw-machine={};capw-cluster={}", self.vm, self.cluster)
    }
}

/// What a VM must be. Resolved and valid: a driver translates it and adds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    pub image: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// `None`: as in the image.
    pub system_disk_gib: Option<u64>,
    pub disks: Vec<VmDisk>,
    /// Names of networks; empty means the hypervisor's default network.
    pub networks: Vec<String>,
    pub uefi: bool,
    pub secure_boot: bool,
    pub tpm: bool,
    pub nested_virtualization: bool,
    pub host_name: HostName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmDisk {
    pub name: String,
    pub gib: u64,
}

/// What a driver reserved or started (ids, tasks). Stored in the machine's status before the driver acts on it.
pub type Journal = BTreeMap<String, String>;

/// What a VM is given with its first start. It holds the join token: never logged.
#[derive(Clone, PartialEq, Eq)]
pub enum Seed {
    /// An image to attach as a CD: ISO 9660 with Joliet, its label says for whom it is.
    Drive(Vec<u8>),
    /// VMware's extra configuration: values by key, e.g. `guestinfo.userdata`.
    GuestInfo(BTreeMap<String, String>),
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drive(image) => write!(f, "Drive({} bytes)", image.len()),
            Self::GuestInfo(values) => f.debug_tuple("GuestInfo").field(&values.keys()).finish(),
        }
    }
}

/// What is there, as one read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Neither VM nor disk nor seed of it exists.
    Absent,
    /// Something with this name or identity exists that does not carry our owner mark. Never touched.
    Foreign {
        what: String,
    },
    Present(Present),
}

/// A VM that carries our mark, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub power: Power,
    /// Its seed is attached.
    pub seeded: bool,
    /// False when only leftovers (disk, seed) exist without a VM.
    pub vm: bool,
    pub addresses: Vec<String>,
    /// The newest line that the guest reported, if there is one.
    pub report: Option<GuestReport>,
}

/// Power as the hypervisor reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Not finished being made; it has no power state yet.
    Creating,
    Off,
    On,
    Stopping,
}

/// How a VM is stopped before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Ask the guest, and cut the power after the driver's deadline.
    Graceful,
    /// Cut the power.
    Hard,
}

/// A line that a guest reported, `node-plan.md` rule 7. It comes from outside: bounded, printable, used for status only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestReport {
    pub sequence: u64,
    pub boot: u32,
    pub item: String,
    pub state: String,
    pub code: u32,
    pub message: String,
}

/// Item name of the lines that report on the whole plan.
pub const REPORT_PLAN: &str = "plan";
/// States in a report line: of an item, and `finished` and `failed` of the plan.
pub mod state {
    pub const STARTED: &str = "started";
    pub const DONE: &str = "done";
    pub const RETRY: &str = "retry";
    pub const REBOOT: &str = "reboot";
    /// An optional item failed; the plan goes on.
    pub const WARNED: &str = "warned";
    pub const FAILED: &str = "failed";
    pub const FINISHED: &str = "finished";
}

/// Longest report line in bytes and longest message in characters.
pub const REPORT_LINE: usize = 512;
const REPORT_MESSAGE: usize = 240;

impl GuestReport {
    /// Reads `capw1 <seq> <boot> <item> <state> <code> <sum> <message>`; `None` for anything else, a wrong check sum included.
    pub fn parse(line: &str) -> Option<Self> {
        if line.len() > REPORT_LINE || !line.is_ascii() {
            return None;
        }
        let mut fields = line.splitn(8, ' ');
        if fields.next()? != "capw1" {
            return None;
        }
        let mut next = || fields.next();
        let report = Self {
            sequence: next()?.parse().ok()?,
            boot: next()?.parse().ok()?,
            item: word(next()?)?,
            state: word(next()?)?,
            code: next()?.parse().ok()?,
            message: String::new(),
        };
        let sum = u32::from_str_radix(next()?, 16).ok()?;
        let message: String = printable(next().unwrap_or_default());
        let report = Self { message, ..report };
        (report.sum() == sum).then_some(report)
    }

    /// The line that [`GuestReport::parse`] reads.
    pub fn line(&self) -> String {
        let message = printable(&self.message);
        let clean = Self { message, ..self.clone() };
        format!("capw1 {} {} {} {} {} {:08x} {}", clean.sequence, clean.boot, clean.item, clean.state, clean.code, clean.sum(), clean.message)
    }

    /// True when the guest has given up: an item used up its attempts, or the plan its restarts or minutes. Nothing goes on by itself.
    pub fn is_final_failure(&self) -> bool {
        self.state == state::FAILED
    }

    /// The item that the line is about, and what it says. A line about the failed plan names the item before a colon.
    pub fn subject(&self) -> (&str, &str) {
        let named = || {
            let (item, rest) = self.message.split_once(": ")?;
            word(item).map(|_| (item, rest))
        };
        let of_plan = self.item == REPORT_PLAN && self.is_final_failure();
        of_plan.then(named).flatten().unwrap_or((&self.item, &self.message))
    }

    fn sum(&self) -> u32 {
        let text = format!("{} {} {} {} {} {}", self.sequence, self.boot, self.item, self.state, self.code, self.message);
        adler32(text.as_bytes())
    }
}

/// Adler-32 (RFC 1950): a few lines in PowerShell too, unlike CRC.
fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    (b << 16) | a
}

fn word(text: &str) -> Option<String> {
    let valid = (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.');
    valid.then(|| text.to_owned())
}

fn printable(text: &str) -> String {
    text.chars().take(REPORT_MESSAGE).map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_damaged_line_is_not_a_report() {
        let report = GuestReport { sequence: 7, boot: 1, item: "join".into(), state: "failed".into(), code: 71, message: "token refused".into() };
        assert_eq!(GuestReport::parse(&report.line()), Some(report.clone()));
        assert_eq!(GuestReport::parse(&report.line().replace("refused", "accepted")), None);
        assert_eq!(GuestReport::parse("capw1 1 1"), None);
    }

    #[test]
    fn a_line_about_the_failed_plan_is_about_its_item() {
        let report = |item: &str, state: &str, message: &str| GuestReport {
            sequence: 1,
            boot: 1,
            item: item.into(),
            state: state.into(),
            code: 71,
            message: message.into(),
        };
        for (item, state, message, subject) in [
            ("join", "failed", "exit: 1", ("join", "exit: 1")),
            ("plan", "failed", "join: exit: 1", ("join", "exit: 1")),
            ("plan", "failed", "no drive in it: none", ("plan", "no drive in it: none")),
            ("plan", "finished", "25 items: true", ("plan", "25 items: true")),
        ] {
            assert_eq!(report(item, state, message).subject(), subject, "{item} {state} {message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".{0,600}") {
            let _ = GuestReport::parse(&text);
        }

        #[test]
        fn every_line_fits_and_comes_back(message in ".{0,600}", sequence in any::<u64>(), code in any::<u32>()) {
            let report = GuestReport { sequence, boot: 2, item: "dir-k".into(), state: "done".into(), code, message };
            let line = report.line();
            prop_assert!(line.len() <= REPORT_LINE && line.is_ascii());
            prop_assert_eq!(GuestReport::parse(&line).unwrap().sequence, sequence);
        }
    }
}
