//! Every version of an object from a moment on: even short-lived reports can be read later. It must not judge.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capw_patience::wait_for;
use futures::TryStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::client::Kind;
use super::control_plane::ControlPlane;

/// The versions of one object; they are collected until this is dropped.
pub struct History {
    what: String,
    versions: Arc<Mutex<Vec<Value>>>,
    task: AbortHandle,
}

impl ControlPlane {
    /// Collects the versions of the object `NAMESPACE/NAME` from now on. The first version is the current one.
    pub async fn history(&self, kind: Kind, name: &str) -> History {
        let (namespace, short) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
        let (api, of_name) = (self.api(kind, namespace), watcher::Config::default().fields(&format!("metadata.name={short}")));
        let versions: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&versions);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, of_name));
            // After an error the watcher continues automatically.
            loop {
                if let Ok(Some(Event::InitApply(object) | Event::Apply(object) | Event::Delete(object))) = events.try_next().await {
                    let object = serde_json::to_value(object).expect("an object is JSON");
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(object);
                }
            }
        });
        let history = History { what: format!("{} {name}", kind.plural), versions, task: task.abort_handle() };
        history.said("it is there", Duration::from_secs(60), |_| Some(())).await;
        history
    }
}

impl History {
    /// Waits until some version satisfies `found`, and returns the value for the first such version.
    pub async fn said<T>(&self, what: &str, deadline: Duration, found: impl Fn(&Value) -> Option<T>) -> T {
        wait_for(&format!("{}: {what}, in some version", self.what), deadline, || async {
            let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
            let last = || format!("{} versions, the last of them {:#}", versions.len(), versions.last().map_or(&Value::Null, |last| &last["status"]));
            versions.iter().find_map(&found).ok_or_else(last)
        })
        .await
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}
