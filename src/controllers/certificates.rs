//! Approves the certificate requests of our machines, and notices when their certificate is issued. One watch per workload cluster,
//! while a machine of it may still join. The rule is [`lifecycle::csr`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;

use super::Context;
use super::follower::Follower;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::condition::{self, ConditionType, Reason};
use crate::api::pool::cluster_of;
use crate::cluster::csr;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::lifecycle::bootstrap::token_id;
use crate::lifecycle::csr::{Expected, Verdict, is_decided, judge, token_of};
use crate::lifecycle::machine::{future_provider_id, host_name};

/// Namespace and name of a Cluster, or what objects of a pool that stands alone join.
type ClusterKey = (String, String);

/// What was seen in each workload cluster.
#[derive(Default)]
pub struct Certificates {
    clusters: Mutex<HashMap<ClusterKey, Seen>>,
}

#[derive(Default)]
struct Seen {
    watch: Follower,
    /// Ids of tokens for which a certificate was issued, and when that was seen.
    issued: HashMap<String, Timestamp>,
    /// Names of requests, by token id.
    requests: HashMap<String, HashSet<String>>,
    /// Requests that were refused, so that each is told of once.
    refused: HashSet<String>,
}

impl Certificates {
    /// Since when a certificate is known to be issued for the token of this object.
    pub fn issued(&self, namespace: &str, object: &WindowsBootstrapConfig) -> Option<Timestamp> {
        let cluster = cluster_of(&object.metadata)?;
        self.lock().get(&(namespace.to_owned(), cluster.to_owned()))?.issued.get(&token_id(object)).copied()
    }

    /// Names of the requests that were made with a token.
    pub fn requests_of(&self, namespace: &str, cluster: &str, token: &str) -> Vec<String> {
        let all = self.lock();
        let seen = all.get(&(namespace.to_owned(), cluster.to_owned()));
        seen.and_then(|s| s.requests.get(token)).into_iter().flatten().cloned().collect()
    }

    /// Watches the cluster of an object whose machine may still join, or whose requests are not cleaned up yet.
    pub async fn watch_if_needed(&self, ctx: &Context, namespace: &str, cluster: &str, object: &WindowsBootstrapConfig) {
        let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let alive = condition::find(conditions, ConditionType::JoinCredentialValid).is_some_and(|c| c.reason == Reason::TokenValid);
        if !alive || self.is_watching(namespace, cluster) {
            return;
        }
        match ctx.workload(namespace, cluster).await {
            Ok(workload) => self.watch(ctx, namespace, cluster, &workload),
            Err(error) => tracing::debug!(namespace, cluster, %error, "certificate requests are not watched yet"),
        }
    }

    fn is_watching(&self, namespace: &str, cluster: &str) -> bool {
        self.lock().get(&(namespace.to_owned(), cluster.to_owned())).is_some_and(|seen| seen.watch.is_running())
    }

    /// Starts the watch of a workload cluster unless it runs with this very kubeconfig.
    pub fn watch(&self, ctx: &Context, namespace: &str, cluster: &str, workload: &Workload) {
        let key = (namespace.to_owned(), cluster.to_owned());
        let spawn = |workload| ctx.spawn(follow(ctx.clone(), key.clone(), workload));
        self.lock().entry(key.clone()).or_default().watch.start(workload, spawn);
    }

    /// Ends the watch of a Cluster that is gone.
    pub fn forget(&self, namespace: &str, cluster: &str) {
        self.lock().remove(&(namespace.to_owned(), cluster.to_owned()));
    }

    fn note<T>(&self, key: &ClusterKey, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(self.lock().entry(key.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Seen>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the requests of one workload cluster until the task is aborted.
async fn follow(ctx: Context, key: ClusterKey, workload: Workload) {
    let mut requests = std::pin::pin!(csr::requests(&workload));
    while let Some(next) = requests.next().await {
        let handled = match next {
            Ok(request) => handle(&ctx, &key, &workload, &request).await,
            Err(error) => Err(error),
        };
        if let Err(error) = handled {
            tracing::warn!(namespace = key.0, cluster = key.1, error = error.label(), "certificate requests: {error}");
            ctx.workloads.doubt(&key.0, &key.1, &error).await;
        }
    }
}

async fn handle(ctx: &Context, key: &ClusterKey, workload: &Workload, request: &CertificateSigningRequest) -> Result<(), WorkloadError> {
    let Some(token) = token_of(request) else { return Ok(()) };
    let Some(config) = config_of(ctx, key, &token) else { return Ok(()) };
    let issued = request.status.as_ref().is_some_and(|s| s.certificate.is_some());
    let news = ctx.certificates.note(key, |seen| {
        seen.requests.entry(token.clone()).or_default().insert(request.name_any());
        let first = issued && !seen.issued.contains_key(&token);
        if first {
            seen.issued.insert(token.clone(), ctx.now());
        }
        first
    });
    if news {
        ctx.wake.config(&config);
    }
    if issued || is_decided(request) {
        return Ok(());
    }
    let Some(expected) = expected(ctx, key, &config, token) else { return Ok(()) };
    let node = workload.node(&expected.host_name).await?;
    match judge(request, &expected, node.as_ref()) {
        Verdict::Approve => {
            let message = format!("token, group, name and usages are those of {} {}/{}", "WindowsBootstrapConfig", key.0, config.name_any());
            csr::approve(workload, request, &message, ctx.now()).await?;
            tracing::info!(
                namespace = key.0,
                cluster = key.1,
                request = request.name_any(),
                node = expected.host_name,
                "certificate request approved"
            );
        }
        Verdict::Ignore => {}
        Verdict::Refuse(why) => {
            if ctx.certificates.note(key, |seen| seen.refused.insert(request.name_any())) {
                let note = format!("certificate request {} was left alone: {why}", request.name_any());
                tracing::warn!(namespace = key.0, cluster = key.1, "{note}");
                ctx.events.warning(&*config, Reason::CertificateRequestRefused, "Approve", &note).await;
            }
        }
    }
    Ok(())
}

/// The configuration whose token it is.
fn config_of(ctx: &Context, key: &ClusterKey, token: &str) -> Option<Arc<WindowsBootstrapConfig>> {
    let of_cluster = |c: &WindowsBootstrapConfig| cluster_of(&c.metadata) == Some(&key.1);
    ctx.stores.configs.all(&key.0).into_iter().find(|c| of_cluster(c) && token_id(c) == token)
}

/// What a request with that token must look like: the name comes from the machine, never from the request.
fn expected(ctx: &Context, key: &ClusterKey, config: &WindowsBootstrapConfig, token_id: String) -> Option<Expected> {
    let claim = ctx.claim_of_config(config);
    let machine = claim.machine()?;
    if machine.spec.infrastructure_ref.kind != "WindowsMachine" {
        return Some(Expected { token_id, host_name: machine.name_any(), provider_id: None });
    }
    let ours = ctx.stores.windows_machines.get(&key.0, &machine.spec.infrastructure_ref.name)?;
    let host_name = host_name(&ours).ok()?.to_string();
    Some(Expected { token_id, host_name, provider_id: future_provider_id(&ours).map(|id| id.to_string()) })
}
