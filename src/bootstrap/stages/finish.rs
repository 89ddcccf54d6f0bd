//! The end of the plan: success is reported and secrets are removed.

use super::builder::{BOOT_TASK, CONTRACT_DOCS, PlanBuilder, item, owned, why};
use crate::api::bootstrap_config::Channel;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Kind};
use crate::vm::FailureCode;

/// The task that `capw-firstboot.ps1` creates.
const FIRST_BOOT_TASK: &str = "capw-firstboot";

/// Writes the sentinel file, then removes every secret.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts) {
    let kind = all.file("files/success", paths::SENTINEL, Access::Readable, "success\n");
    all.add(item(
        "sentinel",
        FailureCode::SuccessFile,
        60,
        kind,
        why("This file tells Cluster API that the bootstrap succeeded.", CONTRACT_DOCS, "Check the free space and the health of drive C:."),
    ));
    let (mut paths, mut tasks) = (owned(&[paths::SECRET, paths::PAYLOAD_SECRET, paths::PAYLOAD_ARCHIVE, paths::BOOTSTRAP_KUBECONFIG]), Vec::new());
    if facts.spec.channel == Channel::Unattend {
        paths.extend(owned(&paths::SETUP_ANSWERS));
        tasks.push(FIRST_BOOT_TASK.to_owned());
    }
    if super::programs::leaves_archives(facts) {
        paths.push(crate::bootstrap::paths::DOWNLOADS.to_owned());
    }
    // This task is removed last, because it continues the plan after a kill.
    tasks.push(BOOT_TASK.to_owned());
    let kind = Kind::Absent { paths, tasks };
    all.add(item(
        "no-secrets",
        FailureCode::SecretRemoval,
        60,
        kind,
        why("The token and the task are no longer needed.", CONTRACT_DOCS, "Remove the named files by hand."),
    ));
}
