//! All documents of one node.

use super::kube_proxy::KubeProxyConfiguration;
use super::kubeadm::JoinConfiguration;
use super::kubelet::KubeletConfiguration;
use super::reserves::Reserves;
use super::{containerd, kube_proxy, kubeadm, kubelet, reserves};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;

/// The documents of one node, each rendered once: the rules of [`crate::bootstrap::check::lint`] read the same documents that
/// [`crate::bootstrap::stages`] uses.
pub(in crate::bootstrap) struct Documents<'a> {
    pub reserves: Reserves,
    pub kubelet: KubeletConfiguration,
    /// The name and value of each flag that kubeadm does not decide; the users' own flags come last.
    pub kubelet_flags: Vec<(String, String)>,
    pub join: JoinConfiguration<'a>,
    pub sandbox_image: String,
    pub containerd: toml::Table,
    /// The configuration of kube-proxy, if the node runs it as a service.
    pub kube_proxy: Option<KubeProxyConfiguration>,
}

impl<'a> Documents<'a> {
    pub fn new(facts: &'a BootstrapFacts) -> Result<Self, RenderError> {
        let reserves = reserves::reserves(facts)?;
        let kubelet = kubelet::configuration(facts, &reserves);
        let kubelet_flags = kubelet::flags(facts);
        let sandbox_image = containerd::sandbox_image(facts)?;
        Ok(Self {
            join: kubeadm::configuration(facts, &kubelet_flags),
            containerd: containerd::configuration(&facts.spec.containerd, &sandbox_image),
            kube_proxy: facts.spec.kube_proxy.as_ref().map(|spec| kube_proxy::configuration(facts, spec)),
            reserves,
            kubelet,
            kubelet_flags,
            sandbox_image,
        })
    }
}
