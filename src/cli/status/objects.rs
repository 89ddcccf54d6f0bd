//! The objects in the management cluster that `capw status` reads: one list of each kind.

use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{Cluster, Machine, MachineDeployment};
use crate::api::cluster::WindowsCluster;
use crate::api::control_plane::ExternalControlPlane;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{WindowsMachine, WindowsMachineTemplate};
use crate::api::pool::WindowsNodePool;
use crate::kube_api::cluster::{self, Kind};
use crate::kube_api::error::ApiError;

/// The objects. A kind that is not installed has no objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub clusters: Vec<Cluster>,
    pub machine_deployments: Vec<MachineDeployment>,
    pub machines: Vec<Machine>,
    pub control_planes: Vec<ExternalControlPlane>,
    pub windows_clusters: Vec<WindowsCluster>,
    pub hypervisors: Vec<WindowsHypervisor>,
    pub pools: Vec<WindowsNodePool>,
    /// `None`: the templates could not be listed, so a missing template may exist.
    pub templates: Option<Vec<WindowsMachineTemplate>>,
    pub windows_machines: Vec<WindowsMachine>,
    pub configs: Vec<WindowsBootstrapConfig>,
    /// The kinds that could not be listed, and why.
    pub not_looked_at: Vec<String>,
}

impl Objects {
    /// Reads the objects in a namespace, or in all namespaces. Fails if the API server does not answer, or does not accept the user's identity.
    pub async fn read(cluster: &cluster::Cluster, namespace: Option<&str>) -> Result<Self, String> {
        let mut reader = Reader { cluster, namespace, not_looked_at: Vec::new() };
        Ok(Self {
            windows_machines: reader.list().await?.unwrap_or_default(),
            pools: reader.list().await?.unwrap_or_default(),
            windows_clusters: reader.list().await?.unwrap_or_default(),
            hypervisors: reader.list().await?.unwrap_or_default(),
            templates: reader.list().await?,
            configs: reader.list().await?.unwrap_or_default(),
            control_planes: reader.list().await?.unwrap_or_default(),
            clusters: reader.list().await?.unwrap_or_default(),
            machine_deployments: reader.list().await?.unwrap_or_default(),
            machines: reader.list().await?.unwrap_or_default(),
            not_looked_at: reader.not_looked_at,
        })
    }
}

struct Reader<'a> {
    cluster: &'a cluster::Cluster,
    namespace: Option<&'a str>,
    not_looked_at: Vec<String>,
}

impl Reader<'_> {
    /// Lists all objects of a kind; `None` if they cannot be listed.
    async fn list<K: Kind>(&mut self) -> Result<Option<Vec<K>>, String> {
        // A standalone pool needs no Cluster API, and a machine with another bootstrap provider needs none of our configurations.
        match self.cluster.list_served(self.namespace).await {
            Ok(found) => Ok(Some(found)),
            Err(error @ (ApiError::Unauthorized(_) | ApiError::Unreachable(_) | ApiError::Throttled { .. })) => Err(error.to_string()),
            Err(error) => {
                self.not_looked_at.push(error.to_string());
                Ok(None)
            }
        }
    }
}
