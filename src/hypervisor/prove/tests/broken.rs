//! Drivers that break a rule: each driver fails in the case of that rule, and the removable VMs are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::lab::Lab;
use crate::api::hypervisor::Simulated;
use crate::hypervisor::prove::outcome::Verdict;
use crate::hypervisor::prove::proof::prove;
use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Row, Wanted};
use crate::vm::{Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

/// The broken rule.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// Each connection finds another identity.
    Identities,
    /// Any image exists, until it is used.
    Images,
    /// Created VMs are not listed.
    Unlisted,
    /// One listing in three leaves a row out.
    Listings,
    /// The driver reports that the data was taken away, but the data still exists.
    Data,
    /// The cluster in a mark is not compared.
    Marks,
    /// The driver reports that a VM was removed, but the VM still exists.
    Removal,
}

struct Broken {
    inner: Arc<dyn Driver>,
    flaw: Flaw,
    /// The number of this connection.
    number: usize,
    listings: AtomicUsize,
}

impl Broken {
    /// The machine that the driver confuses this machine with.
    fn taken(&self, key: &MachineKey) -> MachineKey {
        let cluster = match self.flaw {
            // Twins have long names, and are in two clusters.
            Flaw::Marks if key.name.len() < 100 => key.cluster.trim_end_matches("-other").to_owned(),
            _ => key.cluster.clone(),
        };
        MachineKey { cluster, ..key.clone() }
    }
}

#[async_trait]
impl Driver for Broken {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        let endpoint = self.inner.describe().await?;
        let id = if matches!(self.flaw, Flaw::Identities) { self.number.to_string() } else { endpoint.id };
        Ok(Endpoint { id, ..endpoint })
    }

    async fn check(&self, spec: &VmSpec, seed: SeedKind) -> Result<(), DriverError> {
        if matches!(self.flaw, Flaw::Images) { Ok(()) } else { self.inner.check(spec, seed).await }
    }

    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        let listing = self.inner.list(wanted).await?;
        let number = self.listings.fetch_add(1, Ordering::Relaxed);
        let is_hidden = |_: &Row| match self.flaw {
            Flaw::Unlisted => true,
            Flaw::Listings => number % 3 == 2,
            _ => false,
        };
        Ok(Listing { rows: listing.rows.into_iter().filter(|row| !is_hidden(row)).collect(), ..listing })
    }

    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError> {
        self.inner.observe(&self.taken(key), journal).await
    }

    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, seen: &Observed) -> Result<DriverStep, DriverError> {
        self.inner.advance(key, spec, seed, journal, seen).await
    }

    async fn detach(&self, key: &MachineKey, journal: &Journal) -> Result<DriverStep, DriverError> {
        if matches!(self.flaw, Flaw::Data) { Ok(DriverStep::Done) } else { self.inner.detach(key, journal).await }
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, seen: &Observed) -> Result<DriverStep, DriverError> {
        if matches!(self.flaw, Flaw::Removal) { Ok(DriverStep::Done) } else { self.inner.retire(&self.taken(key), how, journal, seen).await }
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_breaks_a_rule_fails_in_the_case_of_that_rule() {
    for (flaw, first, words, left) in [
        (Flaw::Identities, "login, identity and rights", "two identities", 0),
        (Flaw::Images, "an image that does not exist is named", "is not told as missing", 0),
        (Flaw::Unlisted, "a VM is made and removed, and nothing is left", "is listed 0 times, not 1", 0),
        (Flaw::Listings, "making it again changes nothing, and two listings are equal", "listings differ", 0),
        (Flaw::Data, "the data of the first start is there, and goes", "is not taken away", 0),
        (Flaw::Marks, "a VM with the mark of another cluster is left alone", "not told as foreign", 0),
        (Flaw::Removal, "a VM is made and removed, and nothing is left", "may be left: prove-k3x9d0aa-3", 1),
    ] {
        let (lab, connections, simulated) = (Lab::new(), AtomicUsize::new(0), Simulated::default());
        let connect = || {
            let number = connections.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(Broken { inner: lab.connect(&simulated)?, flaw, number, listings: AtomicUsize::new(0) }) as Arc<dyn Driver>)
        };
        let outcomes = prove(&lab.bench(&connect)).await;
        let failed = outcomes.iter().find(|outcome| outcome.verdict == Verdict::Failed).unwrap();
        assert!(failed.case.name == first && failed.words.contains(words), "{flaw:?}: {}: {}", failed.case.name, failed.words);
        assert_eq!(lab.left().len(), left, "{flaw:?}");
    }
}
