//! The classes of reasons: whether a reason is a problem, and where its cause is.

use super::condition_type::ConditionType;
use crate::api::documented::documented_enum;

/// Whether a reason is worth a Warning event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A stage of the ordinary life cycle.
    Normal,
    /// A problem, with the place of its cause.
    Warning(Blame),
}

documented_enum! {
    /// Where the cause of a problem is to be looked for. The entry is its name in the documentation.
    pub enum Blame: &'static str {
        /// What the spec asks for cannot be had or cannot work: every machine of the same template fails in the same way.
        Spec => "spec or template",
        /// The conditions of the machines that the message names say more.
        Machines => "machines",
        /// The hypervisor, its credentials, or what was done to a VM there.
        Hypervisor => "hypervisor",
        /// Secrets, quotas, policies or permissions of the management cluster.
        ManagementCluster => "management cluster",
        /// The API server of the workload cluster, its kubeconfig, or its pods.
        WorkloadCluster => "workload cluster",
        /// Windows in the VM: the image, the network it is connected to, or what it was given to start with.
        Guest => "guest",
    }
}

impl Blame {
    /// The name of the place in the documentation.
    pub const fn label(self) -> &'static str {
        self.entry()
    }
}

/// The classification of a reason.
pub(super) struct Entry {
    pub severity: Severity,
    pub condition: Option<ConditionType>,
    pub remedy: &'static str,
}

pub(super) const fn stage(condition: ConditionType, remedy: &'static str) -> Entry {
    Entry { severity: Severity::Normal, condition: Some(condition), remedy }
}

pub(super) const fn problem(blame: Blame, condition: ConditionType, remedy: &'static str) -> Entry {
    Entry { severity: Severity::Warning(blame), condition: Some(condition), remedy }
}

pub(super) const fn event(blame: Blame, remedy: &'static str) -> Entry {
    Entry { severity: Severity::Warning(blame), condition: None, remedy }
}

/// A setting of the Linux side that Windows nodes cannot share.
pub(super) const fn on_linux() -> Entry {
    problem(
        Blame::WorkloadCluster,
        ConditionType::NetworkCompatible,
        "The message has the object, the field and what to do, and `status.components.findings` the command: see docs/pod-network.md.",
    )
}
