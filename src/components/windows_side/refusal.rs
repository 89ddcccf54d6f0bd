//! Why nothing is rendered for Windows nodes.

use thiserror::Error;

use crate::components::finding::Finding;
use crate::components::linux_side::Kind;
use crate::components::place::ObjectRef;
use crate::components::role::Role;

/// Why there are no objects. Each says what is wrong and what to do.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Refusal {
    /// Another brings this network to Windows nodes, or nothing can.
    #[error("the network is {kind}, and CAPW does not bring it to Windows nodes ({role}). {}", .role.meaning())]
    NotOurs { kind: Kind, role: Role },
    /// Calico's operator brings the network, and another runs kube-proxy in it.
    #[error(
        "Calico's operator brings the network to Windows nodes, and {0} runs kube-proxy there already: nothing is left to bring; remove {0} if CAPW \
         shall run kube-proxy"
    )]
    KubeProxyRuns(ObjectRef),
    /// Something stands in the way of Windows nodes: the worst of it, and how many findings there are besides.
    #[error("{}", wrong(.first, *.others))]
    Wrong { first: Box<Finding>, others: usize },
    /// Linux nodes and settings say nothing of it.
    #[error(
        "no Linux node shows the VNI of Flannel's network, and no ConfigMap has it: wait until flanneld runs on a Linux node, which then has the \
         annotation flannel.alpha.coreos.com/backend-data"
    )]
    VniUnknown,
    /// No object tells it as a whole: there are none, or several, or only what single nodes have of it.
    #[error(
        "the network of all pods is not known as a whole (found: {0}): write it into Flannel's settings as one IPv4 network, start the servers of \
         k3s with --cluster-cidr, or give Calico a pool"
    )]
    PodNetworkUnknown(String),
    /// Container runtimes refuse it as the name of a network.
    #[error("Backend.Name of Flannel's settings is {0:?}: expected letters, digits, -, . and _, beginning with a letter or digit, e.g. flannel.4096")]
    BadName(String),
}

fn wrong(first: &Finding, others: usize) -> String {
    let Finding { reason, object, field, message, remedy, .. } = first;
    let more = if others == 0 { String::new() } else { format!(" ({others} more: `capw components render` says all)") };
    format!("{reason}: {object}, {field}: {message}; {remedy}{more}")
}
