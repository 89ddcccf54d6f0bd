//! The owner that requests a node, and the cluster that the node joins: from Cluster API or from a standalone pool, in one shape for all decisions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};

use super::identity::{INFRASTRUCTURE, VERSION_ANNOTATION, host_name};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{
    self, CidrBlocks, Cluster, ClusterNetwork, DELETE_ANNOTATION, Endpoint, GROUP, HEALTH_CHECK_SUCCEEDED, Machine, MachinePool, NODE_DELETED,
    NODE_READY, OWNER_REMEDIATED, Reference,
};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::condition::{self, ConditionType};
use crate::api::machine::WindowsMachine;
use crate::api::pool::{PoolCluster, WindowsNodePool};
use crate::domain::pod_network::{PodNetwork, pod_network, pods_per_node};

/// The owner that requests the node of one of our objects.
#[derive(Clone, Debug)]
pub enum Owner {
    /// The object has no owner reference yet. Nothing may be written: MachineSet still edits the object
    /// (`docs/design/cluster-api.md#ownership-before-writes`).
    None,
    /// The owner that the reference names is not cached yet, or was deleted.
    Unseen,
    Found(Box<NodeRequest>),
}

impl Owner {
    /// Returns the owner. `found` is the Machine that the owner reference names, if it was found.
    pub fn of(owners: Option<&Vec<OwnerReference>>, found: Option<&Machine>) -> Self {
        match (capi::machine_owner(owners), found) {
            (None, _) => Self::None,
            (Some(owner), Some(machine)) if machine.metadata.uid.as_deref() == Some(&owner.uid) => NodeRequest::of_machine(machine).into(),
            (Some(_), _) => Self::Unseen,
        }
    }

    pub fn request(&self) -> Option<&NodeRequest> {
        match self {
            Self::Found(request) => Some(request),
            Self::None | Self::Unseen => None,
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl From<NodeRequest> for Owner {
    fn from(request: NodeRequest) -> Self {
        Self::Found(Box::new(request))
    }
}

/// The node that the owner requests, and the facts that the owner knows about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRequest {
    /// The name of the Machine; in a standalone pool, of the WindowsMachine.
    pub name: String,
    /// The name of the cluster, for messages.
    pub cluster: String,
    /// The version of Kubernetes, e.g. `v1.36.3`.
    pub version: Option<String>,
    /// The name of the Secret with the bootstrap data, once it is known.
    pub data_secret: Option<String>,
    pub failure_domain: Option<String>,
    pub is_control_plane: bool,
    /// The object that creates the VM.
    pub infrastructure: Reference,
    pub provider_id: Option<String>,
    /// The name of the Node, once it has joined.
    pub node: Option<String>,
    /// The build of Windows that the Node reports, e.g. `10.0.20348.2700`.
    pub kernel_version: Option<String>,
    /// The conditions of the Machine that decisions read; in a standalone pool, the conditions that a Machine would report about its Node.
    pub conditions: Vec<Condition>,
    pub is_deleting: bool,
    /// Whether the machine is removed first when there are too many.
    pub delete_first: bool,
}

/// The conditions of a Machine that decisions read. Core reports ten more, and a request is created in each pass.
const READ: [&str; 3] = [NODE_READY, OWNER_REMEDIATED, HEALTH_CHECK_SUCCEEDED];

impl NodeRequest {
    /// Returns the request of a Machine of Cluster API.
    pub fn of_machine(machine: &Machine) -> Self {
        let (meta, spec, status) = (&machine.metadata, &machine.spec, machine.status.as_ref());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            cluster: spec.cluster_name.clone(),
            version: spec.version.clone(),
            data_secret: spec.bootstrap.data_secret_name.clone().filter(|name| !name.is_empty()),
            failure_domain: spec.failure_domain.clone().filter(|domain| !domain.is_empty()),
            is_control_plane: machine.is_control_plane(),
            infrastructure: spec.infrastructure_ref.clone(),
            provider_id: spec.provider_id.clone(),
            node: status.and_then(|s| s.node_ref.as_ref()).map(|node| node.name.clone()).filter(|name| !name.is_empty()),
            kernel_version: status.and_then(|s| s.node_info.as_ref()).map(|info| info.kernel_version.clone()),
            conditions: status.iter().flat_map(|s| &s.conditions).filter(|c| READ.contains(&c.type_.as_str())).cloned().collect(),
            is_deleting: meta.deletion_timestamp.is_some(),
            delete_first: meta.annotations.as_ref().is_some_and(|a| a.contains_key(DELETE_ANNOTATION)),
        }
    }

    /// Returns the request of a Machine that belongs to a MachinePool. Cluster API leaves version and bootstrap data to the pool then
    /// (`docs/design/cluster-api.md#a-windowsmachine-in-order`). `config` is the machine's own configuration, if it exists; without it, all
    /// machines use the data of the MachinePool.
    pub fn of_pool_machine(machine: &Machine, object: &WindowsMachine, pool: Option<&MachinePool>, config: Option<&WindowsBootstrapConfig>) -> Self {
        let request = Self::of_machine(machine);
        let of_pool = pool.map(|p| &p.spec.template.spec.bootstrap);
        let data_secret = match config {
            Some(config) => data_secret(config).map(str::to_owned),
            // With our configuration as a template, each machine gets its own configuration, which does not exist yet.
            None if of_pool.and_then(|b| b.config_ref.as_ref()).is_some_and(|r| r.kind == "WindowsBootstrapConfig") => None,
            None => of_pool.and_then(|b| b.data_secret_name.clone()).filter(|name| !name.is_empty()),
        };
        Self { version: version(object).or(request.version.clone()), data_secret, ..request }
    }

    /// Returns the request of a standalone pool; `node` is the Node with the provider ID of the machine, if it exists.
    pub fn standalone(object: &WindowsMachine, cluster: &ClusterRef, config: Option<&WindowsBootstrapConfig>, node: Option<&Node>) -> Self {
        let meta = &object.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let request = Self {
            name: name.clone(),
            cluster: cluster.to_string(),
            version: version(object),
            data_secret: config.and_then(data_secret).map(str::to_owned),
            infrastructure: Reference { api_group: INFRASTRUCTURE.into(), kind: "WindowsMachine".into(), name },
            provider_id: object.spec.provider_id.clone(),
            is_deleting: meta.deletion_timestamp.is_some(),
            delete_first: meta.annotations.as_ref().is_some_and(|a| a.contains_key(DELETE_ANNOTATION)),
            ..Self::default()
        };
        match node {
            Some(node) => request.with_node(node),
            None => request.without_node(object),
        }
    }

    fn with_node(self, node: &Node) -> Self {
        let status = node.status.clone().unwrap_or_default();
        Self {
            node: node.metadata.name.clone(),
            kernel_version: status.node_info.map(|info| info.kernel_version),
            conditions: status.conditions.iter().flatten().find(|c| c.type_ == "Ready").map(node_ready).into_iter().collect(),
            ..self
        }
    }

    /// A kubelet registers its Node once, so the Node of a machine that had joined was deleted and does not come back.
    fn without_node(self, object: &WindowsMachine) -> Self {
        let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let Some(joined) = condition::find(conditions, ConditionType::NodeJoined).filter(|c| c.status == "True") else { return self };
        let deleted = Condition {
            type_: NODE_READY.into(),
            status: "False".into(),
            reason: NODE_DELETED.into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: joined.last_transition_time.clone(),
        };
        Self { node: host_name(object).ok().map(|name| name.to_string()), conditions: vec![deleted], ..self }
    }

    /// Sets when the Node was first observed not Ready: the time in the Node comes from another clock.
    pub fn seen_unready(mut self, since: Option<Timestamp>) -> Self {
        for ready in self.conditions.iter_mut().filter(|c| c.type_ == NODE_READY && c.status != "True" && c.reason != NODE_DELETED) {
            ready.last_transition_time.0 = since.unwrap_or(ready.last_transition_time.0);
        }
        self
    }

    /// Whether this provider creates the VM.
    pub fn is_for_windows_machine(&self) -> bool {
        self.infrastructure.kind == "WindowsMachine"
    }
}

/// Whether a machine that names this cluster may join it without Cluster API. A machine may join the cluster that CAPW runs in only if the pool
/// that owns the machine, by UID, names that cluster; `pool` is that pool.
pub fn may_join(cluster: &ClusterRef, pool: Option<&WindowsNodePool>) -> bool {
    cluster.source != ClusterSource::InCluster || pool.and_then(ClusterRef::named_by).as_ref() == Some(cluster)
}

/// Returns the MachinePool that a Machine belongs to.
pub fn machine_pool_of(machine: &Machine) -> Option<&str> {
    capi::owner(machine.metadata.owner_references.as_ref(), GROUP, "MachinePool").map(|o| o.name.as_str())
}

/// Returns the name of the bootstrap Secret of a configuration, once reported.
pub fn data_secret(config: &WindowsBootstrapConfig) -> Option<&str> {
    config.status.as_ref()?.data_secret_name.as_deref()
}

/// Whether a Node is Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

fn version(object: &WindowsMachine) -> Option<String> {
    object.metadata.annotations.as_ref()?.get(VERSION_ANNOTATION).cloned()
}

fn node_ready(ready: &NodeCondition) -> Condition {
    Condition {
        type_: NODE_READY.into(),
        status: ready.status.clone(),
        reason: ready.reason.clone().unwrap_or_default(),
        message: ready.message.clone().unwrap_or_default(),
        observed_generation: None,
        last_transition_time: ready.last_transition_time.clone().unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)),
    }
}

/// The cluster that a node joins.
#[derive(Clone, Debug)]
pub struct TargetCluster {
    pub cluster: ClusterRef,
    pub is_paused: bool,
    pub is_deleting: bool,
    /// Whether the cluster outlives its Cluster, because no provider removes its control plane.
    pub outlives_cluster: bool,
    pub infrastructure_provisioned: bool,
    pub control_plane_initialized: bool,
    /// The address at which nodes reach the API server, once that is known.
    pub endpoint: Option<Endpoint>,
    pub network: ClusterNetwork,
    /// The WindowsHypervisors that its machines may use; if empty, all of them.
    pub hypervisors: Vec<String>,
    /// The source of the pod network of its Windows nodes; `None`: not decided yet.
    pub pod_network: Option<PodNetwork>,
    /// How many pods have an address on a Windows node, if that is known.
    pub pods_per_node: Option<u64>,
}

impl TargetCluster {
    /// Returns the cluster of a Cluster. `infrastructure`: the object in its `spec.infrastructureRef`, if that is a WindowsCluster.
    pub fn of_cluster(cluster: &Cluster, infrastructure: Option<&WindowsCluster>) -> Self {
        let meta = &cluster.metadata;
        Self {
            cluster: ClusterRef::cluster_api(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()),
            is_paused: cluster.is_paused(),
            is_deleting: meta.deletion_timestamp.is_some(),
            outlives_cluster: outlives(cluster),
            infrastructure_provisioned: cluster.infrastructure_provisioned(),
            control_plane_initialized: cluster.control_plane_initialized(),
            endpoint: cluster.endpoint().cloned(),
            network: cluster.spec.cluster_network.clone().unwrap_or_default(),
            hypervisors: hypervisors(infrastructure),
            pod_network: infrastructure.map_or(Some(PodNetwork::ByOthers), pod_network),
            pods_per_node: infrastructure.and_then(pods_per_node),
        }
    }

    /// Returns the name of the Cluster if it is paused, which pauses everything that belongs to it.
    pub fn paused_name(&self) -> Option<String> {
        self.is_paused.then(|| self.cluster.to_string())
    }

    /// Whether the cluster's machines may use that WindowsHypervisor.
    pub fn may_use(&self, hypervisor: &str) -> bool {
        self.hypervisors.is_empty() || self.hypervisors.iter().any(|name| name == hypervisor)
    }

    /// Returns the cluster that a standalone pool joins, from the pool's spec and the WindowsCluster that represents the cluster. Without an
    /// endpoint in either, the kubeconfig's endpoint must be read.
    pub fn standalone(cluster: ClusterRef, spec: Option<&PoolCluster>, infrastructure: Option<&WindowsCluster>) -> Self {
        let endpoint = spec.and_then(|s| s.endpoint.clone()).or_else(|| infrastructure.and_then(|i| i.spec.control_plane_endpoint.clone()));
        let blocks = |networks: Option<&Vec<String>>| networks.map(|n| CidrBlocks { cidr_blocks: n.clone() });
        Self {
            cluster,
            is_paused: false,
            is_deleting: false,
            outlives_cluster: true,
            infrastructure_provisioned: true,
            control_plane_initialized: true,
            endpoint: endpoint.map(Endpoint::from),
            network: ClusterNetwork {
                service_domain: spec.and_then(|s| s.service_domain.clone()),
                services: blocks(spec.map(|s| &s.service_networks)),
                pods: blocks(spec.map(|s| &s.pod_networks)),
            },
            hypervisors: hypervisors(infrastructure),
            pod_network: infrastructure.map_or(Some(PodNetwork::ByOthers), pod_network),
            pods_per_node: infrastructure.and_then(pods_per_node),
        }
    }
}

fn hypervisors(infrastructure: Option<&WindowsCluster>) -> Vec<String> {
    infrastructure.iter().flat_map(|i| &i.spec.hypervisors).map(|h| h.name.clone()).collect()
}

/// Whether the control plane outlives the Cluster. One that Cluster API created is deleted with it; an ExternalControlPlane, or one without any
/// object, stays.
fn outlives(cluster: &Cluster) -> bool {
    let control_plane = cluster.spec.control_plane_ref.as_ref().filter(|reference| !reference.name.is_empty());
    control_plane.is_none_or(|reference| reference.kind == "ExternalControlPlane")
}

#[cfg(test)]
mod tests;
