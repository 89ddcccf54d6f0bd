//! The workload clusters in use: their clients, what is known of their Nodes, certificate requests and network, and the rights of joining nodes. The
//! files of the watches add the methods that start them.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use super::answers::Answers;
use super::caches::Caches;
use super::certificate_requests::Certificates;
use super::followed::ServingCertificates;
use super::linux_sides::LinuxSides;
use super::management::Management;
use super::nodes::Nodes;
use super::owners::Owners;
use super::triggers::Requests;
use crate::api::bootstrap_config::JOIN_SIGNER;
use crate::api::cluster_ref::ClusterRef;
use crate::domain::fault::Fault;
use crate::kinds::bootstrap_config::decide::csr::serving::SERVING_SIGNER;
use crate::kube_api::join_rights;
use crate::kube_api::linux_side::Watched;
use crate::kube_api::workload::{Workload, WorkloadError};
use crate::kube_api::workloads::Workloads;

/// The workload clusters in use. Clones share everything.
#[derive(Clone)]
pub struct WorkloadClusters {
    shared: Arc<Shared>,
}

struct Shared {
    clients: Workloads,
    /// The identity of the cluster behind each kubeconfig.
    identities: Arc<Answers<String>>,
    certificates: Certificates,
    serving: ServingCertificates,
    linux_sides: LinuxSides,
    context: WatchContext,
    /// Whether the rights of joining nodes were checked.
    join_rights: Arc<Answers<()>>,
    tasks: Mutex<JoinSet<()>>,
}

/// The parts of the management cluster that the watches in workload clusters use.
pub struct WatchContext {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub requests: Requests,
    pub nodes: Arc<Nodes>,
    /// Whether the serving certificates of kubelets are approved.
    pub approve_serving_certificates: bool,
}

impl WorkloadClusters {
    pub fn new(clients: Workloads, context: WatchContext) -> Self {
        let shared = Shared {
            clients,
            identities: Arc::default(),
            certificates: Certificates::default(),
            serving: ServingCertificates::default(),
            linux_sides: LinuxSides::default(),
            context,
            join_rights: Arc::default(),
            tasks: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn context(&self) -> &WatchContext {
        &self.shared.context
    }

    pub(super) fn clients(&self) -> &Workloads {
        &self.shared.clients
    }

    /// The identity of the cluster behind each kubeconfig.
    pub(super) fn identities(&self) -> &Arc<Answers<String>> {
        &self.shared.identities
    }

    /// The Nodes of the clusters of standalone pools.
    pub fn nodes(&self) -> &Nodes {
        &self.shared.context.nodes
    }

    /// The certificate requests of joining nodes.
    pub fn certificates(&self) -> &Certificates {
        &self.shared.certificates
    }

    /// Returns the known answer for a cluster. If the question is due, a task sends `question`; the answer triggers the passes of the cluster.
    pub(super) fn ask<T, Q>(
        &self,
        answers: &Arc<Answers<T>>,
        cluster: &ClusterRef,
        workload: &Workload,
        question: impl FnOnce() -> Q,
    ) -> Result<T, WorkloadError>
    where
        T: Clone + Send + 'static,
        Q: Future<Output = Result<T, WorkloadError>> + Send + 'static,
    {
        answers.get(cluster, workload, || {
            let (clusters, answers, cluster, workload, question) = (self.clone(), answers.clone(), cluster.clone(), workload.clone(), question());
            self.spawn(async move {
                let answer = question.await;
                if answers.note(&cluster, &workload, answer) {
                    clusters.context().requests.all_of(&clusters.context().caches, &cluster);
                }
            });
        })
    }

    /// Opens a client for a kubeconfig that is not kept here.
    pub async fn open(&self, source_name: &str, kubeconfig: &[u8]) -> Result<Workload, WorkloadError> {
        self.shared.clients.open(source_name, kubeconfig).await
    }

    /// Must be called with every error of a call to this cluster.
    pub async fn note_error(&self, cluster: &ClusterRef, error: &WorkloadError) {
        self.shared.clients.note_error(cluster, error).await;
    }

    pub(super) fn serving_certificates(&self) -> &ServingCertificates {
        &self.shared.serving
    }

    /// Returns, by signer, when the oldest undecided request of one of our machines was created.
    pub fn oldest_requests(&self) -> [(&'static str, Option<Timestamp>); 2] {
        [(JOIN_SIGNER, self.certificates().oldest()), (SERVING_SIGNER, self.serving_certificates().oldest())]
    }

    /// Returns the objects of the cluster from the watch, or from the API server if no watch works; `None` for a kind that is not served. Also
    /// fails if the kind may be read but not watched: changes would be noticed minutes later.
    pub async fn observe(&self, cluster: &ClusterRef, workload: &Workload, what: &Watched) -> Result<Option<Vec<Value>>, WorkloadError> {
        match self.linux_sides().shown(cluster, workload, what)? {
            Some(shown) => Ok(shown),
            None => workload.observe(what).await,
        }
    }

    pub fn linux_sides(&self) -> &LinuxSides {
        &self.shared.linux_sides
    }

    /// Checks the rights of joining nodes once per process and kubeconfig.
    pub fn ensure_join_rights(&self, cluster: &ClusterRef, workload: &Workload) -> Result<(), WorkloadError> {
        self.ask(&self.shared.join_rights, cluster, workload, || {
            let workload = workload.clone();
            async move { join_rights::ensure(&workload).await.map(drop) }
        })
    }

    /// Drops the client and the watches of a cluster that is no longer used.
    pub async fn forget(&self, cluster: &ClusterRef) {
        self.certificates().forget(cluster);
        self.serving_certificates().forget(cluster);
        self.nodes().forget(cluster);
        self.linux_sides().forget(cluster);
        self.shared.identities.forget(cluster);
        self.shared.join_rights.forget(cluster);
        self.shared.clients.forget(cluster).await;
    }

    /// Runs a task that ends with the controllers.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.shared.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Ends every task. This value and the tasks hold references to each other.
    pub fn stop(&self) {
        self.shared.tasks.lock().abort_all();
    }
}

/// Returns the class of an error; `None` for an error that resolves itself.
pub fn fault(error: &WorkloadError) -> Option<Fault> {
    Some(match error {
        WorkloadError::KubeconfigMissing { .. } => Fault::KubeconfigMissing,
        WorkloadError::KubeconfigInvalid { .. } => Fault::KubeconfigInvalid,
        WorkloadError::Unreachable { .. } => Fault::Unreachable,
        WorkloadError::Unauthorized { .. } => Fault::Unauthorized,
        WorkloadError::Forbidden { .. } => Fault::Forbidden,
        WorkloadError::Foreign { .. } => Fault::Foreign,
        WorkloadError::ClusterReplaced { .. } => Fault::Replaced,
        WorkloadError::OwnClusterRefused { .. } => Fault::OwnClusterRefused,
        WorkloadError::TooLarge { .. } => Fault::TooLarge,
        WorkloadError::NotReached { .. } | WorkloadError::Api(_) | WorkloadError::Management(_) => return None,
    })
}
