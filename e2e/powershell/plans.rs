//! Rendered payloads are carried to their end, restarts included, and the machine is compared with what the plan asks for.

use super::payload::{ALL, FULL_2022, Kind, PLAIN, UNATTEND};
use super::{Scratch, finish, reports, shell};
use crate::world::step;

fn end(kind: Kind) {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip(kind.name, &lacks);
    }
    let scratch = Scratch::new("plan");
    let machine = finish(kind, scratch.path());
    let reports = reports(&machine);
    step(format!("{}: {} reports, {} starts", kind.name, reports.len(), machine.boots));
}

#[test]
fn plain_plan_finishes() {
    end(PLAIN);
}

#[test]
fn full_plan_finishes() {
    end(FULL_2022);
}

#[test]
fn unattend_plan_finishes() {
    end(UNATTEND);
}

/// The other releases and channels; `CAPW_POWERSHELL=all`.
#[test]
fn every_other_plan_finishes() {
    if super::shell::is_thorough() {
        ALL.iter().filter(|kind| ![PLAIN, FULL_2022, UNATTEND].contains(kind)).for_each(|kind| end(*kind));
    }
}
