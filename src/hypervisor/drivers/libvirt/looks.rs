//! Recent observations of machines.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::client::Volume;
use super::domain::Found;
use super::shared::Shared;
use crate::api::name::VmUuid;

/// How long an observation is valid: a pass decides and changes within this time.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The results of recent observations.
#[derive(Default)]
pub struct Looks {
    domains: Mutex<HashMap<VmUuid, (Known, Instant)>>,
    pub volumes: Shared<Arc<Vec<Volume>>>,
    pub listed: Shared<Arc<HashSet<VmUuid>>>,
}

/// The known state of a domain.
pub enum Known {
    Seen(Found),
    Missing,
    /// The domain is not listed, and has no volumes.
    Unlisted,
    /// The daemon has confirmed the removal of the domain.
    Removed,
    /// The daemon has confirmed the removal of the domain, and the volumes that the domain had named are not listed any more.
    Gone,
}

/// The parts of a machine that exist.
pub enum Seen {
    Domain(Found),
    /// The volumes of a machine without a domain; empty if nothing exists.
    Volumes(Vec<Volume>),
}

impl Looks {
    fn domains(&self) -> MutexGuard<'_, HashMap<VmUuid, (Known, Instant)>> {
        self.domains.lock()
    }

    pub fn note(&self, vm: VmUuid, known: Known) {
        let mut domains = self.domains();
        domains.retain(|_, (_, since)| since.elapsed() < AT_ONCE);
        domains.insert(vm, (known, Instant::now()));
    }

    /// Takes the state of a domain from a moment ago. A second caller must read it again.
    pub fn take(&self, vm: VmUuid) -> Option<Known> {
        let known = self.domains().remove(&vm);
        known.filter(|(_, since)| since.elapsed() < AT_ONCE).map(|(known, _)| known)
    }

    /// Notes that the daemon has removed the domain.
    pub fn removed(&self, vm: VmUuid) {
        self.note(vm, Known::Removed);
    }
}
