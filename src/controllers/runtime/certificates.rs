//! Approves the certificate requests of our machines, and notices when their certificate is issued. One watch per workload cluster,
//! while a machine of it may still join. The rule is [`crate::lifecycle::bootstrap_config::csr`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::watch_task::WatchTask;
use super::workload_clusters::{WatchContext, WorkloadClusters};
use crate::api::bootstrap_config::{JOIN_SIGNER, WindowsBootstrapConfig};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::Reason;
use crate::cluster::csr;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::lifecycle::bootstrap_config::csr::{Expected, Key, Verdict, claimed_node, is_approved, is_decided, judge, key_of, token_of};
use crate::lifecycle::bootstrap_config::token_id;

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
    /// The key that was approved, by token id.
    keys: HashMap<String, Key>,
    /// By token id, the request whose approval was asked for and may have no answer yet, and its key: no other one is approved meanwhile.
    claims: HashMap<String, (String, Key)>,
    /// By name, requests that another approver took: the node whose name each is for, and who made it.
    taken: HashMap<String, (String, String)>,
}

impl ClusterRequests {
    /// Adds what is known of the machine's token and name.
    fn complete(&self, expected: Expected) -> Expected {
        let taken_by = self.taken.values().find(|(node, _)| *node == expected.host_name).map(|(_, who)| who.clone());
        let claimed = || self.claims.get(&expected.token_id).map(|(_, key)| key);
        let approved_key = self.keys.get(&expected.token_id).or_else(claimed).cloned();
        Expected { approved_key, taken_by, ..expected }
    }

    /// Of two keys for one token that are judged at the same time, only the first is approved.
    fn judge(&mut self, request: &CertificateSigningRequest, expected: Expected, node: Option<&Node>) -> Verdict {
        let expected = self.complete(expected);
        let verdict = judge(request, &expected, node);
        if verdict == Verdict::Approve
            && let Some(key) = key_of(request)
        {
            self.claims.entry(expected.token_id).or_insert_with(|| (request.name_any(), key));
        }
        verdict
    }

    /// These are all requests that there are: some of before may be gone.
    fn forget_all_but(&mut self, listed: &[CertificateSigningRequest]) {
        self.taken.clear();
        self.claims.retain(|_, (of, _)| listed.iter().any(|request| request.name_any() == *of));
    }

    fn knows(&self, name: &str) -> bool {
        self.requests.values().any(|names| names.contains(name))
    }

    /// The request is gone. What was issued for it is not.
    fn forget(&mut self, name: &str) {
        self.refused.remove(name);
        self.taken.remove(name);
        self.claims.retain(|_, (of, _)| of != name);
        self.requests.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
    }
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
            known.keys.remove(token);
            known.claims.remove(token);
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
    let mut events = std::pin::pin!(csr::events(&workload, JOIN_SIGNER));
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    // They end with this task.
    let mut handled = JoinSet::new();
    let mut begun = Vec::new();
    while let Some(next) = events.next().await {
        while handled.try_join_next().is_some() {}
        let requests = match next {
            Ok(Event::Init) => {
                begun.clear();
                continue;
            }
            Ok(Event::InitApply(request)) => {
                begun.push(request);
                continue;
            }
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut begun);
                // All of them are handled anew.
                handled.abort_all();
                clusters.certificates().note(&cluster, |known| known.forget_all_but(&listed));
                listed
            }
            Ok(Event::Apply(request)) => vec![request],
            Ok(Event::Delete(request)) => {
                clusters.certificates().note(&cluster, |known| known.forget(&request.name_any()));
                continue;
            }
            Err(error) => {
                failed(&clusters, &cluster, &error).await;
                continue;
            }
        };
        for requests in learn_all(&clusters, &cluster, requests) {
            handled.spawn(handle_in_order(clusters.clone(), cluster.clone(), workload.clone(), requests, turns.clone()));
        }
    }
}

/// What was approved before, for which key and for whom, is known before any of them is judged. Those with the same token come together,
/// the oldest first: it says which key is the machine's.
fn learn_all(clusters: &WorkloadClusters, cluster: &ClusterRef, mut requests: Vec<CertificateSigningRequest>) -> Vec<Vec<CertificateSigningRequest>> {
    requests.sort_by_key(|request| (token_of(request), request.creation_timestamp()));
    for request in &requests {
        learn(clusters, cluster, request);
    }
    requests.chunk_by(|one, next| token_of(one) == token_of(next)).map(<[_]>::to_vec).collect()
}

/// Remembers what a request says about tokens and names.
fn learn(clusters: &WorkloadClusters, cluster: &ClusterRef, request: &CertificateSigningRequest) {
    let context = clusters.context();
    let (name, now) = (request.name_any(), context.management.now());
    let Some((token, config)) = token_of(request).and_then(|token| Some((token.clone(), config_of(context, cluster, &token)?))) else {
        if is_approved(request)
            && !csr::is_approved_here(request)
            && let Some(node) = claimed_node(request)
        {
            let who = request.spec.username.clone().unwrap_or_default();
            clusters.certificates().note(cluster, |known| known.taken.insert(name, (node, who)));
        }
        return;
    };
    let issued = request.status.as_ref().is_some_and(|s| s.certificate.is_some());
    let is_news = clusters.certificates().note(cluster, |known| {
        known.requests.entry(token.clone()).or_default().insert(name.clone());
        if is_approved(request)
            && let Some(key) = key_of(request)
        {
            known.keys.entry(token.clone()).or_insert(key);
        } else if is_decided(request) {
            known.claims.retain(|_, (of, _)| *of != name);
        }
        let first = issued && !known.issued.contains_key(&token);
        if first {
            known.issued.insert(token.clone(), now);
        }
        first
    });
    if is_news {
        context.requests.config(&config);
    }
}

async fn handle_in_order(
    clusters: WorkloadClusters,
    cluster: ClusterRef,
    workload: Workload,
    requests: Vec<CertificateSigningRequest>,
    turns: Arc<Semaphore>,
) {
    for request in requests {
        handle_until_done(&clusters, &cluster, &workload, request, &turns).await;
    }
}

/// What has become of a request.
#[derive(Debug)]
pub(super) enum Handled {
    Done,
    /// Whose node it is, is not known yet, e.g. because the Nodes of the cluster are still being listed, or its machine is a copy of another one.
    Unseen,
}

/// Handles a request, again after a failure or when it comes too early: the watch does not show it a second time.
async fn handle_until_done(
    clusters: &WorkloadClusters,
    cluster: &ClusterRef,
    workload: &Workload,
    mut request: CertificateSigningRequest,
    turns: &Semaphore,
) {
    let mut wait = Duration::from_secs(1);
    loop {
        let turn = turns.acquire().await;
        let done = handle(clusters, cluster, workload, &request).await;
        drop(turn);
        match &done {
            Ok(Handled::Done) => return,
            Ok(Handled::Unseen) => {}
            Err(error) => failed(clusters, cluster, error).await,
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        if done.is_ok() {
            // That costs no request, so it goes on until the request or its token is gone.
            if clusters.certificates().note(cluster, |known| known.knows(&request.name_any())) {
                continue;
            }
            return;
        }
        // Without an answer it is tried as it was: if it has changed, that is a conflict.
        let Ok(all) = csr::list(workload).await else { continue };
        match all.into_iter().find(|now| now.metadata.uid == request.metadata.uid) {
            Some(now) => request = now,
            None => return clusters.certificates().note(cluster, |known| known.forget(&request.name_any())),
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
) -> Result<Handled, WorkloadError> {
    let context = clusters.context();
    let Some((token, config)) = token_of(request).and_then(|token| Some((token.clone(), config_of(context, cluster, &token)?))) else {
        watch_name(clusters, cluster, request).await;
        return Ok(Handled::Done);
    };
    if is_decided(request) {
        return Ok(Handled::Done);
    }
    let Some(expected) = expected(context, &config, token.clone()) else { return Ok(Handled::Unseen) };
    let (host_name, node) = (expected.host_name.clone(), workload.node(&expected.host_name).await?);
    match clusters.certificates().note(cluster, |known| known.judge(request, expected, node.as_ref())) {
        Verdict::Approve => {
            let message = format!("token, group, name and usages are those of WindowsBootstrapConfig {}/{}", cluster.namespace, config.name_any());
            let is_approved = csr::approve(workload, request, csr::APPROVED_REASON, &message, context.management.now()).await?;
            clusters.certificates().note(cluster, |known| match key_of(request).filter(|_| is_approved) {
                Some(key) => drop(known.keys.entry(token).or_insert(key)),
                None => known.forget(&request.name_any()),
            });
            tracing::info!(namespace = cluster.namespace, %cluster, request = request.name_any(), node = host_name, "certificate request approved");
        }
        Verdict::Ignore => {}
        Verdict::Refuse(why) => refuse(clusters, cluster, &config, request, &why).await,
    }
    Ok(Handled::Done)
}

/// Tells of a request for the name of one of our machines that was not made with its token, also if another approver took it.
async fn watch_name(clusters: &WorkloadClusters, cluster: &ClusterRef, request: &CertificateSigningRequest) {
    let Some(node) = claimed_node(request).filter(|_| !csr::is_approved_here(request)) else { return };
    let context = clusters.context();
    let is_of_cluster = |config: &Arc<WindowsBootstrapConfig>| ClusterRef::of(&config.metadata).as_ref() == Some(cluster);
    let mut configs = context.caches.configs.all(&cluster.namespace).into_iter().filter(is_of_cluster);
    let is_its_name = |config: &Arc<WindowsBootstrapConfig>| expected(context, config, token_id(config)).is_some_and(|e| e.host_name == node);
    let Some(config) = configs.find(is_its_name) else { return };
    let who = request.spec.username.as_deref().unwrap_or_default();
    let then = if is_approved(request) { ", and another approver took it" } else { "" };
    refuse(clusters, cluster, &config, request, &format!("it asks for the name of this machine, {node}, as {who:?}, which is not its token{then}"))
        .await;
}

/// Told once.
async fn refuse(clusters: &WorkloadClusters, cluster: &ClusterRef, config: &WindowsBootstrapConfig, request: &CertificateSigningRequest, why: &str) {
    if clusters.certificates().note(cluster, |known| known.refused.insert(request.name_any())) {
        let note = format!("certificate request {} was left alone: {why}", request.name_any());
        tracing::warn!(namespace = cluster.namespace, %cluster, "{note}");
        clusters.context().management.events.warning(config, Reason::CertificateRequestRefused, "Approve", &note).await;
    }
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
        return Some(Expected { token_id, host_name: request.name.clone(), provider_id: None, approved_key: None, taken_by: None });
    }
    let machine = context.caches.windows_machines.get(&config.namespace().unwrap_or_default(), &request.infrastructure.name)?;
    let node = context.caches.node_of(&machine)?;
    let provider_id = Some(node.provider_id.to_string());
    Some(Expected { token_id, host_name: node.name.to_string(), provider_id, approved_key: None, taken_by: None })
}

#[cfg(test)]
mod tests;
