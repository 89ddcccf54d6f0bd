//! What is wrong with the Linux side, and what to do about it.

use std::fmt;

use serde_json::Value;

use super::place::ObjectRef;
use crate::api::condition::Reason;

/// Why Windows nodes cannot be on the network as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkReason {
    /// A field cannot be understood.
    Unreadable,
    /// There is no Linux node, so nothing shows what is in use.
    NoLinuxNodes,
    /// No network was recognized, or more than one.
    NetworkUnknown,
    /// The network, or the way in which it is used, does not exist on Windows.
    NetworkUnsupported,
    /// What is configured is not what nodes use.
    NotRolledOut,
    /// Windows has no VXLAN below 4096.
    VniBelow4096,
    /// Windows routes by 16 bits of the VNI.
    VniAbove65535,
    /// Windows sends VXLAN to port 4789 only.
    PortNot4789,
    /// Linux nodes of one subnet do without the tunnel; Windows nodes cannot.
    DirectRouting,
    /// Group policies in VXLAN headers.
    GbpOn,
    /// Windows has no IP-in-IP.
    IpipPool,
    /// Linux nodes of one subnet do without the tunnel; Calico refuses that as soon as Windows is switched on.
    CrossSubnet,
    /// Linux packets in eBPF; Calico does not support Windows nodes beside it.
    EbpfDataplane,
    /// Nodes may borrow addresses from another node's block, which Windows cannot route.
    StrictAffinityOff,
    /// Calico on Windows has either BGP or VXLAN.
    BgpWithVxlan,
    /// A node's part of the network has too few addresses.
    BlockTooSmall,
    /// Antrea on Windows does not do this with packets.
    TrafficModeUnsupported,
    /// Antrea on Windows does not have this tunnel.
    TunnelUnsupported,
    /// Windows nodes cannot take part in the encryption between nodes.
    EncryptionOn,
    /// OVN-Kubernetes reaches Windows nodes by its hybrid overlay only.
    HybridOverlayOff,
    /// Nothing gives Windows nodes addresses.
    WindowsIpamOff,
    /// Pods or Services have IPv6 only.
    Ipv6Only,
    /// Overlay networks of Windows have IPv4 only.
    DualStackOverlay,
    /// The same addresses are used twice.
    NetworksOverlap,
    /// No object tells the network of Services.
    ServiceNetworkUnknown,
    /// Nothing tells the port of VXLAN.
    PortUnknown,
    /// Objects contradict each other.
    SourcesDisagree,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Windows nodes cannot work.
    Error,
    /// It works, but something should be put right.
    Warning,
}

impl NetworkReason {
    /// In the order of findings: what makes others pointless comes first.
    pub const ALL: [Self; 27] = [
        Self::Unreadable,
        Self::NoLinuxNodes,
        Self::NetworkUnknown,
        Self::NetworkUnsupported,
        Self::NotRolledOut,
        Self::VniBelow4096,
        Self::VniAbove65535,
        Self::PortNot4789,
        Self::DirectRouting,
        Self::GbpOn,
        Self::IpipPool,
        Self::CrossSubnet,
        Self::EbpfDataplane,
        Self::StrictAffinityOff,
        Self::BgpWithVxlan,
        Self::BlockTooSmall,
        Self::TrafficModeUnsupported,
        Self::TunnelUnsupported,
        Self::EncryptionOn,
        Self::HybridOverlayOff,
        Self::WindowsIpamOff,
        Self::Ipv6Only,
        Self::DualStackOverlay,
        Self::NetworksOverlap,
        Self::ServiceNetworkUnknown,
        Self::PortUnknown,
        Self::SourcesDisagree,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "Unreadable",
            Self::NoLinuxNodes => "NoLinuxNodes",
            Self::NetworkUnknown => "NetworkUnknown",
            Self::NetworkUnsupported => "NetworkUnsupported",
            Self::NotRolledOut => "NotRolledOut",
            Self::VniBelow4096 => "VniBelow4096",
            Self::VniAbove65535 => "VniAbove65535",
            Self::PortNot4789 => "PortNot4789",
            Self::DirectRouting => "DirectRouting",
            Self::GbpOn => "GbpOn",
            Self::IpipPool => "IpipPool",
            Self::CrossSubnet => "CrossSubnet",
            Self::EbpfDataplane => "EbpfDataplane",
            Self::StrictAffinityOff => "StrictAffinityOff",
            Self::BgpWithVxlan => "BgpWithVxlan",
            Self::BlockTooSmall => "BlockTooSmall",
            Self::TrafficModeUnsupported => "TrafficModeUnsupported",
            Self::TunnelUnsupported => "TunnelUnsupported",
            Self::EncryptionOn => "EncryptionOn",
            Self::HybridOverlayOff => "HybridOverlayOff",
            Self::WindowsIpamOff => "WindowsIpamOff",
            Self::Ipv6Only => "Ipv6Only",
            Self::DualStackOverlay => "DualStackOverlay",
            Self::NetworksOverlap => "NetworksOverlap",
            Self::ServiceNetworkUnknown => "ServiceNetworkUnknown",
            Self::PortUnknown => "PortUnknown",
            Self::SourcesDisagree => "SourcesDisagree",
        }
    }

    /// As a condition says it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Unreadable => Reason::Unreadable,
            Self::NoLinuxNodes => Reason::NoLinuxNodes,
            Self::NetworkUnknown => Reason::NetworkUnknown,
            Self::NetworkUnsupported => Reason::NetworkUnsupported,
            Self::NotRolledOut => Reason::NotRolledOut,
            Self::VniBelow4096 => Reason::VniBelow4096,
            Self::VniAbove65535 => Reason::VniAbove65535,
            Self::PortNot4789 => Reason::PortNot4789,
            Self::DirectRouting => Reason::DirectRouting,
            Self::GbpOn => Reason::GbpOn,
            Self::IpipPool => Reason::IpipPool,
            Self::CrossSubnet => Reason::CrossSubnet,
            Self::EbpfDataplane => Reason::EbpfDataplane,
            Self::StrictAffinityOff => Reason::StrictAffinityOff,
            Self::BgpWithVxlan => Reason::BgpWithVxlan,
            Self::BlockTooSmall => Reason::BlockTooSmall,
            Self::TrafficModeUnsupported => Reason::TrafficModeUnsupported,
            Self::TunnelUnsupported => Reason::TunnelUnsupported,
            Self::EncryptionOn => Reason::EncryptionOn,
            Self::HybridOverlayOff => Reason::HybridOverlayOff,
            Self::WindowsIpamOff => Reason::WindowsIpamOff,
            Self::Ipv6Only => Reason::Ipv6Only,
            Self::DualStackOverlay => Reason::DualStackOverlay,
            Self::NetworksOverlap => Reason::NetworksOverlap,
            Self::ServiceNetworkUnknown => Reason::ServiceNetworkUnknown,
            Self::PortUnknown => Reason::PortUnknown,
            Self::SourcesDisagree => Reason::SourcesDisagree,
        }
    }

    pub const fn severity(self) -> Severity {
        match self {
            Self::PortUnknown | Self::SourcesDisagree => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl fmt::Display for NetworkReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub reason: NetworkReason,
    pub object: ObjectRef,
    /// The field of the object, e.g. `spec.strictAffinity`.
    pub field: String,
    pub message: String,
    /// A merge patch of the object that puts it right. `None`: CAPW never changes it; the remedy is the procedure.
    pub patch: Option<Value>,
    pub remedy: String,
}

impl Finding {
    /// The command that applies the patch, for a shell.
    pub fn command(&self) -> Option<String> {
        let patch = self.patch.as_ref()?.to_string().replace('\'', r"'\''");
        Some(format!("kubectl patch {} --type merge -p '{patch}'", self.object.for_kubectl()))
    }
}
