//! The end: success is announced, nothing secret is left.

use super::{BOOT_TASK, CONTRACT_DOCS, Procedure, item, owned, why};
use crate::api::bootstrap_config::Channel;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Kind};
use crate::vm::FailureCode;

/// Made by `capw-firstboot.ps1`.
const FIRST_BOOT_TASK: &str = "capw-firstboot";

/// Success is announced once, then nothing secret is left.
pub(super) fn stage(all: &mut Procedure, facts: &BootstrapFacts) {
    let kind = all.file("files/success", paths::SENTINEL, Access::Readable, "success\n");
    all.add(item(
        "sentinel",
        FailureCode::SuccessFile,
        60,
        kind,
        why("Cluster API's mark that the bootstrap succeeded.", CONTRACT_DOCS, "Check the free space and the health of drive C:."),
    ));
    let (mut paths, mut tasks) = (owned(&[paths::SECRET, paths::PAYLOAD_SECRET, paths::BOOTSTRAP_KUBECONFIG]), Vec::new());
    if facts.spec.channel == Channel::Unattend {
        paths.extend(owned(&paths::SETUP_ANSWERS));
        tasks.push(FIRST_BOOT_TASK.to_owned());
    }
    if super::programs::leaves_archives(facts) {
        paths.push(crate::bootstrap::paths::DOWNLOADS.to_owned());
    }
    // Last: it is what goes on after a kill.
    tasks.push(BOOT_TASK.to_owned());
    let kind = Kind::Absent { paths, tasks };
    all.add(item(
        "no-secrets",
        FailureCode::SecretRemoval,
        60,
        kind,
        why("The token and the task are not needed any more.", CONTRACT_DOCS, "Remove the named files by hand."),
    ));
}
