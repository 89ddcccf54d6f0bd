//! The sources of a node's programs.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cel::BRACKETS;

/// Sources of the programs of a node. Programs that are not listed must be in the image.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Programs {
    /// Base URL of the Kubernetes programs, with the layout of dl.k8s.io below it: `v1.36.3/bin/windows/amd64/kubelet.exe`. Default: `https://dl.k8s.io/release`.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|\\\\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[-A-Za-z0-9._~]+)*$')").message("must be an http or https address without user, query and a slash at its end, e.g. https://mirror.example.com/kubernetes"))]
    #[x_kube(validation = Rule::new(BRACKETS).message("must have an IPv6 address in the brackets, e.g. https://[fd00::1]/kubernetes"))]
    pub base_url: Option<String>,
    /// The downloads. The node itself fetches them, through its proxy, and verifies each digest before use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub downloads: Vec<Download>,
}

/// A program, or an archive of programs, with its digest.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.url) || !(self.name in ['containerd', 'cni-plugins', 'crictl', 'flanneld', 'flannel-cni'])").message("url: containerd, cni-plugins, crictl, flanneld and flannel-cni have versions of their own: give the address of the file"))]
pub struct Download {
    /// Name of the program.
    pub name: Program,
    /// Digest of the file: `sha256:` or `sha512:` and lower-case hexadecimal digits.
    #[schemars(length(max = 135))]
    #[x_kube(validation = Rule::new("self.matches('^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$')").message("must be sha256: with 64 or sha512: with 128 hexadecimal digits in lower case"))]
    pub digest: String,
    /// Address of the file. Default for Kubernetes programs: from `baseURL` and the node's version; others have no default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|\\\\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?/[-A-Za-z0-9._~/%+?=&]+$')").message("must be an http or https address without user and blanks, e.g. https://mirror.example.com/containerd-2.3.7-windows-amd64.tar.gz"))]
    #[x_kube(validation = Rule::new(BRACKETS).message("must have an IPv6 address in the brackets, e.g. https://[fd00::1]/containerd-2.3.7-windows-amd64.tar.gz"))]
    pub url: Option<String>,
}

/// A program of a node.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    Kubelet,
    Kubeadm,
    KubeLogRunner,
    Kubectl,
    KubeProxy,
    /// The archive of a release, with `bin/containerd.exe`.
    Containerd,
    /// The archive of a release.
    CniPlugins,
    /// The archive of a release.
    Crictl,
    /// `flanneld.exe` of a release, for DaemonSets that run Flannel.
    Flanneld,
    /// Flannel's CNI plugin: `flannel-amd64.exe` of a release, which becomes `flannel.exe`.
    FlannelCni,
}

impl Program {
    /// The name of the program in ids, files and addresses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Kubeadm => "kubeadm",
            Self::KubeLogRunner => "kube-log-runner",
            Self::Kubectl => "kubectl",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::CniPlugins => "cni-plugins",
            Self::Crictl => "crictl",
            Self::Flanneld => "flanneld",
            Self::FlannelCni => "flannel-cni",
        }
    }
}
