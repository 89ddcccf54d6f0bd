//! The reasons why CAPW renders nothing for Windows nodes.

use thiserror::Error;

use crate::components::finding::Finding;
use crate::components::linux_side::Kind;
use crate::components::place::ObjectRef;
use crate::components::role::Role;

/// The reason why no objects are rendered. Each message contains the problem and the remedy.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Refusal {
    /// Another installer is responsible for this network on Windows nodes, or the network cannot run there.
    #[error("the network is {kind}, and CAPW does not bring it to Windows nodes ({role}). {}", .role.meaning())]
    NotOurs { kind: Kind, role: Role },
    /// Calico's operator installs the network, and another DaemonSet runs kube-proxy in it.
    #[error(
        "Calico's operator brings the network to Windows nodes, and {0} runs kube-proxy there already: nothing is left to bring; remove {0} if CAPW \
         shall run kube-proxy"
    )]
    KubeProxyRuns(ObjectRef),
    /// A problem keeps Windows nodes out: the worst finding, and the number of other findings.
    #[error("{}", wrong(.first, *.others))]
    Wrong { first: Box<Finding>, others: usize },
    /// Neither the Linux nodes nor the settings show the VNI.
    #[error(
        "no Linux node shows the VNI of Flannel's network, and no ConfigMap has it: wait until flanneld runs on a Linux node, which then has the \
         annotation flannel.alpha.coreos.com/backend-data"
    )]
    VniUnknown,
    /// No object contains the whole network: objects contain none, or several, or only the blocks of single nodes.
    #[error(
        "the network of all pods is not known as a whole (found: {0}): write it into Flannel's settings as one IPv4 network, start the servers of \
         k3s with --cluster-cidr, or give Calico a pool"
    )]
    PodNetworkUnknown(String),
    /// Container runtimes refuse this network name.
    #[error("Backend.Name of Flannel's settings is {0:?}: expected letters, digits, -, . and _, beginning with a letter or digit, e.g. flannel.4096")]
    BadName(String),
}

fn wrong(first: &Finding, others: usize) -> String {
    let Finding { reason, object, field, message, remedy, .. } = first;
    let more = if others == 0 { String::new() } else { format!(" ({others} more: `capw components render` says all)") };
    format!("{reason}: {object}, {field}: {message}; {remedy}{more}")
}
