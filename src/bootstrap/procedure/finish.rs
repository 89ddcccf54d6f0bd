//! The end: success is announced, nothing secret is left.

use super::{BOOT_TASK, CONTRACT_DOCS, Procedure, item, owned, why};
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Kind};

/// Success is announced once, then nothing secret is left.
pub(super) fn stage(all: &mut Procedure) {
    let kind = all.file("files/success", paths::SENTINEL, Access::Readable, "success\n");
    all.add(item(
        "sentinel",
        77,
        60,
        kind,
        why("Cluster API's mark that the bootstrap succeeded.", CONTRACT_DOCS, "Check the free space and the health of drive C:."),
    ));
    let kind = Kind::Absent { paths: owned(&[paths::SECRET, paths::PAYLOAD_SECRET, paths::BOOTSTRAP_KUBECONFIG]), tasks: owned(&[BOOT_TASK]) };
    all.add(item(
        "no-secrets",
        15,
        60,
        kind,
        why("The token and the task are not needed any more.", CONTRACT_DOCS, "Remove the named files by hand."),
    ));
}
