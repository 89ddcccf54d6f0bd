//! What a run works with: the endpoint, the VMs that it creates, and its limits.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ledger::Ledger;
use super::run::Run;
use crate::bootstrap::delivery::{config_drive, guest_info};
use crate::hypervisor::machine::Machine;
use crate::hypervisor::{Driver, DriverError, Endpoint};
use crate::vm::{MachineKey, Seed, SeedKind, VmSpec};

/// Opens a connection to the endpoint, as another process would.
pub type Connect<'a> = dyn Fn() -> Result<Arc<dyn Driver>, DriverError> + 'a;

/// The parameters of a run.
pub struct Bench<'a> {
    pub run: &'a Run,
    pub connect: &'a Connect<'a>,
    /// The spec of the VMs that are created.
    pub spec: VmSpec,
    /// The time limit of each case, and of the removal of its VMs.
    pub limit: Duration,
    /// The machines that must be removed.
    pub ledger: &'a Ledger,
    /// Ends the running case at its next step; its VMs are removed.
    pub stop: &'a CancellationToken,
    /// Gets progress lines for people.
    pub progress: &'a dyn Fn(&str),
    /// The endpoint's description of itself.
    pub endpoint: OnceLock<Endpoint>,
}

impl Bench<'_> {
    pub(super) fn say(&self, line: &str) {
        (self.progress)(line);
    }

    pub(super) fn machine(&self, key: MachineKey) -> Machine {
        Machine::of(key, self.spec.clone(), seed(SeedKind::Drive))
    }
}

/// A seed without secrets, which no program in a guest acts on.
pub(super) fn seed(kind: SeedKind) -> Seed {
    const TEXT: &str = "made by capw hypervisor prove\n";
    match kind {
        SeedKind::Drive => Seed::Drive { label: config_drive::LABEL, files: BTreeMap::from([("capw-prove.txt".to_owned(), TEXT.into())]) },
        SeedKind::GuestInfo => Seed::GuestInfo(BTreeMap::from([(guest_info::META_DATA.to_owned(), "{}".to_owned())])),
    }
}
