//! The composition root: creates every part, connects them, runs them and stops them. Owns clock, randomness and signals.

mod clients;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Client, Config};
use rand::Rng;
use secrecy::SecretString;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::clients::{Clients, to_management, to_workloads};
use crate::api::namespaces::Namespaces;
use crate::autoscaler::server::ServeError;
use crate::autoscaler::{self, ServiceHandle};
use crate::causes::chain;
use crate::engine::controller::ControllerLoop;
pub use crate::engine::roles::Roles;
use crate::engine::watch::{Selection, Watching};
use crate::engine::written::Written;
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::kinds::{self, Parts};
use crate::kube_api::cluster::Cluster;
use crate::kube_api::error::ApiError;
use crate::kube_api::events::Events;
use crate::kube_api::lease::{self, Lease};
use crate::kube_api::review::{Access, Reviews};
use crate::kube_api::workloads::Workloads;
use crate::telemetry::build::BUILD;
use crate::telemetry::diagnostics::{self, Authorize, Refusal};
use crate::telemetry::http::{listen, serve_probes};
use crate::telemetry::{Metrics, Passes, Readiness};

/// The time that running passes have, after a stop is requested, to reach a safe point.
const DRAIN: Duration = Duration::from_secs(10);
const RELEASE: Duration = Duration::from_secs(3);
/// The readiness condition of a process until its watches (or its turn) have begun.
const START: &str = "start of the controllers";

/// The settings of `capw run`.
#[derive(Clone, Debug)]
pub struct Settings {
    pub roles: Roles,
    /// The namespaces that this process works on.
    pub namespaces: Namespaces,
    pub watch_filter: Option<String>,
    /// The namespaces whose standalone pools may join the cluster that this process runs in; `None`: the namespace of the kubeconfig's context.
    pub own_cluster: Option<Namespaces>,
    /// The leader election; `None`: this process works at once.
    pub election: Option<Election>,
    pub health_address: SocketAddr,
    pub diagnostics_address: SocketAddr,
    /// Whether metrics are served to everyone, in plain text.
    pub insecure_diagnostics: bool,
    pub simulated_state: PathBuf,
    pub simulated_guests: bool,
    /// The folder of the programs that guests of kind Wine run.
    pub wine_programs: Option<PathBuf>,
    /// The most passes at the same time, for each controller.
    pub concurrency: u16,
    /// The requests per second to the management cluster, 0 for no limit, and the burst.
    pub qps: u32,
    pub burst: u32,
    /// The name of this process, e.g. of its pod. The election adds a unique suffix.
    pub instance: String,
    /// Whether serving certificates of kubelets are approved, for machines that request one from the cluster's authority.
    pub approve_serving_certificates: bool,
    /// The image of CAPW, as Windows nodes pull it.
    pub image: Option<String>,
    /// The service for cluster-autoscaler.
    pub autoscaler: Option<autoscaler::server::Settings>,
}

/// The place of the lease.
#[derive(Clone, Debug)]
pub struct Election {
    /// The namespace of the lease; `None`: the namespace of the pod, or of the kubeconfig's context.
    pub namespace: Option<String>,
    pub lease: String,
}

/// Why the program ends before it is stopped.
#[derive(Debug, Error)]
pub enum OperatorError {
    #[error("no Kubernetes cluster: {0}; set KUBECONFIG, or run in a cluster with a service account")]
    NoCluster(String),
    #[error("{0}")]
    Listen(std::io::Error),
    #[error(transparent)]
    Autoscaler(#[from] ServeError),
    #[error("signals: {0}")]
    Signals(std::io::Error),
    #[error("leadership lost: {0}; this process must stop; restart it")]
    LeadershipLost(String),
}

/// The metrics, readiness and passes that the process reports.
#[derive(Clone, Default)]
struct Telemetry {
    metrics: Metrics,
    readiness: Readiness,
    passes: Passes,
}

/// Runs until SIGTERM or SIGINT. Then it takes no new work, lets passes finish and releases the lease.
pub async fn run(settings: Settings) -> Result<(), OperatorError> {
    let [stop, _] = stop_on_signals()?;
    let telemetry = Telemetry::default();
    let Telemetry { metrics, readiness, passes } = telemetry.clone();
    readiness.expect(START);
    let probes = listen(settings.health_address).await.map_err(OperatorError::Listen)?;
    let scrapes = listen(settings.diagnostics_address).await.map_err(OperatorError::Listen)?;
    let autoscaler = match &settings.autoscaler {
        Some(settings) => Some(autoscaler::server::Bound::new(settings).await?),
        None => None,
    };
    let config = Config::infer().await.map_err(|e| OperatorError::NoCluster(chain(&e)))?;
    let namespace = config.default_namespace.clone();
    let clients = Clients::new(|rate| to_management(&config, &metrics, rate), settings.qps, settings.burst);
    let Clients { lease: renewals, reviews, controllers: client } = clients.map_err(|e| OperatorError::NoCluster(chain(&e)))?;
    tracing::info!(version = BUILD.version, revision = BUILD.revision, health = %settings.health_address, diagnostics = %settings.diagnostics_address, "starting");

    let authorize = (!settings.insecure_diagnostics).then(|| authorize(reviews));
    let end = CancellationToken::new();
    let handle = ServiceHandle::default();
    let mut servers = vec![
        tokio::spawn(serve_probes(probes, readiness, passes, end.clone())).abort_handle(),
        tokio::spawn(diagnostics::serve(scrapes, metrics.clone(), authorize, end.clone())).abort_handle(),
    ];
    let serves = autoscaler.is_some();
    servers.extend(autoscaler.map(|bound| tokio::spawn(bound.serve(handle.clone(), metrics.clone(), end.clone())).abort_handle()));
    let lease = settings.election.as_ref().map(|election| {
        let namespace = election.namespace.as_deref().unwrap_or(&namespace);
        let identity = format!("{}_{}", settings.instance, uuid::Uuid::new_v4());
        Lease::new(renewals.clone(), lease::Settings::new(namespace, &election.lease, &identity), clock())
    });
    let own_cluster = settings.own_cluster.clone().unwrap_or_else(|| Namespaces::one(&namespace));
    let work = work(settings, own_cluster, client, telemetry.clone(), stop.clone(), serves.then(|| handle.clone()));
    let result = match lease {
        Some(lease) => lead(lease, work, &telemetry, &stop).await,
        None => {
            metrics.leader(true);
            work.await;
            metrics.leader(false);
            Ok(())
        }
    };
    handle.close();
    end.cancel();
    for server in servers {
        // Open connections of scrapers are closed without waiting.
        server.abort();
    }
    tracing::info!("stopped");
    result
}

/// Works while this process holds the lease.
async fn lead(mut lease: Lease, work: impl Future<Output = ()>, telemetry: &Telemetry, stop: &CancellationToken) -> Result<(), OperatorError> {
    // A process that waits for its turn is ready to take over.
    telemetry.readiness.met(START);
    tokio::select! {
        () = lease.acquire() => {}
        () = stop.cancelled() => return Ok(()),
    }
    tracing::info!("became leader");
    telemetry.metrics.leader(true);
    tokio::select! {
        why = lease.hold() => return Err(OperatorError::LeadershipLost(why)),
        () = work => {}
    }
    telemetry.metrics.leader(false);
    match timeout(RELEASE, lease.release()).await {
        Ok(Ok(())) => tracing::info!("released the lease"),
        Ok(Err(error)) => tracing::warn!(%error, "failed to release the lease; it will expire"),
        Err(_) => tracing::warn!("failed to release the lease; it will expire: no answer"),
    }
    Ok(())
}

/// Runs drivers and controllers until `stop`, and then at most [`DRAIN`] longer.
async fn work(
    settings: Settings,
    own_cluster: Namespaces,
    client: Client,
    Telemetry { metrics, readiness, passes }: Telemetry,
    stop: CancellationToken,
    autoscaler: Option<ServiceHandle>,
) {
    let drivers = Arc::new(Drivers::new(driver_settings(
        settings.simulated_state,
        settings.simulated_guests,
        settings.wine_programs,
        settings.concurrency,
        &metrics,
    )));
    let counted = metrics.clone();
    let cluster = Cluster::new(client.clone());
    let connect_workload = to_workloads(metrics.clone());
    let selection = Selection { namespaces: settings.namespaces, watch_filter: settings.watch_filter, labels: None };
    let controllers_loop = ControllerLoop {
        concurrency: settings.concurrency,
        selection: selection.clone(),
        metrics: metrics.clone(),
        written: Written::default(),
        passes,
        stop: stop.clone(),
    };
    let watching = Watching { client: client.clone(), selection, metrics, readiness: readiness.clone(), stop: stop.clone() };
    let parts = Parts {
        workloads: Workloads::connected(cluster.clone(), connect_workload, own_cluster).for_passes(settings.concurrency.into()),
        cluster,
        events: Events::new(client, &settings.instance, Arc::new(move |outcome| counted.event(outcome))),
        drivers: drivers.clone(),
        clock: clock(),
        new_token_secret: Arc::new(token_secret),
        approve_serving_certificates: settings.approve_serving_certificates,
        image: settings.image,
        autoscaler,
    };
    // Guests end after the controllers, as machines do when their operator stops.
    let guests = CancellationToken::new();
    let hosting = tokio::spawn({
        let guests = guests.clone();
        async move {
            if settings.roles.infrastructure {
                drivers.run(guests).await;
            }
        }
    });
    let controllers = async {
        // The order matters: the first poll of the controllers starts their watches, which add their readiness conditions.
        tokio::join!(kinds::run(parts, settings.roles, &controllers_loop, &watching), async { readiness.met(START) });
    };
    let limit = async {
        stop.cancelled().await;
        tracing::info!("stopping: waiting for running passes to finish");
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = controllers => {}
        () = limit => tracing::warn!("abandoning passes that did not finish in time; the next start observes what they did"),
    }
    guests.cancel();
    if timeout(RELEASE, hosting).await.is_err() {
        tracing::warn!("guests of simulated VMs did not end in time");
    }
}

/// Accepts the clients that the API server authorizes.
fn authorize(reviews: Reviews) -> Authorize {
    Arc::new(move |token, path| {
        let reviews = reviews.clone();
        Box::pin(async move {
            match reviews.may_get(&token, &path).await {
                Ok(Access::Granted) => Ok(()),
                Ok(Access::Forbidden) => Err(Refusal::Forbidden),
                Ok(Access::Unknown) => Err(Refusal::Unauthorized),
                Err(ApiError::Throttled { .. }) => Err(Refusal::Busy),
                Err(error) => {
                    tracing::warn!(%error, "cannot check whether a client may read the metrics");
                    Err(Refusal::Unavailable)
                }
            }
        })
    })
}

/// Hosts only the guests of simulated VMs below a directory, until SIGTERM or SIGINT.
pub async fn host_guests(state: PathBuf, wine_programs: Option<PathBuf>) -> Result<(), OperatorError> {
    let [stop, _] = stop_on_signals()?;
    Drivers::new(driver_settings(state, true, wine_programs, 1, &Metrics::default())).run(stop).await;
    Ok(())
}

fn driver_settings(
    simulated_state: PathBuf,
    simulated_guests: bool,
    wine_programs: Option<PathBuf>,
    passes: u16,
    metrics: &Metrics,
) -> DriverSettings {
    let (metrics, requests) = (metrics.clone(), metrics.clone());
    DriverSettings {
        simulated_state,
        simulated_guests,
        wine_programs,
        passes: usize::from(passes),
        clock: clock(),
        hook: Arc::new(move |call| metrics.hypervisor_call(call.driver, call.endpoint, call.call, call.outcome, call.took)),
        requests: Arc::new(move |driver, endpoint, request| requests.hypervisor_request(driver, endpoint, request)),
    }
}

/// Returns two tokens, which are cancelled at the first SIGTERM or SIGINT, and at the second one.
pub fn stop_on_signals() -> Result<[CancellationToken; 2], OperatorError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(OperatorError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(OperatorError::Signals)?;
    let stops = [CancellationToken::new(), CancellationToken::new()];
    let told = stops.clone();
    tokio::spawn(async move {
        for stop in told {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.cancel();
        }
    });
    Ok(stops)
}

/// Returns the current time, for commands that read it once.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[allow(clippy::disallowed_methods)]
fn clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// Creates the secret half of a bootstrap token: 16 characters of 0-9a-z from the system's generator.
fn token_secret() -> SecretString {
    random_text(16).into()
}

/// Returns `length` characters of 0-9a-z from the system's generator.
#[allow(clippy::disallowed_methods)]
pub fn random_text(length: usize) -> String {
    let mut random = rand::rng();
    (0..length).filter_map(|_| char::from_digit(random.random_range(0..36), 36)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;
    use std::collections::HashSet;

    /// The time that Kubernetes gives a stopping pod before it kills it.
    #[test]
    fn a_stop_takes_less_time_than_it_is_given() {
        let manifest = include_str!("../config/manager/deployment.yaml");
        let given = manifest.lines().find_map(|line| line.trim().strip_prefix("terminationGracePeriodSeconds: ")?.parse().ok());
        assert!(DRAIN + RELEASE + RELEASE < Duration::from_secs(given.unwrap()), "passes, guests, lease");
    }

    #[test]
    fn token_secrets_have_the_form_that_kubernetes_asks_for_and_differ() {
        let secrets: HashSet<String> = (0..200).map(|_| token_secret().expose_secret().to_owned()).collect();
        assert_eq!(secrets.len(), 200);
        assert!(secrets.iter().all(|s| s.len() == 16 && s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())));
        let letters: HashSet<char> = secrets.iter().flat_map(|s| s.chars()).collect();
        assert_eq!(letters.len(), 36, "every character comes up");
    }
}
