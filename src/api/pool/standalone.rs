//! Which cluster the nodes of a pool without Cluster API join.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::WindowsNodePool;
use crate::api::capi::{self, GROUP};
use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::control_plane::KubeconfigSecretReference;

/// Annotation on the WindowsMachines and WindowsBootstrapConfigs of a pool that stands alone: the cluster that they join, see
/// [`Joins`].
pub const JOINS_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/joins";

/// Annotation on a WindowsMachine whose pool was handed to Cluster API or back: the cluster that it was made for, of which the mark on
/// its VM speaks.
pub const MADE_FOR_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/made-for";

/// The cluster whose nodes a pool makes by itself.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.kubeconfigSecretRef) == has(oldSelf.kubeconfigSecretRef) && (!has(self.kubeconfigSecretRef) || self.kubeconfigSecretRef == oldSelf.kubeconfigSecretRef)").message("kubeconfigSecretRef: the nodes of a pool stay in their cluster; make another pool for another cluster"))]
pub struct PoolCluster {
    /// A Secret (same namespace) with the kubeconfig of the cluster. Default: the cluster that the pool itself is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretReference>,
    /// Where the nodes reach the API server. Default: as the kubeconfig says; for the cluster that the pool is in, as its ConfigMap `kube-public/cluster-info` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// DNS domain of Services, `cluster.local` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be a DNS domain, e.g. cluster.local"))]
    pub service_domain: Option<String>,
    /// Networks of Services, e.g. `10.96.0.0/12`; at most 4. They are kept away from proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Set, validation = Rule::new("self.all(network, isCIDR(network))").message("each must be a network, e.g. 10.96.0.0/12"))]
    pub service_networks: Vec<String>,
    /// Networks of pods, e.g. `10.244.0.0/16`; at most 4. They are kept away from proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Set, validation = Rule::new("self.all(network, isCIDR(network))").message("each must be a network, e.g. 10.244.0.0/16"))]
    pub pod_networks: Vec<String>,
}

/// A cluster that no Cluster of Cluster API stands for. As text it holds a `/`, so it is never the name of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joins {
    /// The one that this process works in: `own/cluster`.
    Own,
    /// The one of a kubeconfig: `secret/NAME/KEY`.
    Kubeconfig(KubeconfigSecretReference),
}

impl Joins {
    /// What a pool that stands alone joins: it says so itself, and no MachinePool owns it.
    pub fn of(pool: &WindowsNodePool) -> Option<Self> {
        if capi::owner(pool.metadata.owner_references.as_ref(), GROUP, "MachinePool").is_some() {
            return None;
        }
        let cluster = pool.spec.cluster.as_ref()?;
        Some(cluster.kubeconfig_secret_ref.clone().map_or(Self::Own, Self::Kubeconfig))
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("own", "cluster") => Some(Self::Own),
            ("secret", rest) => {
                let (name, key) = rest.split_once('/')?;
                Some(Self::Kubeconfig(KubeconfigSecretReference { name: name.to_owned(), key: key.to_owned() }))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Joins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own/cluster"),
            Self::Kubeconfig(secret) => write!(f, "secret/{}/{}", secret.name, secret.key),
        }
    }
}

/// The workload cluster of one of our objects: the name of its Cluster, or else what it [joins](Joins).
pub fn cluster_of(meta: &ObjectMeta) -> Option<&str> {
    capi::cluster_name(meta.labels.as_ref()).or_else(|| annotation(meta, JOINS_ANNOTATION))
}

/// What an object of a pool that stands alone joins; `None` for one that belongs to Cluster API.
pub fn joins(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, JOINS_ANNOTATION).filter(|_| capi::cluster_name(meta.labels.as_ref()).is_none())
}

/// The workload cluster that a machine was made for, wherever it belongs by now.
pub fn made_for(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, MADE_FOR_ANNOTATION).or_else(|| cluster_of(meta))
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_the_same_after_it_was_written() {
        let secret = KubeconfigSecretReference { name: "other.cluster".into(), key: "value".into() };
        for joins in [Joins::Own, Joins::Kubeconfig(secret)] {
            assert_eq!(Joins::parse(&joins.to_string()), Some(joins));
        }
        for other in ["", "c1", "own/", "secret/x", "own/other", "x/y/z"] {
            assert_eq!(Joins::parse(other), None, "{other}");
        }
    }
}
