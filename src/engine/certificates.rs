//! Approves the certificate requests of our machines, and notices when a certificate is issued. There is one watch per workload cluster, while one
//! of its machines may still join. The rule is [`crate::kinds::bootstrap_config::decide::csr`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::followed::Followed;
use super::pending::{Handled, Place, Shown, Signer};
use super::workload_clusters::{WatchContext, WorkloadClusters};
use crate::api::bootstrap_config::{JOIN_SIGNER, WindowsBootstrapConfig};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::Reason;
use crate::kinds::bootstrap_config::decide::csr::{Expected, Key, Verdict, claimed_node, is_approved, is_decided, judge, key_of, token_of};
use crate::kinds::bootstrap_config::decide::step::token_id;
use crate::kube_api::csr;
use crate::kube_api::workload::WorkloadError;

/// The certificate requests of joining nodes, by workload cluster.
pub type Certificates = Followed<ClusterRequests>;

#[derive(Default)]
pub struct ClusterRequests {
    /// The ids of tokens for which a certificate was issued, and when that was observed.
    issued: HashMap<String, Timestamp>,
    /// The names of requests, by token id.
    requests: HashMap<String, HashSet<String>>,
    /// The refused requests, so that each is reported once.
    refused: HashSet<String>,
    /// The approved key, by token id.
    keys: HashMap<String, Key>,
    /// By token id, the request whose approval was sent and may have no answer yet, and its key. Until then no other request of the token is
    /// approved.
    claims: HashMap<String, (String, Key)>,
    /// By name, requests that another approver approved: the node whose name each is for, and its requester.
    taken: HashMap<String, (String, String)>,
}

impl ClusterRequests {
    /// Adds the known facts about the machine's token and name.
    fn complete(&self, expected: Expected) -> Expected {
        let taken_by = self.taken.values().find(|(node, _)| *node == expected.host_name).map(|(_, who)| who.clone());
        let claimed = || self.claims.get(&expected.token_id).map(|(_, key)| key);
        let approved_key = self.keys.get(&expected.token_id).or_else(claimed).cloned();
        Expected { approved_key, taken_by, ..expected }
    }

    /// Judges a request. Of two keys for one token that are judged at the same time, only the first is approved.
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

    /// Forgets the requests that a complete listing does not contain.
    fn forget_all_but(&mut self, listed: &[CertificateSigningRequest]) {
        self.taken.clear();
        self.claims.retain(|_, (of, _)| listed.iter().any(|request| request.name_any() == *of));
    }

    /// Forgets a deleted request, but not the certificate that was issued for it.
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
    /// Returns when a certificate for the token of this object was first observed.
    pub fn issued(&self, object: &WindowsBootstrapConfig) -> Option<Timestamp> {
        let cluster = ClusterRef::of_config(object)?;
        self.known(&cluster, |known| known.issued.get(&token_id(object)).copied())?
    }

    /// Returns the names of the requests that used a token.
    pub fn requests_of(&self, cluster: &ClusterRef, token: &str) -> Vec<String> {
        let requests = self.known(cluster, |known| known.requests.get(token).cloned());
        requests.flatten().into_iter().flatten().collect()
    }

    /// Forgets everything about a token whose machine was deleted.
    pub fn forget_token(&self, cluster: &ClusterRef, token: &str) {
        self.known(cluster, |known| {
            known.issued.remove(token);
            known.keys.remove(token);
            known.claims.remove(token);
            for request in known.requests.remove(token).into_iter().flatten() {
                known.refused.remove(&request);
            }
        });
    }
}

/// The certificate requests of joining nodes of one workload cluster.
#[derive(Clone)]
pub(super) struct Joins(pub Place);

impl Signer for Joins {
    const NAME: &'static str = JOIN_SIGNER;
    const WHAT: &'static str = "certificate requests";
    type Known = ClusterRequests;

    fn followed(&self) -> &Certificates {
        self.0.clusters.certificates()
    }

    fn place(&self) -> &Place {
        &self.0
    }

    fn learn(&self, shown: Shown) {
        let Place { clusters, cluster, .. } = &self.0;
        match shown {
            Shown::Nothing => {}
            Shown::All(listed) => {
                clusters.certificates().note(cluster, |known| known.forget_all_but(&listed));
                learn_all(clusters, cluster, listed);
            }
            Shown::One(request) => learn(clusters, cluster, &request),
            Shown::Gone(request) => clusters.certificates().note(cluster, |known| known.forget(&request.name_any())),
        }
    }

    async fn handle(&self, request: &CertificateSigningRequest) -> Result<Handled, WorkloadError> {
        handle(&self.0, request).await
    }
}

/// Learns earlier approvals, with their keys and requesters. The oldest comes first, because it decides which key is the machine's.
fn learn_all(clusters: &WorkloadClusters, cluster: &ClusterRef, mut requests: Vec<CertificateSigningRequest>) {
    requests.sort_by_key(ResourceExt::creation_timestamp);
    for request in &requests {
        learn(clusters, cluster, request);
    }
}

/// Stores what a request reveals about tokens and names.
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

async fn handle(place: &Place, request: &CertificateSigningRequest) -> Result<Handled, WorkloadError> {
    let Place { clusters, cluster, workload } = place;
    let context = clusters.context();
    let known = token_of(request).and_then(|token| Some((token.clone(), config_of(context, cluster, &token)?)));
    if is_decided(request) {
        if known.is_none() {
            watch_name(clusters, cluster, request).await;
        }
        return Ok(Handled::Done);
    }
    let Some((token, config)) = known else { return Ok(watch_name(clusters, cluster, request).await) };
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
            Ok(Handled::Done)
        }
        Verdict::Ignore => Ok(Handled::Foreign),
        Verdict::Refuse(why) => Ok(refuse(clusters, cluster, &config, request, &why).await),
    }
}

/// Reports a request for the name of one of our machines that does not use its token, even if another approver approved it.
async fn watch_name(clusters: &WorkloadClusters, cluster: &ClusterRef, request: &CertificateSigningRequest) -> Handled {
    let Some(node) = claimed_node(request).filter(|_| !csr::is_approved_here(request)) else { return Handled::Foreign };
    let context = clusters.context();
    let is_of_cluster = |config: &Arc<WindowsBootstrapConfig>| ClusterRef::of_config(config).as_ref() == Some(cluster);
    let mut configs = context.caches.configs.all(&cluster.namespace).into_iter().filter(is_of_cluster);
    let is_its_name = |config: &Arc<WindowsBootstrapConfig>| expected(context, config, token_id(config)).is_some_and(|e| e.host_name == node);
    let Some(config) = configs.find(is_its_name) else { return Handled::Foreign };
    let who = request.spec.username.as_deref().unwrap_or_default();
    let then = if is_approved(request) { ", and another approver took it" } else { "" };
    let why = format!("it asks for the name of this machine, {node}, as {who:?}, which is not its token{then}");
    refuse(clusters, cluster, &config, request, &why).await
}

/// Reports a refused request once. It is judged again later, because the obstacle may disappear.
async fn refuse(
    clusters: &WorkloadClusters,
    cluster: &ClusterRef,
    config: &WindowsBootstrapConfig,
    request: &CertificateSigningRequest,
    why: &str,
) -> Handled {
    if clusters.certificates().note(cluster, |known| known.refused.insert(request.name_any())) {
        let note = format!("certificate request {} was left alone: {why}", request.name_any());
        tracing::warn!(namespace = cluster.namespace, %cluster, "{note}");
        clusters.context().management.events.warning(config, Reason::CertificateRequestRefused, "Approve", &note).await;
    }
    Handled::Refused
}

/// Returns the configuration that owns the token.
fn config_of(context: &WatchContext, cluster: &ClusterRef, token: &str) -> Option<Arc<WindowsBootstrapConfig>> {
    let is_of_cluster = |c: &WindowsBootstrapConfig| ClusterRef::of_config(c).as_ref() == Some(cluster);
    context.caches.configs.all(&cluster.namespace).into_iter().find(|c| token_id(c) == token && is_of_cluster(c))
}

/// Returns what a request with that token must contain. The name comes from the machine, never from the request.
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
