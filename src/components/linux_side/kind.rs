//! The kinds of pod networks.

use std::fmt;

/// The kinds of pod networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Flannel,
    Calico,
    Antrea,
    OvnKubernetes,
    AzureCni,
    AwsVpcCni,
    Cilium,
    /// Flannel's network with Calico's policies.
    Canal,
    Kindnet,
    KubeRouter,
    Weave,
    Unknown,
}

impl Kind {
    pub const ALL: [Self; 12] = [
        Self::Flannel,
        Self::Calico,
        Self::Antrea,
        Self::OvnKubernetes,
        Self::AzureCni,
        Self::AwsVpcCni,
        Self::Cilium,
        Self::Canal,
        Self::Kindnet,
        Self::KubeRouter,
        Self::Weave,
        Self::Unknown,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flannel => "flannel",
            Self::Calico => "calico",
            Self::Antrea => "antrea",
            Self::OvnKubernetes => "ovn-kubernetes",
            Self::AzureCni => "azure-cni",
            Self::AwsVpcCni => "aws-vpc-cni",
            Self::Cilium => "cilium",
            Self::Canal => "canal",
            Self::Kindnet => "kindnet",
            Self::KubeRouter => "kube-router",
            Self::Weave => "weave",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
