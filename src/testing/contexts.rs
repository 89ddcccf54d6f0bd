//! Contexts of passes, with an API server that answers from a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::api::namespaces::Namespaces;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::triggers::Requested;
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::kinds::shared::Shared;
use crate::kube_api::cluster::Cluster;
use crate::kube_api::events::Events;
use crate::kube_api::mock::{Exchange, Script, step};
use crate::kube_api::workloads::{Connect, Workloads};

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
    let (shared, requested) = Shared::new(
        management,
        Workloads::connected(cluster, connect, Namespaces::All),
        Arc::new(Drivers::new(settings)),
        caches,
        true,
        Some("registry.example.com/capw:v0".into()),
    );
    (shared, script, requested)
}
