//! Clients for workload clusters ([`ClusterRef`]), made from the Secret with the kubeconfig and kept while it does not change.
//!
//! A kubeconfig is input from outside: one that would make us run a program or read a local file is refused.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::gate::Gate;
use super::{ApiError, Cluster, Retry, in_cluster, request};
use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};

/// The Secret is looked at again after that time, or when a call with its client fails.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same when it does not answer.
const LOOK_AGAIN_IN_DOUBT: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Why a workload cluster cannot be used. Texts are for conditions: what is wrong, where, and what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WorkloadError {
    #[error("Secret {secret} does not exist or has no key {key}: it must hold the kubeconfig of the workload cluster")]
    KubeconfigMissing { secret: String, key: String },
    #[error("{source_name} is not a usable kubeconfig: {why}")]
    KubeconfigInvalid { source_name: String, why: String },
    #[error("the API server of the workload cluster, {endpoint}, does not answer: {cause}; {}", remedy(cause))]
    Unreachable { endpoint: String, cause: String },
    #[error("the API server of the workload cluster, {endpoint}, does not accept the credentials of the kubeconfig: renew them in the Secret")]
    Unauthorized { endpoint: String },
    #[error("the credentials of the kubeconfig may not do this in the workload cluster: {what}")]
    Forbidden { what: String },
    /// An object of that name exists there that is not ours; it is left alone.
    #[error("{what}")]
    Foreign { what: String },
    /// Any other answer of the workload cluster.
    #[error("{0}")]
    Api(ApiError),
    /// The management cluster did not hand over the kubeconfig.
    #[error("{0}")]
    Management(ApiError),
}

/// What to do about a connection that fails.
fn remedy(cause: &str) -> &'static str {
    if cause.contains("certificate") {
        "give the cluster's own CA in certificate-authority-data of the kubeconfig, and a server that its certificate names"
    } else {
        "correct the server in the kubeconfig, or the network between this program and it"
    }
}

impl WorkloadError {
    /// A label for metrics: few, fixed values.
    pub fn label(&self) -> &'static str {
        match self {
            Self::KubeconfigMissing { .. } => "kubeconfig_missing",
            Self::KubeconfigInvalid { .. } => "kubeconfig_invalid",
            Self::Unreachable { .. } => "workload_unreachable",
            Self::Unauthorized { .. } => "workload_unauthorized",
            Self::Forbidden { .. } => "workload_forbidden",
            Self::Foreign { .. } => "workload_foreign",
            Self::Api(error) | Self::Management(error) => error.label(),
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Api(error) | Self::Management(error) => error.retry(),
            // All of these are cured outside, without a change that we watch.
            _ => Retry::Backoff,
        }
    }
}

/// A usable workload cluster.
#[derive(Clone)]
pub struct Workload {
    pub client: Client,
    /// The CA of the API server, PEM; `None` when the kubeconfig trusts the system's.
    pub ca_pem: Option<String>,
    /// Where the API server answers, e.g. `https://10.0.0.1:6443`.
    pub server: String,
    /// SHA-256 of the kubeconfig, hexadecimal.
    pub fingerprint: String,
    /// Of all requests to it, but watches.
    pub gate: Gate,
}

/// One right to ask for. Empty texts mean core group, no subresource, cluster scope, any name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Right<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl std::fmt::Display for Right<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (before, text) in [("/", self.subresource), (".", self.group), (" ", self.name), (" in namespace ", self.namespace)] {
            if !text.is_empty() {
                write!(f, "{before}{text}")?;
            }
        }
        Ok(())
    }
}

impl Workload {
    /// `source_name` says where the bytes came from in error texts, e.g. `Secret lab/c1-kubeconfig`.
    pub async fn from_kubeconfig(source_name: &str, bytes: &[u8]) -> Result<Self, WorkloadError> {
        Self::connected(source_name, bytes, Client::try_from).await
    }

    async fn connected(source_name: &str, bytes: &[u8], connect: impl Fn(Config) -> kube::Result<Client>) -> Result<Self, WorkloadError> {
        let invalid = |why: String| WorkloadError::KubeconfigInvalid { source_name: source_name.to_owned(), why };
        let kubeconfig = safe(bytes).map_err(invalid)?;
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(|e| invalid(super::error::chain(&e)))?;
        // Set by environment variables that are meant for something else; a kubeconfig that asks for one is refused.
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_LIMIT);
        // The reconcile tries again by itself; hidden repetitions would hold up a stop.
        config.default_retry = false;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let ca_pem = config.root_cert.as_ref().map(|ders| pem(ders));
        let client = connect(config).map_err(|e| invalid(super::error::chain(&e)))?;
        Ok(Self { client, ca_pem, server, fingerprint: HEXLOWER.encode(&Sha256::digest(bytes)), gate: Gate::default() })
    }

    /// Host and port of the API server.
    pub fn endpoint(&self) -> ControlPlaneEndpoint {
        let rest = self.server.trim_start_matches("https://").split('/').next().unwrap_or_default();
        let (host, port) = rest.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))).unwrap_or((rest, 443));
        ControlPlaneEndpoint { host: host.trim_matches(['[', ']']).to_owned(), port }
    }

    /// The error of a call to this cluster, in words that name it.
    pub fn explain(&self, error: ApiError) -> WorkloadError {
        match error {
            ApiError::Unreachable(cause) => WorkloadError::Unreachable { endpoint: self.server.clone(), cause },
            ApiError::Unauthorized(_) => WorkloadError::Unauthorized { endpoint: self.server.clone() },
            ApiError::Forbidden(what) => WorkloadError::Forbidden { what },
            other => WorkloadError::Api(other),
        }
    }

    pub(crate) async fn call<T>(&self, what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, WorkloadError> {
        let answer = self.gate.pass(async {
            request(what, call).await.map_err(|error| match error {
                // The same words for every request: they stand in the conditions of all objects that use this cluster.
                ApiError::Unreachable(text) => ApiError::Unreachable(text.strip_prefix(&format!("{what}: ")).unwrap_or(&text).to_owned()),
                other => other,
            })
        });
        answer.await.map_err(|e| self.explain(e))
    }

    /// The version that the API server reports, e.g. `v1.36.3`.
    pub async fn version(&self) -> Result<String, WorkloadError> {
        Ok(self.call("get /version", self.client.apiserver_version()).await?.git_version)
    }

    /// Those of the rights that the credentials lack. One request for each.
    pub async fn lacks<'a>(&self, rights: &[Right<'a>]) -> Result<Vec<Right<'a>>, WorkloadError> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let text = |t: &str| (!t.is_empty()).then(|| t.to_owned());
        let mut lacking = Vec::new();
        for right in rights {
            let attributes = ResourceAttributes {
                verb: text(right.verb),
                group: text(right.group),
                resource: text(right.resource),
                subresource: text(right.subresource),
                namespace: text(right.namespace),
                name: text(right.name),
                ..Default::default()
            };
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
                ..Default::default()
            };
            let answer = self.call("create selfsubjectaccessreviews", api.create(&PostParams::default(), &review)).await?;
            if !answer.status.is_some_and(|s| s.allowed) {
                lacking.push(*right);
            }
        }
        Ok(lacking)
    }

    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, WorkloadError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        self.call(&format!("get configmaps {namespace}/{name}"), api.get_opt(name)).await
    }
}

/// Makes a client, e.g. one whose requests are counted.
pub type Connect = Arc<dyn Fn(Config) -> kube::Result<Client> + Send + Sync>;

/// The clients in use.
pub struct Workloads {
    cluster: Cluster,
    connect: Connect,
    entries: Mutex<HashMap<ClusterRef, Entry>>,
}

type Entry = Arc<Mutex<Option<Connection>>>;

struct Connection {
    workload: Arc<Workload>,
    looked: Instant,
    doubtful: bool,
}

impl Workloads {
    pub fn new(cluster: Cluster) -> Self {
        Self::connected(cluster, Arc::new(Client::try_from))
    }

    pub fn connected(cluster: Cluster, connect: Connect) -> Self {
        Self { cluster, connect, entries: Mutex::default() }
    }

    /// A client for a kubeconfig that is not kept here, made as all others are.
    pub async fn open(&self, source_name: &str, bytes: &[u8]) -> Result<Workload, WorkloadError> {
        Workload::connected(source_name, bytes, &*self.connect).await
    }

    async fn entry(&self, cluster: &ClusterRef) -> Entry {
        self.entries.lock().await.entry(cluster.clone()).or_default().clone()
    }

    /// The client for a workload cluster. Reads its Secret at most once a minute, unless [`Workloads::doubt`] was called.
    pub async fn get(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        let entry = self.entry(cluster).await;
        let mut connection = entry.lock().await;
        if let Some(known) = connection.as_ref()
            && !known.doubtful
            && known.looked.elapsed() < LOOK_AGAIN
        {
            return Ok(known.workload.clone());
        }
        let known = connection.as_ref().map(|c| c.workload.clone());
        let namespace = &cluster.namespace;
        let found = match &cluster.source {
            ClusterSource::InCluster => in_cluster::workload(self.cluster.client()).await.map(|found| keep(known, found)),
            ClusterSource::Kubeconfig { secret, key } => self.of_secret(namespace, secret, key, known).await,
            ClusterSource::ClusterApi(name) => self.of_secret(namespace, &format!("{name}-kubeconfig"), "value", known).await,
        };
        let workload = found.inspect_err(|error| {
            // Without a usable kubeconfig the old client must not be used any more; an unreachable management cluster says nothing about it.
            if matches!(error, WorkloadError::KubeconfigMissing { .. } | WorkloadError::KubeconfigInvalid { .. }) {
                *connection = None;
            }
        })?;
        *connection = Some(Connection { workload: workload.clone(), looked: Instant::now(), doubtful: false });
        Ok(workload)
    }

    /// The cluster of a kubeconfig in a Secret; `known` is the one of before.
    async fn of_secret(&self, namespace: &str, secret: &str, key: &str, known: Option<Arc<Workload>>) -> Result<Arc<Workload>, WorkloadError> {
        let bytes = read(&self.cluster, namespace, secret, key).await?;
        match known.filter(|known| known.fingerprint == HEXLOWER.encode(&Sha256::digest(&bytes))) {
            Some(known) => Ok(known),
            None => Ok(Arc::new(self.open(&format!("Secret {namespace}/{secret}"), &bytes).await?)),
        }
    }

    /// To be called with every error of a call with a client from here: after a refused or lost connection the Secret is read again.
    pub async fn doubt(&self, cluster: &ClusterRef, error: &WorkloadError) {
        let least = match error {
            WorkloadError::Unauthorized { .. } => Duration::ZERO,
            // Every object of a cluster that does not answer says so.
            WorkloadError::Unreachable { .. } => LOOK_AGAIN_IN_DOUBT,
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

/// The one that is known, if the other one is the same: its connections are open.
fn keep(known: Option<Arc<Workload>>, found: Workload) -> Arc<Workload> {
    known.filter(|known| known.fingerprint == found.fingerprint).unwrap_or_else(|| Arc::new(found))
}

/// A key of a Secret in the management cluster that holds a kubeconfig.
pub async fn read(cluster: &Cluster, namespace: &str, secret: &str, key: &str) -> Result<Vec<u8>, WorkloadError> {
    let missing = || WorkloadError::KubeconfigMissing { secret: format!("{namespace}/{secret}"), key: key.to_owned() };
    let found: Secret = cluster.get(namespace, secret).await.map_err(WorkloadError::Management)?.ok_or_else(missing)?;
    let data = found.data.unwrap_or_default().remove(key).ok_or_else(missing)?;
    if data.0.is_empty() { Err(missing()) } else { Ok(data.0) }
}

/// Parses a kubeconfig and refuses what would make us execute, read or trust something local.
fn safe(bytes: &[u8]) -> Result<Kubeconfig, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    // The parser's error may quote the text, and the text holds credentials.
    let config = Kubeconfig::from_yaml(text).map_err(|_| "it is not a kubeconfig in YAML".to_owned())?;
    let name = config.current_context.as_deref().filter(|n| !n.is_empty()).ok_or("it has no current-context")?;
    let context = config.contexts.iter().find(|c| c.name == name).and_then(|c| c.context.as_ref());
    let context = context.ok_or_else(|| format!("its current-context {name:?} is not among its contexts"))?;
    let cluster = config.clusters.iter().find(|c| c.name == context.cluster).and_then(|c| c.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| format!("its cluster {:?} is not among its clusters", context.cluster))?;
    let user_name = context.user.as_deref().unwrap_or_default();
    let user = config.auth_infos.iter().find(|u| u.name == user_name).and_then(|u| u.auth_info.as_ref());
    let user = user.ok_or_else(|| format!("its user {user_name:?} is not among its users"))?;

    let server = cluster.server.as_deref().unwrap_or_default();
    if !server.starts_with("https://") {
        return Err(format!("server {server:?} must begin with https://"));
    }
    let embed = "embed the data instead (kubectl config view --raw --flatten)";
    let refused = [
        (user.exec.is_some(), "exec", "a program would have to be run; use a client certificate or a token"),
        (user.auth_provider.is_some(), "auth-provider", "a plugin would have to be run; use a client certificate or a token"),
        (user.token_file.is_some(), "tokenFile", embed),
        (user.client_certificate.is_some(), "client-certificate", embed),
        (user.client_key.is_some(), "client-key", embed),
        (cluster.certificate_authority.is_some(), "certificate-authority", embed),
        (cluster.proxy_url.is_some(), "proxy-url", "proxies are not supported"),
        (cluster.insecure_skip_tls_verify == Some(true), "insecure-skip-tls-verify", "join tokens are sent there; give certificate-authority-data"),
    ];
    match refused.iter().find(|(present, ..)| *present) {
        Some((_, field, why)) => Err(format!("{field} is not accepted: {why}")),
        None => Ok(config),
    }
}

/// PEM of certificates in DER.
fn pem(ders: &[Vec<u8>]) -> String {
    use base64::Engine as _;
    let mut text = String::new();
    for der in ders {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        for line in body.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests;
