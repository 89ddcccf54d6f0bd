//! Determines who installs a pod network on Windows nodes.

use std::fmt;

use super::linux_side::{Encapsulation, Kind, LinuxSide, Settings};
use super::place::ObjectRef;
use super::workloads::Program;

/// The installer of the network on Windows nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nobody installs it yet: the network's program has to run there.
    Run,
    /// The network's own operator, once its switch for Windows is set.
    Ask,
    /// The network's vendor, the cloud, or an existing DaemonSet.
    Check,
    /// The network cannot run on Windows nodes.
    Refuse,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Ask => "Ask",
            Self::Check => "Check",
            Self::Refuse => "Refuse",
        }
    }

    /// The consequence for Windows nodes, as a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Run => "The program of this network has to run there, with the same settings, and nothing brings it there yet.",
            Self::Ask => "The operator of this network brings its Windows side once that is switched on; kube-proxy has to run there too.",
            Self::Check => {
                "The makers of this network, the cloud, or a DaemonSet that is there already bring its Windows side; its settings have to be the same."
            }
            Self::Refuse => "This network has no way for pods there.",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the DaemonSet that runs a program on Windows nodes and does not belong to CAPW.
pub fn runs_already(side: &LinuxSide, program: Program) -> Option<&ObjectRef> {
    side.on_windows.iter().find(|set| set.programs.contains(&program)).map(|set| &set.object)
}

/// Determines the installer in this cluster. An existing DaemonSet stays unchanged.
pub fn role(side: &LinuxSide) -> Role {
    match (side.network.kind, &side.network.settings) {
        (Kind::Flannel, _) => match side.network.mode.as_deref() {
            Some("vxlan" | "host-gw") if runs_already(side, Program::Flannel).is_some() => Role::Check,
            Some("vxlan" | "host-gw") => Role::Run,
            _ => Role::Refuse,
        },
        (Kind::Calico, Settings::Calico(calico)) => {
            let ipip = calico.in_use().is_some_and(Encapsulation::is_ipip);
            match (ipip || calico.dataplane.is_some(), &calico.operator) {
                (true, _) => Role::Refuse,
                (false, Some(_)) => Role::Ask,
                (false, None) => Role::Check,
            }
        }
        (Kind::Calico | Kind::Antrea | Kind::OvnKubernetes | Kind::AzureCni | Kind::AwsVpcCni, _) => Role::Check,
        (Kind::Cilium | Kind::Canal | Kind::Kindnet | Kind::KubeRouter | Kind::Weave | Kind::Unknown, _) => Role::Refuse,
    }
}
