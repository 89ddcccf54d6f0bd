//! The stages in their order, and the plan of all of them.

use std::collections::BTreeMap;

use super::builder::{PlanBuilder, owned};
use super::{finish, kube_proxy, kubelet, programs, runtime, steps, upkeep, windows};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::{Item, Limits, PLAN_VERSION, Plan, PlanMachine};
use crate::bootstrap::render::Documents;
use crate::vm::FailureCode;

/// The form of a bootstrap token, which must not appear in any log.
const TOKEN_FORM: &str = "[a-z0-9]{6}[.][a-z0-9]{16}";
/// The minutes for everything except the join and the users' own steps.
const MINUTES: u32 = 45;

/// Returns the longest time that the join may take: every attempt, and the undo before the next one.
fn all_joins(items: &[Item]) -> u32 {
    items.iter().filter(|item| item.code == FailureCode::Join).map(|item| item.seconds * item.attempts).sum()
}

/// Returns the plan and its payload files.
pub(in crate::bootstrap) fn plan(facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(Plan, BTreeMap<String, Vec<u8>>), RenderError> {
    let mut all = PlanBuilder::default();
    windows::stage(&mut all, facts, documents)?;
    programs::stage(&mut all, facts)?;
    runtime::stage(&mut all, facts, documents)?;
    steps::files(&mut all, facts)?;
    steps::before_join(&mut all, facts)?;
    upkeep::stage(&mut all, facts)?;
    kubelet::stage(&mut all, facts, documents)?;
    runtime::sandbox_image(&mut all, documents);
    kube_proxy::stage(&mut all, facts, documents)?;
    steps::after_join(&mut all, facts)?;
    finish::stage(&mut all, facts);
    let plan = Plan {
        plan_version: PLAN_VERSION,
        machine: PlanMachine { uid: facts.machine_uid.clone(), name: facts.machine_name.clone(), generation: facts.generation },
        kubernetes: facts.kubernetes.to_string(),
        limits: Limits { reboots: 3 + steps::restarts(facts), minutes: MINUTES + (all_joins(&all.items) + steps::seconds(facts)).div_ceil(60) },
        report: owned(&["serial:COM1", "guestinfo", "kvp", "file"]),
        redact: owned(&[TOKEN_FORM]),
        items: all.items,
    };
    Ok((plan, all.files))
}
