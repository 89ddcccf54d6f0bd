//! The clients for workload clusters ([`ClusterRef`]), created from the Secret with the kubeconfig and kept while the Secret does not change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, Config};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::budget::Budget;
use super::cluster::Cluster;
use super::gate::Gates;
use super::in_cluster;
use super::keeping::Keeping;
use super::workload::{Workload, WorkloadError};
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::namespaces::Namespaces;

/// The time after which the Secret is checked again, unless a call with its client fails before.
const RECHECK: Duration = Duration::from_secs(60);
/// The time after which the Secret is checked again when the API server does not answer.
const RECHECK_IN_DOUBT: Duration = Duration::from_secs(10);

/// Creates a client, e.g. one whose requests are counted.
pub type Connect = Arc<dyn Fn(Config) -> kube::Result<Client> + Send + Sync>;

/// The clients in use.
pub struct Workloads {
    cluster: Cluster,
    connect: Connect,
    /// The namespaces whose pools may join the cluster that this process runs in.
    own_cluster: Namespaces,
    entries: Mutex<HashMap<ClusterRef, Entry>>,
    gates: Gates,
    kept: Budget,
}

type Entry = Arc<Mutex<Option<Connection>>>;

struct Connection {
    workload: Arc<Workload>,
    looked: Instant,
    doubtful: bool,
}

impl Workloads {
    pub fn new(cluster: Cluster) -> Self {
        Self::connected(cluster, Arc::new(Client::try_from), Namespaces::All)
    }

    pub fn connected(cluster: Cluster, connect: Connect, own_cluster: Namespaces) -> Self {
        Self { cluster, connect, own_cluster, entries: Mutex::default(), gates: Gates::default(), kept: Keeping::of_all() }
    }

    /// Adapts the limits to controllers that have up to `passes` passes at the same time each.
    pub fn for_passes(self, passes: usize) -> Self {
        Self { gates: Gates::new(passes), ..self }
    }

    /// Opens a client for a kubeconfig that is not kept here, with the same settings.
    pub async fn open(&self, source_name: &str, bytes: &[u8]) -> Result<Workload, WorkloadError> {
        let found = Workload::connected(source_name, bytes, &*self.connect).await?;
        Ok(Workload { gate: self.gates.of(&found.fingerprint), ..self.within_budget(found) })
    }

    fn within_budget(&self, found: Workload) -> Workload {
        Workload { keeping: Keeping::of_one(&self.kept), ..found }
    }

    async fn entry(&self, cluster: &ClusterRef) -> Entry {
        self.entries.lock().await.entry(cluster.clone()).or_default().clone()
    }

    /// Returns the client for a workload cluster. Reads its Secret at most once a minute, unless [`Workloads::note_error`] was called.
    pub async fn get(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        if cluster.source == ClusterSource::InCluster && !self.own_cluster.contains(&cluster.namespace) {
            return Err(WorkloadError::OwnClusterRefused { namespace: cluster.namespace.clone() });
        }
        let entry = self.entry(cluster).await;
        let mut connection = entry.lock().await;
        if let Some(known) = connection.as_ref()
            && !known.doubtful
            && known.looked.elapsed() < RECHECK
        {
            return Ok(known.workload.clone());
        }
        let known = connection.as_ref().map(|c| c.workload.clone());
        let namespace = &cluster.namespace;
        let found = match &cluster.source {
            ClusterSource::InCluster => {
                // Anyone may read `cluster-info` and copy it into a Secret, so this cluster does not share a gate with such a Secret.
                let found = in_cluster::workload(self.cluster.client()).await;
                found.map(|found| keep(known, Workload { gate: self.gates.of("in-cluster"), ..self.within_budget(found) }))
            }
            ClusterSource::Kubeconfig { secret, key } => self.of_secret(namespace, secret, key, known).await,
            ClusterSource::ClusterApi(name) => self.of_secret(namespace, &format!("{name}-kubeconfig"), "value", known).await,
        };
        let workload = found.inspect_err(|error| {
            // Without a usable kubeconfig the old client must not be used any more; an unreachable management cluster proves nothing about it.
            if matches!(error, WorkloadError::KubeconfigMissing { .. } | WorkloadError::KubeconfigInvalid { .. }) {
                *connection = None;
            }
        })?;
        *connection = Some(Connection { workload: workload.clone(), looked: Instant::now(), doubtful: false });
        Ok(workload)
    }

    /// Returns the cluster of a kubeconfig in a Secret; `known` is the previous one.
    async fn of_secret(&self, namespace: &str, secret: &str, key: &str, known: Option<Arc<Workload>>) -> Result<Arc<Workload>, WorkloadError> {
        let bytes = read(&self.cluster, namespace, secret, key).await?;
        match known.filter(|known| known.fingerprint == HEXLOWER.encode(&Sha256::digest(&bytes))) {
            Some(known) => Ok(known),
            None => Ok(Arc::new(self.open(&format!("Secret {namespace}/{secret}"), &bytes).await?)),
        }
    }

    /// Must be called with every error of a call with a client from here: after a refused or lost connection the Secret is read again.
    pub async fn note_error(&self, cluster: &ClusterRef, error: &WorkloadError) {
        let least = match error {
            WorkloadError::Unauthorized { .. } | WorkloadError::ClusterReplaced { .. } => Duration::ZERO,
            // Every object of a cluster that does not answer reports such an error.
            WorkloadError::Unreachable { .. } => RECHECK_IN_DOUBT,
            _ => return,
        };
        if let Some(connection) = self.entry(cluster).await.lock().await.as_mut() {
            connection.doubtful |= connection.looked.elapsed() >= least;
        }
    }

    /// Drops the client of a cluster that is no longer used.
    pub async fn forget(&self, cluster: &ClusterRef) {
        self.entries.lock().await.remove(cluster);
    }
}

/// Keeps the known client if it has the same kubeconfig: its connections are open.
fn keep(known: Option<Arc<Workload>>, found: Workload) -> Arc<Workload> {
    known.filter(|known| known.fingerprint == found.fingerprint).unwrap_or_else(|| Arc::new(found))
}

/// Reads a key with a kubeconfig from a Secret in the management cluster.
pub async fn read(cluster: &Cluster, namespace: &str, secret: &str, key: &str) -> Result<Vec<u8>, WorkloadError> {
    let missing = || WorkloadError::KubeconfigMissing { secret: format!("{namespace}/{secret}"), key: key.to_owned() };
    let found: Secret = cluster.get(namespace, secret).await.map_err(WorkloadError::Management)?.ok_or_else(missing)?;
    let data = found.data.unwrap_or_default().remove(key).ok_or_else(missing)?;
    if data.0.is_empty() { Err(missing()) } else { Ok(data.0) }
}

#[cfg(test)]
mod tests;
