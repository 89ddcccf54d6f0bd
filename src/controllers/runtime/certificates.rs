//! Approves the certificate requests of our machines, and notices when their certificate is issued. One watch per workload cluster,
//! while a machine of it may still join. The rule is [`crate::lifecycle::bootstrap_config::csr`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::watch_task::WatchTask;
use super::workload_clusters::{WatchContext, WorkloadClusters};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::Reason;
use crate::cluster::csr;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::lifecycle::bootstrap_config::csr::{Expected, Verdict, is_decided, judge, token_of};
use crate::lifecycle::bootstrap_config::token_id;
use crate::lifecycle::identity::{future_provider_id, host_name};

/// Requests of one workload cluster that are handled at the same time.
const AT_ONCE: usize = 8;
/// Between two tries to handle a request.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What was seen in each workload cluster.
#[derive(Default)]
pub struct Certificates {
    clusters: Mutex<HashMap<ClusterRef, ClusterRequests>>,
}

#[derive(Default)]
struct ClusterRequests {
    watch: WatchTask,
    /// Ids of tokens for which a certificate was issued, and when that was seen.
    issued: HashMap<String, Timestamp>,
    /// Names of requests, by token id.
    requests: HashMap<String, HashSet<String>>,
    /// Requests that were refused, so that each is reported once.
    refused: HashSet<String>,
}

impl Certificates {
    /// Since when a certificate is known to be issued for the token of this object.
    pub fn issued(&self, object: &WindowsBootstrapConfig) -> Option<Timestamp> {
        let cluster = ClusterRef::of(&object.metadata)?;
        self.lock().get(&cluster)?.issued.get(&token_id(object)).copied()
    }

    /// Names of the requests that were made with a token.
    pub fn requests_of(&self, cluster: &ClusterRef, token: &str) -> Vec<String> {
        let all = self.lock();
        let requests = all.get(cluster).and_then(|known| known.requests.get(token));
        requests.into_iter().flatten().cloned().collect()
    }

    /// Forgets everything about a token whose machine is gone.
    pub fn forget_token(&self, cluster: &ClusterRef, token: &str) {
        if let Some(known) = self.lock().get_mut(cluster) {
            known.issued.remove(token);
            for request in known.requests.remove(token).into_iter().flatten() {
                known.refused.remove(&request);
            }
        }
    }

    pub(super) fn is_watching(&self, cluster: &ClusterRef) -> bool {
        self.lock().get(cluster).is_some_and(|known| known.watch.is_running())
    }

    /// Watches a cluster unless it is watched with this kubeconfig.
    pub(super) fn watch(&self, cluster: &ClusterRef, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        self.lock().entry(cluster.clone()).or_default().watch.start(workload, spawn);
    }

    pub(super) fn forget(&self, cluster: &ClusterRef) {
        self.lock().remove(cluster);
    }

    fn note<T>(&self, cluster: &ClusterRef, change: impl FnOnce(&mut ClusterRequests) -> T) -> T {
        change(self.lock().entry(cluster.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterRef, ClusterRequests>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the requests of one workload cluster until the task is aborted.
pub(super) async fn follow(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload) {
    let mut requests = std::pin::pin!(csr::requests(&workload));
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    // They end with this task.
    let mut handled = JoinSet::new();
    while let Some(next) = requests.next().await {
        while handled.try_join_next().is_some() {}
        match next {
            Ok(request) => {
                handled.spawn(handle_until_done(clusters.clone(), cluster.clone(), workload.clone(), request, turns.clone()));
            }
            Err(error) => failed(&clusters, &cluster, &error).await,
        }
    }
}

/// Handles a request, again after a failure: the watch does not show it a second time.
async fn handle_until_done(
    clusters: WorkloadClusters,
    cluster: ClusterRef,
    workload: Workload,
    mut request: CertificateSigningRequest,
    turns: Arc<Semaphore>,
) {
    let mut wait = Duration::from_secs(1);
    loop {
        let turn = turns.acquire().await;
        let done = handle(&clusters, &cluster, &workload, &request).await;
        drop(turn);
        let Err(error) = done else { return };
        failed(&clusters, &cluster, &error).await;
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        // Without an answer it is tried as it was: if it has changed, that is a conflict.
        let Ok(all) = csr::list(&workload).await else { continue };
        match all.into_iter().find(|now| now.metadata.uid == request.metadata.uid) {
            Some(now) => request = now,
            None => return,
        }
    }
}

async fn failed(clusters: &WorkloadClusters, cluster: &ClusterRef, error: &WorkloadError) {
    tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "certificate requests: {error}");
    clusters.doubt(cluster, error).await;
}

async fn handle(
    clusters: &WorkloadClusters,
    cluster: &ClusterRef,
    workload: &Workload,
    request: &CertificateSigningRequest,
) -> Result<(), WorkloadError> {
    let context = clusters.context();
    let Some(token) = token_of(request) else { return Ok(()) };
    let Some(config) = config_of(context, cluster, &token) else { return Ok(()) };
    let now = context.management.now();
    let issued = request.status.as_ref().is_some_and(|s| s.certificate.is_some());
    let is_news = clusters.certificates().note(cluster, |known| {
        known.requests.entry(token.clone()).or_default().insert(request.name_any());
        let first = issued && !known.issued.contains_key(&token);
        if first {
            known.issued.insert(token.clone(), now);
        }
        first
    });
    if is_news {
        context.requests.config(&config);
    }
    if issued || is_decided(request) {
        return Ok(());
    }
    let Some(expected) = expected(context, &config, token) else { return Ok(()) };
    let node = workload.node(&expected.host_name).await?;
    match judge(request, &expected, node.as_ref()) {
        Verdict::Approve => {
            let message = format!("token, group, name and usages are those of WindowsBootstrapConfig {}/{}", cluster.namespace, config.name_any());
            csr::approve(workload, request, &message, context.management.now()).await?;
            tracing::info!(namespace = cluster.namespace, %cluster, request = request.name_any(), node = expected.host_name, "certificate request approved");
        }
        Verdict::Ignore => {}
        Verdict::Refuse(why) => {
            if clusters.certificates().note(cluster, |known| known.refused.insert(request.name_any())) {
                let note = format!("certificate request {} was left alone: {why}", request.name_any());
                tracing::warn!(namespace = cluster.namespace, %cluster, "{note}");
                context.management.events.warning(&*config, Reason::CertificateRequestRefused, "Approve", &note).await;
            }
        }
    }
    Ok(())
}

/// The configuration that the token was made for.
fn config_of(context: &WatchContext, cluster: &ClusterRef, token: &str) -> Option<Arc<WindowsBootstrapConfig>> {
    let is_of_cluster = |c: &WindowsBootstrapConfig| ClusterRef::of(&c.metadata).as_ref() == Some(cluster);
    context.caches.configs.all(&cluster.namespace).into_iter().find(|c| token_id(c) == token && is_of_cluster(c))
}

/// What a request with that token must look like: the name comes from the machine, never from the request.
fn expected(context: &WatchContext, config: &WindowsBootstrapConfig, token_id: String) -> Option<Expected> {
    let owner = context.owners.of_config(config);
    let request = owner.request()?;
    if !request.is_for_windows_machine() {
        return Some(Expected { token_id, host_name: request.name.clone(), provider_id: None });
    }
    let machine = context.caches.windows_machines.get(&config.namespace().unwrap_or_default(), &request.infrastructure.name)?;
    let host_name = host_name(&machine).ok()?.to_string();
    Some(Expected { token_id, host_name, provider_id: future_provider_id(&machine).map(|id| id.to_string()) })
}

#[cfg(test)]
mod tests;
