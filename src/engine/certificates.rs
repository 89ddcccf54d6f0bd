//! Approves the certificate requests of our machines, and notices when a certificate is issued. There is one watch per workload cluster, while one
//! of its machines may still join. The rule is [`crate::kinds::bootstrap_config::decide::csr`].

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;

use super::certificate_requests::{Certificates, ClusterRequests};
use super::pending::{self, Handled, Place, Shown, Signer};
use super::workload_clusters::{WatchContext, WorkloadClusters};
use crate::api::bootstrap_config::{JOIN_SIGNER, WindowsBootstrapConfig};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{self, ConditionType, Reason};
use crate::kinds::bootstrap_config::decide::csr::{Expected, Verdict, claimed_node, is_approved, is_decided, token_of};
use crate::kinds::bootstrap_config::decide::step::token_id;
use crate::kube_api::csr;
use crate::kube_api::workload::{Workload, WorkloadError};

impl WorkloadClusters {
    /// Watches the certificate requests of a cluster whose machines are about to join.
    pub fn watch_certificates(&self, cluster: &ClusterRef, workload: &Workload) {
        let spawn = |workload| self.spawn(pending::follow(Joins(Place::new(self, cluster, workload))));
        self.certificates().watch(cluster, workload, spawn);
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
    let is_news = clusters.certificates().note(cluster, |known| known.learn(request, &token, now));
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
            clusters.certificates().note(cluster, |known| known.settle(request, token, is_approved));
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
