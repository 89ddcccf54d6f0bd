//! Clients for the kubeconfigs of ExternalControlPlanes, kept while the kubeconfig is the same.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::engine::workload_clusters::WorkloadClusters;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The most clients that are kept. Beyond that, the oldest client is dropped.
const KEPT: usize = 256;

#[derive(Default)]
pub struct Clients {
    by_digest: Mutex<Vec<(Vec<u8>, Arc<Workload>)>>,
}

impl Clients {
    /// Returns the client for a kubeconfig. `source` names the kubeconfig in errors.
    pub async fn get(&self, clusters: &WorkloadClusters, source: &str, kubeconfig: &[u8]) -> Result<Arc<Workload>, WorkloadError> {
        let digest = Sha256::digest(kubeconfig).to_vec();
        if let Some((_, known)) = self.by_digest.lock().await.iter().find(|(d, _)| *d == digest) {
            return Ok(known.clone());
        }
        let made = Arc::new(clusters.open(source, kubeconfig).await?);
        let mut all = self.by_digest.lock().await;
        if all.len() >= KEPT {
            all.remove(0);
        }
        all.push((digest, made.clone()));
        Ok(made)
    }
}

#[cfg(test)]
impl Clients {
    /// A set with a client for this kubeconfig.
    pub fn of(kubeconfig: &[u8], workload: Workload) -> Self {
        Self { by_digest: Mutex::new(vec![(Sha256::digest(kubeconfig).to_vec(), Arc::new(workload))]) }
    }
}
