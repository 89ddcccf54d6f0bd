//! The removal of the machines that a run has created.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::bench::Bench;
use super::cases::CASES;
use super::ledger::left;
use crate::hypervisor::machine::{Machine, pause};
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{MachineKey, Observed, StopMode};

/// The pause between two tries.
const AGAIN: Duration = Duration::from_secs(2);

/// Removes the machines of the ledger through a separate connection, and retries failures; `Some` names the leftovers and the reason.
pub(super) async fn clean(bench: &Bench<'_>) -> Option<String> {
    if bench.ledger.all().is_empty() {
        return None;
    }
    let until = Instant::now() + bench.limit;
    loop {
        let why = match sweep(bench, until).await {
            Ok(()) => return None,
            Err(error) => error,
        };
        // A VM in doubt is left alone.
        if matches!(why, DriverError::Conflict(_)) || Instant::now() >= until {
            return Some(format!("{}: {why}", left(&bench.ledger.keys())));
        }
        bench.say(&format!("  removing: {why}"));
        sleep(AGAIN).await;
    }
}

/// Removes all VMs that a run of that name can have created, also in another process.
pub async fn remove(bench: &Bench<'_>) -> Option<String> {
    for key in bench.run.keys(CASES.len()) {
        bench.ledger.note(&Arc::new(bench.machine(key)));
    }
    clean(bench).await
}

async fn sweep(bench: &Bench<'_>, until: Instant) -> Result<(), DriverError> {
    let driver = (bench.connect)()?;
    for machine in bench.ledger.all() {
        retire(&*driver, &machine, until).await?;
        bench.ledger.is_gone(&machine.key);
    }
    // A change whose reply was lost may have been carried out since.
    let listing = driver.list(&Wanted::default()).await?;
    let late: Vec<MachineKey> = listing.rows.into_iter().map(|row| row.key).filter(|key| bench.run.has_made(key)).collect();
    if late.is_empty() {
        return Ok(());
    }
    for key in &late {
        bench.ledger.note(&Arc::new(bench.machine(key.clone())));
    }
    Err(DriverError::Transient("the hypervisor still lists it".into()))
}

async fn retire(driver: &dyn Driver, machine: &Machine, until: Instant) -> Result<(), DriverError> {
    while Instant::now() < until {
        let step = machine.retire(driver, StopMode::Hard).await;
        if step == Ok(DriverStep::Done) && machine.look(driver).await? == Observed::Absent {
            return driver.confirm_absence(&machine.key).await;
        }
        // A failure, or "done" for an existing VM, may be a temporary answer.
        let is_progress = !matches!(step, Err(_) | Ok(DriverStep::Done));
        let after = pause(step)?;
        sleep(if is_progress { after } else { after.max(AGAIN) }).await;
    }
    Err(DriverError::Transient("it does not go".into()))
}
