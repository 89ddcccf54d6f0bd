//! Who does the work on Windows nodes.

use std::fmt;

use super::linux_side::{Encapsulation, Kind, LinuxSide, Settings};
use super::workloads::Program;

/// What CAPW does about the network of Windows nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs the network's program there.
    Run,
    /// It sets the switch of the network's own operator.
    Ask,
    /// It prepares nodes, and compares what others run there.
    Check,
    /// Windows nodes may join, and keep the taint that keeps pods away.
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

    /// What it means for Windows nodes, in a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Run => "Nobody brings the program of this network there: it has to run there, with the same settings.",
            Self::Ask => "The operator of this network brings its Windows side once that is switched on.",
            Self::Check => "Somebody else brings the Windows side of this network; its settings have to be the same.",
            Self::Refuse => "This network has no way for pods there.",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether somebody else runs a program on Windows nodes.
fn runs_already(side: &LinuxSide, program: Program) -> bool {
    side.on_windows.iter().any(|set| set.programs.contains(&program))
}

/// What CAPW does in this cluster. What somebody else runs on Windows nodes stays theirs.
pub fn role(side: &LinuxSide) -> Role {
    match (side.network.kind, &side.network.settings) {
        (Kind::Flannel, _) => match side.network.mode.as_deref() {
            Some("vxlan" | "host-gw") if runs_already(side, Program::Flannel) => Role::Check,
            Some("vxlan" | "host-gw") => Role::Run,
            _ => Role::Refuse,
        },
        (Kind::Calico, Settings::Calico(calico)) => {
            let ipip = calico.in_use().is_some_and(Encapsulation::is_ipip);
            match (ipip || calico.dataplane.is_some(), &calico.installation) {
                (true, _) => Role::Refuse,
                (false, Some(_)) => Role::Ask,
                (false, None) => Role::Check,
            }
        }
        (Kind::Calico | Kind::Antrea | Kind::OvnKubernetes | Kind::AzureCni | Kind::AwsVpcCni, _) => Role::Check,
        (Kind::Cilium | Kind::Canal | Kind::Kindnet | Kind::KubeRouter | Kind::Weave | Kind::Unknown, _) => Role::Refuse,
    }
}
