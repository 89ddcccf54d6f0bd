//! The data of cluster-autoscaler's service: the caches of pools and machines, and the template of a pool.

use std::sync::Arc;

use kube::ResourceExt;

use super::decide::build::is_of;
use super::decide::request::PoolRequest;
use super::decide::template::Template;
use super::template::resolve;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::autoscaler::NodeGroups;
use crate::engine::caches::Caches;

/// The caches, with the interface that the service needs.
pub struct CachedNodeGroups(pub Arc<Caches>);

impl NodeGroups for CachedNodeGroups {
    fn pools(&self) -> Vec<Arc<WindowsNodePool>> {
        self.0.pools.0.store().state()
    }

    fn pool(&self, namespace: &str, name: &str) -> Option<Arc<WindowsNodePool>> {
        self.0.pools.get(namespace, name)
    }

    fn machines(&self, pool: &WindowsNodePool) -> Vec<Arc<WindowsMachine>> {
        let mut machines = self.0.windows_machines.all(&pool.namespace().unwrap_or_default());
        machines.retain(|machine| is_of(&machine.metadata, pool.metadata.uid.as_deref().unwrap_or_default()));
        machines
    }

    fn pods_per_node(&self, pool: &WindowsNodePool) -> Option<u64> {
        self.0.pods_per_node(ClusterRef::of_pool(pool).as_ref())
    }

    fn template(&self, pool: &WindowsNodePool) -> Result<Template, String> {
        let cluster = ClusterRef::of_pool(pool).ok_or("the pool is not standalone")?;
        resolve(&self.0, pool, &PoolRequest::standalone(pool, cluster)).map_err(|none| none.message)
    }
}
