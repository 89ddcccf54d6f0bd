//! The workload clusters in use: their clients, the watches of their Nodes and certificate requests, and the rights of joining nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tokio::task::{AbortHandle, JoinSet};

use super::caches::Caches;
use super::certificates::{self, Certificates};
use super::management::Management;
use super::nodes::{self, Nodes};
use super::owners::Owners;
use super::triggers::Requests;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{self, ConditionType, Reason};
use crate::cluster::join_rights;
use crate::cluster::workload::{Workload, WorkloadError, Workloads};
use crate::lifecycle::workload::Fault;

/// Of so many kubeconfigs it is remembered whether the rights of joining nodes were looked at.
const KUBECONFIGS: usize = 1000;

/// Clones share everything.
#[derive(Clone)]
pub struct WorkloadClusters {
    shared: Arc<Shared>,
}

struct Shared {
    clients: Workloads,
    certificates: Certificates,
    context: WatchContext,
    /// By kubeconfig: whether the rights of joining nodes were looked at.
    join_rights: Mutex<HashMap<String, Arc<OnceCell<()>>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// What the watches in workload clusters use of the management cluster.
pub struct WatchContext {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub requests: Requests,
    pub nodes: Arc<Nodes>,
}

impl WorkloadClusters {
    pub fn new(clients: Workloads, context: WatchContext) -> Self {
        let shared = Shared { clients, certificates: Certificates::default(), context, join_rights: Mutex::default(), tasks: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn context(&self) -> &WatchContext {
        &self.shared.context
    }

    /// Nodes of the clusters of standalone pools.
    pub fn nodes(&self) -> &Nodes {
        &self.shared.context.nodes
    }

    /// Certificate requests of joining nodes.
    pub fn certificates(&self) -> &Certificates {
        &self.shared.certificates
    }

    pub async fn get(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        self.shared.clients.get(cluster).await
    }

    /// A client for a kubeconfig that is not kept here.
    pub async fn open(&self, source_name: &str, kubeconfig: &[u8]) -> Result<Workload, WorkloadError> {
        self.shared.clients.open(source_name, kubeconfig).await
    }

    /// To be called with every error of a call to this cluster.
    pub async fn doubt(&self, cluster: &ClusterRef, error: &WorkloadError) {
        self.shared.clients.doubt(cluster, error).await;
    }

    /// The cluster of a standalone pool; from now on its Nodes are watched.
    pub async fn get_with_nodes(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        let workload = self.get(cluster).await?;
        let spawn = |workload| self.spawn(nodes::follow(self.clone(), cluster.clone(), workload));
        self.nodes().watch(cluster, &workload, spawn);
        Ok(workload)
    }

    /// Watches the certificate requests of a cluster whose machines are about to join.
    pub fn watch_certificates(&self, cluster: &ClusterRef, workload: &Workload) {
        let spawn = |workload| self.spawn(certificates::follow(self.clone(), cluster.clone(), workload));
        self.certificates().watch(cluster, workload, spawn);
    }

    /// The same for a configuration, if its machine may still join.
    pub async fn watch_certificates_for(&self, cluster: &ClusterRef, config: &WindowsBootstrapConfig) {
        let conditions = config.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let may_join = condition::find(conditions, ConditionType::JoinCredentialValid).is_some_and(|c| c.reason == Reason::TokenValid);
        if !may_join || self.certificates().is_watching(cluster) {
            return;
        }
        match self.get(cluster).await {
            Ok(workload) => self.watch_certificates(cluster, &workload),
            Err(error) => tracing::debug!(namespace = cluster.namespace, %cluster, %error, "certificate requests are not watched yet"),
        }
    }

    /// The rights of joining nodes are looked at once per process and kubeconfig: of many machines that begin at the same time, all
    /// but the first wait here.
    pub async fn ensure_join_rights(&self, workload: &Workload) -> Result<(), WorkloadError> {
        let once = {
            let mut known = self.shared.join_rights.lock().unwrap_or_else(PoisonError::into_inner);
            // Kubeconfigs are renewed: those of before are not needed any more.
            if known.len() >= KUBECONFIGS && !known.contains_key(&workload.fingerprint) {
                known.clear();
            }
            known.entry(workload.fingerprint.clone()).or_default().clone()
        };
        once.get_or_try_init(|| async { join_rights::ensure(workload).await.map(drop) }).await.copied()
    }

    /// Drops the client and the watches of a cluster that is no longer used.
    pub async fn forget(&self, cluster: &ClusterRef) {
        self.certificates().forget(cluster);
        self.nodes().forget(cluster);
        self.shared.clients.forget(cluster).await;
    }

    /// Runs a task that ends with the controllers.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task)
    }

    /// Ends every task. The tasks hold this, and this holds the tasks.
    pub fn stop(&self) {
        self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// The class of an error; `None` when it passes by itself.
pub fn fault(error: &WorkloadError) -> Option<Fault> {
    Some(match error {
        WorkloadError::KubeconfigMissing { .. } => Fault::KubeconfigMissing,
        WorkloadError::KubeconfigInvalid { .. } => Fault::KubeconfigInvalid,
        WorkloadError::Unreachable { .. } => Fault::Unreachable,
        WorkloadError::Unauthorized { .. } => Fault::Unauthorized,
        WorkloadError::Forbidden { .. } => Fault::Forbidden,
        WorkloadError::Foreign { .. } => Fault::Foreign,
        WorkloadError::Api(_) | WorkloadError::Management(_) => return None,
    })
}
