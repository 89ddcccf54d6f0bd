//! The cluster that the nodes of a pool without Cluster API join.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::kubeconfig::KubeconfigSecretReference;

/// The cluster that a pool's nodes join without Cluster API.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.kubeconfigSecretRef) == has(oldSelf.kubeconfigSecretRef) && (!has(self.kubeconfigSecretRef) || self.kubeconfigSecretRef == oldSelf.kubeconfigSecretRef)").message("kubeconfigSecretRef: cannot change, the nodes of a pool stay in their cluster: make another pool"))]
pub struct PoolCluster {
    /// A Secret (same namespace) with the kubeconfig of the cluster. Default: the cluster that the pool itself is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretReference>,
    /// Endpoint at which the nodes reach the API server. Default: that of the kubeconfig; for the cluster that the pool is in, that of its ConfigMap `kube-public/cluster-info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// DNS domain of Services, `cluster.local` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be a DNS domain, e.g. cluster.local"))]
    pub service_domain: Option<String>,
    /// Networks of Services, e.g. `10.96.0.0/12`; at most 4. They bypass proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Set, validation = Rule::new("self.all(network, isCIDR(network))").message("each must be a network, e.g. 10.96.0.0/12"))]
    pub service_networks: Vec<String>,
    /// Networks of pods, e.g. `10.244.0.0/16`; at most 4. They bypass proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Set, validation = Rule::new("self.all(network, isCIDR(network))").message("each must be a network, e.g. 10.244.0.0/16"))]
    pub pod_networks: Vec<String>,
}
