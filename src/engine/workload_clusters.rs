//! The workload clusters in use: their clients, the watches of their Nodes and certificate requests, and the rights of joining nodes.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use super::answers::Answers;
use super::caches::Caches;
use super::certificates::{Certificates, Joins};
use super::identities::Identities;
use super::linux_sides::{LinuxSide, LinuxSides};
use super::management::Management;
use super::nodes::{self, Nodes};
use super::owners::Owners;
use super::pending::{self, Place, Signer};
use super::serving_certificates::{Serves, ServingCertificates};
use super::triggers::Requests;
use crate::api::bootstrap_config::{ServingCertificate, WindowsBootstrapConfig};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{self, ConditionType, Reason};
use crate::domain::fault::Fault;
use crate::domain::owner::data_secret;
use crate::kube_api::join_rights;
use crate::kube_api::linux_side::Watched;
use crate::kube_api::workload::{Workload, WorkloadError, Workloads};

/// The workload clusters in use. Clones share everything.
#[derive(Clone)]
pub struct WorkloadClusters {
    shared: Arc<Shared>,
}

struct Shared {
    clients: Workloads,
    identities: Identities,
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
            identities: Identities::default(),
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

    /// The Nodes of the clusters of standalone pools.
    pub fn nodes(&self) -> &Nodes {
        &self.shared.context.nodes
    }

    /// The certificate requests of joining nodes.
    pub fn certificates(&self) -> &Certificates {
        &self.shared.certificates
    }

    /// Returns the client of a cluster, if it is the cluster that machines were created for.
    pub async fn get(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        let workload = self.shared.clients.get(cluster).await?;
        if let Err(error) = self.shared.identities.confirm(self, cluster, &workload) {
            self.note_error(cluster, &error).await;
            return Err(error);
        }
        Ok(workload)
    }

    /// Reads again which cluster a kubeconfig leads to, and waits for the answer.
    pub(super) async fn confirm_again(&self, cluster: &ClusterRef, workload: &Workload) -> Result<(), WorkloadError> {
        self.shared.identities.confirm_again(self, cluster, workload).await
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

    /// Returns the unique ID of the cluster, once the cluster was used.
    pub fn uid(&self, cluster: &ClusterRef) -> Option<String> {
        self.shared.identities.uid(cluster)
    }

    /// Opens a client for a kubeconfig that is not kept here.
    pub async fn open(&self, source_name: &str, kubeconfig: &[u8]) -> Result<Workload, WorkloadError> {
        self.shared.clients.open(source_name, kubeconfig).await
    }

    /// Must be called with every error of a call to this cluster.
    pub async fn note_error(&self, cluster: &ClusterRef, error: &WorkloadError) {
        self.shared.clients.note_error(cluster, error).await;
    }

    /// Returns the client of the cluster of a standalone pool, and watches its Nodes from now on.
    pub async fn get_with_nodes(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        let workload = self.get(cluster).await?;
        let spawn = |workload| self.spawn(nodes::follow(self.clone(), cluster.clone(), workload));
        self.nodes().watch(cluster, &workload, spawn);
        Ok(workload)
    }

    /// Watches the certificate requests of a cluster whose machines are about to join.
    pub fn watch_certificates(&self, cluster: &ClusterRef, workload: &Workload) {
        let spawn = |workload| self.spawn(pending::follow(Joins(self.place(cluster, workload))));
        self.certificates().watch(cluster, workload, spawn);
    }

    fn place(&self, cluster: &ClusterRef, workload: Workload) -> Place {
        Place { clusters: self.clone(), cluster: cluster.clone(), workload }
    }

    /// Watches the certificate requests for a configuration, if its machine may still join. `false`: the cluster cannot be watched yet.
    pub async fn watch_certificates_for(&self, cluster: &ClusterRef, config: &WindowsBootstrapConfig) -> bool {
        let conditions = config.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let may_join = condition::find(conditions, ConditionType::JoinCredentialValid).is_some_and(|c| c.reason == Reason::TokenValid);
        if !may_join || self.certificates().is_watching(cluster) {
            return true;
        }
        let workload = self.get(cluster).await.inspect_err(|error| {
            tracing::debug!(namespace = cluster.namespace, %cluster, %error, "certificate requests are not watched yet");
        });
        workload.map(|workload| self.watch_certificates(cluster, &workload)).is_ok()
    }

    pub(super) fn serving_certificates(&self) -> &ServingCertificates {
        &self.shared.serving
    }

    /// Watches the requests for serving certificates of a cluster, if a machine of it requests one that the cluster signs. `false`: the cluster
    /// cannot be watched yet.
    pub async fn watch_serving_certificates_for(&self, cluster: &ClusterRef, config: &WindowsBootstrapConfig) -> bool {
        let is_asked = config.spec.kubelet.serving_certificate == ServingCertificate::ClusterSigned && data_secret(config).is_some();
        if !is_asked || !self.context().approve_serving_certificates || self.serving_certificates().is_watching(cluster) {
            return true;
        }
        let workload = self.get(cluster).await.inspect_err(|error| {
            tracing::debug!(namespace = cluster.namespace, %cluster, %error, "serving certificates are not watched yet");
        });
        let spawn = |workload| self.spawn(pending::follow(Serves(self.place(cluster, workload))));
        workload.map(|workload| self.serving_certificates().watch(cluster, &workload, spawn)).is_ok()
    }

    /// Returns, by signer, when the oldest undecided request of one of our machines was created.
    pub fn oldest_requests(&self) -> [(&'static str, Option<Timestamp>); 2] {
        [(Joins::NAME, self.certificates().oldest()), (Serves::NAME, self.serving_certificates().oldest())]
    }

    /// Watches these kinds of the cluster from now on: a change triggers a pass of the WindowsCluster.
    pub fn watch_linux_side(&self, cluster: &ClusterRef, workload: &Workload, what: &LinuxSide) {
        self.linux_sides().watch(self, cluster, workload, what);
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
