//! The client of a workload cluster, created from a kubeconfig, and the errors of its calls.
//!
//! A kubeconfig is input from outside: one that would run a program or read a local file here is refused.

mod kubeconfig;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures::TryFutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::Api;
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use sha2::{Digest, Sha256};
use thiserror::Error;

use self::kubeconfig::{pem, safe};
use super::cluster::request;
use super::error::{ApiError, Retry};
use super::gate::Gate;
use super::keeping::Keeping;
use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::kubernetes_version::minor;
use crate::causes::chain;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Why a workload cluster cannot be used. Messages are for conditions: what is wrong, where, and what to do.
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
    /// A foreign object has that name; it is left alone.
    #[error("{what}")]
    Foreign { what: String },
    /// The cluster is not the one that machines were created for.
    #[error(
        "the API server {endpoint} is that of another cluster than machines were made for: its namespace kube-system has the UID {found}, not {expected}. Put the kubeconfig of their cluster back; or delete the Secret, then the machines can be removed and their Nodes stay"
    )]
    ClusterReplaced { endpoint: String, expected: String, found: String },
    #[error(
        "machines of namespace {namespace} may not join the cluster that CAPW runs in: start CAPW with --own-cluster-namespaces={namespace}, or name a kubeconfig in spec.cluster.kubeconfigSecretRef of the pool"
    )]
    OwnClusterRefused { namespace: String },
    /// Nothing has failed so far.
    #[error("CAPW has asked the API server of {cluster} and waits for its first answer")]
    NotReached { cluster: String },
    #[error(
        "the API server of the workload cluster, {endpoint}, answers with more than CAPW reads: {what}; remove objects that are not needed there, or look at what answers in its place"
    )]
    TooLarge { endpoint: String, what: String },
    /// Any other answer of the workload cluster.
    #[error("{0}")]
    Api(ApiError),
    /// The management cluster did not return the kubeconfig.
    #[error("{0}")]
    Management(ApiError),
}

/// Returns how to fix a connection that fails.
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
            Self::ClusterReplaced { .. } => "cluster_replaced",
            Self::OwnClusterRefused { .. } => "own_cluster_refused",
            Self::NotReached { .. } => "workload_not_reached",
            Self::TooLarge { .. } => "workload_too_large",
            Self::Api(error) | Self::Management(error) => error.label(),
        }
    }

    /// Whether nothing has failed: the first answer is pending, and will trigger the next pass. Until then there is nothing to report.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::NotReached { .. })
    }

    /// Whether the error persists until the rights, or the objects of the cluster, are changed.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Forbidden { .. } | Self::TooLarge { .. })
    }

    /// As [`ApiError::not_before`].
    pub fn not_before(&self) -> Duration {
        match self {
            Self::Api(error) | Self::Management(error) => error.not_before(),
            _ => Duration::ZERO,
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Api(error) | Self::Management(error) => error.retry(),
            Self::NotReached { .. } => Retry::OnChange,
            // All of these are fixed outside, without a change that we watch.
            _ => Retry::Backoff,
        }
    }
}

/// A usable workload cluster.
#[derive(Clone)]
pub struct Workload {
    pub client: Client,
    /// The CA of the API server, PEM; `None` if the kubeconfig trusts the system's CAs.
    pub ca_pem: Option<String>,
    /// The address of the API server, e.g. `https://10.0.0.1:6443`.
    pub server: String,
    /// SHA-256 of the kubeconfig, hexadecimal.
    pub fingerprint: String,
    /// The minor of the version that the API server reported last; 0: not read yet.
    pub minor: Arc<AtomicU32>,
    /// The gate of all its requests except watches. [`super::workloads::Workloads`] shares it between all Secrets with the same kubeconfig.
    pub gate: Gate,
    /// The limit for the kept objects of its watches.
    pub keeping: Keeping,
}

#[cfg(test)]
impl Workload {
    /// Creates a workload cluster whose requests use this client.
    pub fn of(client: Client) -> Self {
        Self {
            client,
            ca_pem: None,
            server: String::new(),
            fingerprint: String::new(),
            minor: Arc::default(),
            gate: Gate::default(),
            keeping: Keeping::default(),
        }
    }
}

impl Workload {
    /// Creates a client. `source_name` names the source of the bytes in error messages, e.g. `Secret lab/c1-kubeconfig`.
    pub async fn from_kubeconfig(source_name: &str, bytes: &[u8]) -> Result<Self, WorkloadError> {
        Self::connected(source_name, bytes, Client::try_from).await
    }

    pub(super) async fn connected(source_name: &str, bytes: &[u8], connect: impl Fn(Config) -> kube::Result<Client>) -> Result<Self, WorkloadError> {
        let invalid = |why: String| WorkloadError::KubeconfigInvalid { source_name: source_name.to_owned(), why };
        let kubeconfig = safe(bytes).map_err(invalid)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(|e| invalid(chain(&e)))?;
        // Environment variables for other programs set it; a kubeconfig with a proxy is refused.
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_LIMIT);
        // The reconcile retries itself; hidden retries would delay a stop.
        config.default_retry = false;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let ca_pem = config.root_cert.as_ref().map(|ders| pem(ders));
        let client = connect(config).map_err(|e| invalid(chain(&e)))?;
        let fingerprint = HEXLOWER.encode(&Sha256::digest(bytes));
        Ok(Self { client, ca_pem, server, fingerprint, minor: Arc::default(), gate: Gate::default(), keeping: Keeping::default() })
    }

    /// Returns the host and port of the API server.
    pub fn endpoint(&self) -> ControlPlaneEndpoint {
        let rest = self.server.trim_start_matches("https://").split('/').next().unwrap_or_default();
        let (host, port) = rest.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))).unwrap_or((rest, 443));
        ControlPlaneEndpoint { host: host.trim_matches(['[', ']']).to_owned(), port }
    }

    /// Converts the error of a call, so that it names this cluster.
    pub fn explain(&self, error: ApiError) -> WorkloadError {
        match error {
            ApiError::Unreachable(cause) => WorkloadError::Unreachable { endpoint: self.server.clone(), cause },
            ApiError::Unauthorized(_) => WorkloadError::Unauthorized { endpoint: self.server.clone() },
            ApiError::Forbidden(what) => WorkloadError::Forbidden { what },
            ApiError::TooLarge(what) => WorkloadError::TooLarge { endpoint: self.server.clone(), what },
            other => WorkloadError::Api(other),
        }
    }

    pub(crate) fn call<'a, T: 'a>(
        &'a self,
        what: &'a str,
        call: impl Future<Output = kube::Result<T>> + Send + 'a,
    ) -> impl Future<Output = Result<T, WorkloadError>> + Send + 'a {
        let answer = request(what, call).map_err(move |error| match error {
            // The message is the same for every request: it is in the conditions of all objects that use this cluster.
            ApiError::Unreachable(text) => ApiError::Unreachable(text.strip_prefix(&format!("{what}: ")).unwrap_or(&text).to_owned()),
            other => other,
        });
        self.gate.pass(answer).map_err(|error| self.explain(error))
    }

    /// Returns the version that the API server reports, e.g. `v1.36.3`.
    pub async fn version(&self) -> Result<String, WorkloadError> {
        Ok(self.call("get /version", self.client.apiserver_version()).await?.git_version)
    }

    /// Returns the minor of the API server, to compare with a kubelet's minor. It is read once, and again for a kubelet that would be newer,
    /// because the API server may have been upgraded. `None`: the version has none, or these credentials may not read it.
    pub async fn minor_for(&self, kubelet: u32) -> Result<Option<u32>, WorkloadError> {
        let known = self.minor.load(Ordering::Relaxed);
        if known != 0 && known >= kubelet {
            return Ok(Some(known));
        }
        let version = match self.version().await {
            Err(WorkloadError::Forbidden { .. }) => return Ok(None),
            answer => answer?,
        };
        let found = minor(&version);
        self.minor.store(found.unwrap_or_default(), Ordering::Relaxed);
        Ok(found)
    }

    /// Returns the unique ID of this cluster: the UID of its namespace `kube-system`, from an API server that has a certificate of the kubeconfig's
    /// authority.
    pub async fn uid(&self) -> Result<String, WorkloadError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = self.call("get namespaces kube-system", api.get("kube-system")).await?;
        Ok(found.metadata.uid.unwrap_or_default())
    }

    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, WorkloadError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        self.call(&format!("get configmaps {namespace}/{name}"), api.get_opt(name)).await
    }
}

#[cfg(test)]
pub(super) mod tests;
