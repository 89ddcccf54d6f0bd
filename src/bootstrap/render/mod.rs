//! The configuration of the node's programs, in one file per program.

pub(super) mod containerd;
mod documents;
pub(super) mod kube_proxy;
pub(super) mod kubeadm;
pub mod kubelet;
pub mod reserves;
pub(super) mod yaml;

#[cfg(test)]
mod tests;

pub(super) use self::documents::Documents;
