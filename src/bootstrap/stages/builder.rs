//! The builder with which every stage adds its items to the plan.

use std::collections::BTreeMap;

use crate::bootstrap::digest::sha256;
use crate::bootstrap::plan::{Access, Item, Kind, Why};
use crate::vm::FailureCode;

/// The scheduled task that continues the plan after a restart, without cloudbase-init.
pub(super) const BOOT_TASK: &str = "capw";
/// Seconds without a failure after which the service manager resets its failure count.
pub(super) const RESET_SECONDS: u32 = 900;

pub(super) const NODE_DOCS: &str = "https://kubernetes.io/docs/setup/production-environment/windows/";
pub(super) const KUBEADM_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/adding-windows-nodes/";
pub(super) const KUBELET_DOCS: &str = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/";
pub(super) const CONTAINERD_DOCS: &str = "https://github.com/containerd/containerd/blob/main/docs/cri/config.md";
pub(super) const CLOUDBASE_DOCS: &str = "https://cloudbase-init.readthedocs.io/en/latest/plugins.html";
pub(super) const CONTRACT_DOCS: &str = "https://cluster-api.sigs.k8s.io/developer/providers/contracts/bootstrap-config";

pub(super) fn item(id: &str, code: FailureCode, seconds: u32, kind: Kind, why: Why) -> Item {
    Item { id: id.into(), kind, code, seconds, attempts: 3, unless: None, optional: false, why }
}

pub(super) fn why(reason: &'static str, link: &'static str, remedy: &'static str) -> Why {
    Why { reason, link, remedy }
}

pub(super) fn owned(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// The items in order, and the payload files that they use.
#[derive(Default)]
pub(super) struct PlanBuilder {
    pub items: Vec<Item>,
    pub files: BTreeMap<String, Vec<u8>>,
}

impl PlanBuilder {
    pub fn add(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Adds the bytes to the payload; returns the kind of item that writes them to `path`.
    pub fn file(&mut self, source: &str, path: &str, access: Access, bytes: impl Into<Vec<u8>>) -> Kind {
        let bytes = bytes.into();
        let kind = Kind::File { path: path.into(), source: source.into(), sha256: sha256(&bytes), access };
        self.files.insert(source.into(), bytes);
        kind
    }
}
