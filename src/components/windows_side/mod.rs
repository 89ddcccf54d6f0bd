//! The objects that install a cluster's pod network and Services on Windows nodes (pure): they run Flannel and kube-proxy there, with the settings of
//! the Linux side. Calico's operator installs Calico itself, so CAPW installs only kube-proxy.
//!
//! Both run the program `capw-node.exe` of CAPW's image in HostProcess pods. This program detects the facts that only the node knows, and starts the
//! requested program, which is already on the node.

mod flannel;
mod kube_proxy;
mod namespace;
mod network;
mod objects;
mod parameters;
mod program;
mod refusal;

pub use self::flannel::ROLE as FLANNEL_ROLE;
pub use self::kube_proxy::BINDING as KUBE_PROXY_BINDING;
pub use self::namespace::NAMESPACE;
pub use self::objects::{brought_by_another, windows_side};
pub use self::parameters::{Parameters, with_pull_secrets};
pub use self::refusal::Refusal;
