//! Caches that never change, and caches that a test changes.

use futures::channel::mpsc::unbounded;
use kube::runtime::watcher;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::engine::caches::Cache;
use crate::engine::watch::{Selection, Watch, Watching};
use crate::kube_api::cluster::Kind;
use crate::kube_api::guarded::Guarded;
use crate::kube_api::mock::Script;
use crate::telemetry::{Metrics, Readiness};

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
