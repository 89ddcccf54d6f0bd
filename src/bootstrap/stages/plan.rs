//! The items of a machine's plan: the steps on the node, their order, and the reason for each.
//!
//! Conditions are decided here, not on the node. There is one file per stage, in the order of [`plan`]; the files that items write come from
//! `render/`.

mod finish;
mod gmsa;
mod hardening;
mod kube_proxy;
mod kubelet;
mod network;
mod programs;
mod proxy;
mod registry;
mod runtime;
mod steps;
#[cfg(test)]
mod tests;
mod upkeep;
mod windows;

use std::collections::BTreeMap;

use super::digest::sha256;
use super::error::RenderError;
use super::facts::BootstrapFacts;
use super::plan::{Access, Item, Kind, Limits, PLAN_VERSION, Plan, PlanMachine, Why};
use super::render::Documents;
use crate::vm::FailureCode;

/// The scheduled task that continues the plan after a restart, without cloudbase-init.
const BOOT_TASK: &str = "capw";
/// The form of a bootstrap token, which must not appear in any log.
const TOKEN_FORM: &str = "[a-z0-9]{6}[.][a-z0-9]{16}";
/// Seconds without a failure after which the service manager resets its failure count.
const RESET_SECONDS: u32 = 900;

/// The minutes for everything except the join and the users' own steps.
const MINUTES: u32 = 45;

const NODE_DOCS: &str = "https://kubernetes.io/docs/setup/production-environment/windows/";
const KUBEADM_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/adding-windows-nodes/";
const KUBELET_DOCS: &str = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/";
const CONTAINERD_DOCS: &str = "https://github.com/containerd/containerd/blob/main/docs/cri/config.md";
const CLOUDBASE_DOCS: &str = "https://cloudbase-init.readthedocs.io/en/latest/plugins.html";
const CONTRACT_DOCS: &str = "https://cluster-api.sigs.k8s.io/developer/providers/contracts/bootstrap-config";

fn item(id: &str, code: FailureCode, seconds: u32, kind: Kind, why: Why) -> Item {
    Item { id: id.into(), kind, code, seconds, attempts: 3, unless: None, optional: false, why }
}

fn why(reason: &'static str, link: &'static str, remedy: &'static str) -> Why {
    Why { reason, link, remedy }
}

fn owned(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// The items in order, and the payload files that they use.
#[derive(Default)]
struct PlanBuilder {
    items: Vec<Item>,
    files: BTreeMap<String, Vec<u8>>,
}

impl PlanBuilder {
    fn add(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Adds the bytes to the payload; returns the kind of item that writes them to `path`.
    fn file(&mut self, source: &str, path: &str, access: Access, bytes: impl Into<Vec<u8>>) -> Kind {
        let bytes = bytes.into();
        let kind = Kind::File { path: path.into(), source: source.into(), sha256: sha256(&bytes), access };
        self.files.insert(source.into(), bytes);
        kind
    }
}

/// Returns the longest time that the join may take: every attempt, and the undo before the next one.
fn all_joins(items: &[Item]) -> u32 {
    items.iter().filter(|item| item.code == FailureCode::Join).map(|item| item.seconds * item.attempts).sum()
}

/// Returns the plan and its payload files.
pub(super) fn plan(facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(Plan, BTreeMap<String, Vec<u8>>), RenderError> {
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
