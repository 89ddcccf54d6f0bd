//! Contexts for wiring tests: caches that never change, a clock, and an API server that answers from a script.

pub mod server;
pub mod windows_nodes;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc::unbounded;
use jiff::Timestamp;
use kube::Client;
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::api::cluster_ref::ClusterRef;
use crate::api::namespaces::Namespaces;
use crate::engine::caches::{Cache, Caches};
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::triggers::{Requested, Requests};
use crate::engine::watch::{Selection, Watch, Watching};
use crate::engine::workload_clusters::WorkloadClusters;
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Wanted};
use crate::kinds::shared::Shared;
use crate::kube_api::cluster::{Cluster, Kind};
use crate::kube_api::events::Events;
use crate::kube_api::guarded::Guarded;
use crate::kube_api::mock::{Exchange, Script, step};
use crate::kube_api::workload::{Connect, Workloads};
use crate::telemetry::{Metrics, Readiness};
use crate::vm::{Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

/// Reads an object from JSON.
pub fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Returns a cache that holds these objects.
pub fn holding<K: Kind>(objects: Vec<Value>) -> Cache<K> {
    Cache(Watch::holding(objects.into_iter().map(read).collect()))
}

/// Returns a cache that holds these objects, some of which cannot be read.
pub fn holding_unreadable<K: Kind>(objects: Vec<Value>) -> Cache<K> {
    Cache(Watch::holding_unreadable(objects.into_iter().map(read).collect()))
}

/// Returns an empty cache, and a function that adds an object to it.
pub fn changing<K: Kind>() -> (Cache<K>, impl Fn(Value)) {
    let (client, _script) = Script::new(vec![]);
    let watching = Watching {
        client,
        selection: Selection::default(),
        metrics: Metrics::default(),
        readiness: Readiness::default(),
        stop: CancellationToken::new(),
    };
    let (events, shown) = unbounded();
    let tell = move |event| drop(events.unbounded_send(Ok(event)));
    tell(watcher::Event::Init);
    tell(watcher::Event::InitDone);
    (Cache(Watch::over(&watching, shown)), move |object| tell(watcher::Event::Apply(Guarded(Ok(read(object))))))
}

/// Expects a request for the served API groups, and answers with these.
pub fn groups(names: &[&str]) -> Exchange {
    let version = |name: &str| json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    let groups: Vec<Value> = names.iter().map(|name| json!({"name": name, "versions": [version(name)]})).collect();
    step("GET /apis", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

/// Returns a context with these caches, and a clock that advances by `seconds` at each read.
pub fn shared(caches: Caches, seconds: i64, exchanges: Vec<Exchange>) -> (Shared, Script) {
    shared_to(caches, seconds, exchanges, Arc::new(Client::try_from))
}

/// As [`shared`], with these clients for workload clusters.
pub fn shared_to(caches: Caches, seconds: i64, exchanges: Vec<Exchange>, connect: Connect) -> (Shared, Script) {
    let (shared, script, _) = shared_asked(caches, seconds, exchanges, connect);
    (shared, script)
}

/// As [`shared_to`], and returns the requested passes too.
pub fn shared_asked(caches: Caches, seconds: i64, exchanges: Vec<Exchange>, connect: Connect) -> (Shared, Script, Requested) {
    let (client, script) = Script::new(exchanges);
    let cluster = Cluster::new(client.clone());
    let time = AtomicI64::new(1_767_225_600);
    let directory = tempfile::Builder::new().prefix("capw-wiring").tempdir().unwrap();
    let state = directory.path().to_owned();
    // The directory is deleted with the last driver that has this clock.
    let clock = move || (&directory, Timestamp::UNIX_EPOCH).1;
    let settings = DriverSettings::uncounted(state, 32, Arc::new(clock));
    let management = Arc::new(Management {
        cluster: cluster.clone(),
        events: Events::new(client, "test", Arc::new(|_| ())),
        written: Default::default(),
        clock: Arc::new(move || Timestamp::from_second(time.fetch_add(seconds, Ordering::Relaxed)).unwrap()),
    });
    let (requests, requested) = Requests::new();
    let shared = Shared::new(
        management,
        Workloads::connected(cluster, connect, Namespaces::All),
        Arc::new(Drivers::new(settings)),
        caches,
        requests,
        true,
        Some("registry.example.com/capw:v0".into()),
    );
    (shared, script, requested)
}

/// Runs a pass, and repeats it while it waits for an answer.
pub async fn with_answers(pass: impl AsyncFn() -> Result<Outcome, ReconcileError>) -> Result<Outcome, ReconcileError> {
    loop {
        match pass().await {
            // With a paused clock, time advances only while all tasks wait.
            Err(error) if error.is_pending() => sleep(Duration::from_millis(1)).await,
            ended => return ended,
        }
    }
}

/// Waits for the first answer of a cluster.
pub async fn reach(clusters: &WorkloadClusters, cluster: &ClusterRef) {
    while clusters.get(cluster).await.is_err_and(|error| error.is_pending()) {
        yield_now().await;
    }
}

/// Waits until the Nodes of a cluster are listed.
pub async fn list_nodes(clusters: &WorkloadClusters, cluster: &ClusterRef) {
    reach(clusters, cluster).await;
    clusters.get_with_nodes(cluster).await.unwrap();
    while !clusters.nodes().are_known(cluster) {
        yield_now().await;
    }
}

/// A hypervisor that lists no VMs.
#[derive(Default)]
pub struct Empty {
    pub unfit: Option<String>,
    /// The observed state of any VM, if not absent.
    pub observed: Option<Observed>,
    /// The VMs whose removal was requested.
    pub retired: Mutex<Vec<MachineKey>>,
    /// Whether it may have VMs and hides them.
    pub hides: bool,
    /// Why it creates no VM.
    pub refuses: Option<DriverError>,
    /// The ids that it chooses for a VM.
    pub reserves: Journal,
}

#[async_trait]
impl Driver for Empty {
    fn caps(&self) -> &Caps {
        const SECOND: Duration = Duration::from_secs(1);
        &Caps { driver: "empty", seeds: &[SeedKind::Drive], tick: SECOND, deadline: SECOND, reads: 1, changes: 1 }
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        Ok(Endpoint { id: "empty".into(), version: "1".into(), unfit: self.unfit.clone(), ..Endpoint::default() })
    }

    async fn check(&self, _: &VmSpec, _: SeedKind) -> Result<(), DriverError> {
        self.refuses.clone().map_or(Ok(()), Err)
    }

    async fn plan(&self, _: &MachineKey, _: &VmSpec, _: &Journal) -> Result<Journal, DriverError> {
        Ok(self.reserves.clone())
    }

    async fn list(&self, _: &Wanted) -> Result<Listing, DriverError> {
        Ok(Listing::default())
    }

    async fn observe(&self, _: &MachineKey, _: &Journal) -> Result<Observed, DriverError> {
        Ok(self.observed.clone().unwrap_or(Observed::Absent))
    }

    async fn confirm_absence(&self, _: &MachineKey) -> Result<(), DriverError> {
        if self.hides { Err(DriverError::Denied("grant a right".into())) } else { Ok(()) }
    }

    async fn advance(&self, _: &MachineKey, _: &VmSpec, _: &Seed, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
        Ok(DriverStep::Done)
    }

    async fn detach(&self, _: &MachineKey, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
        Ok(DriverStep::Done)
    }

    async fn retire(&self, key: &MachineKey, _: StopMode, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
        self.retired.lock().push(key.clone());
        Ok(DriverStep::Done)
    }
}
