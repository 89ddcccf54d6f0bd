//! The reports of objects that do not match their kind: such an object reports its fault in its status.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::core::{PartialObjectMeta, PartialObjectMetaExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::management::Management;
use super::watch::{Selection, Watch};
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::decode::from_value;
use crate::api::name::ObjectKey;
use crate::kube_api::cluster::Kind;
use crate::kube_api::error::ApiError;

/// A field manager of its own, so that the fields of the controller's status stay.
const MANAGER: &str = "capw-unreadable";
/// The delay after a failed report.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// The most reports that are sent at the same time.
const AT_ONCE: usize = 8;

/// Reports the fault in the status of every unreadable object of a kind with conditions, until `stop`.
pub async fn report_all<K: Kind>(management: &Management, watch: &Watch<K>, selection: &Selection, stop: impl Future<Output = ()>) {
    let (unreadable, turns, waiting) = (watch.unreadable(), Semaphore::new(AT_ONCE), Mutex::new(HashSet::new()));
    let told = unreadable.follow().take_until(stop).for_each_concurrent(None, |object| {
        let (unreadable, turns) = (unreadable.clone(), &turns);
        let waiting = || waiting.lock();
        async move {
            let in_turn = || async {
                let _turn = turns.acquire().await;
                report::<K>(management, &object, selection).await
            };
            while let Err(error) = in_turn().await {
                tracing::warn!(kind = %K::kind(&()), namespace = object.namespace, name = object.name, %error, "failed to report an unreadable object");
                // An earlier event of the same object is already being retried.
                if !waiting().insert(object.clone()) {
                    break;
                }
                tokio::time::sleep(TRY_AGAIN).await;
                waiting().remove(&object);
                if !unreadable.contains(&object) {
                    break;
                }
            }
        }
    });
    told.await;
}

async fn report<K: Kind>(management: &Management, key: &ObjectKey, selection: &Selection) -> Result<(), ApiError> {
    let Some(raw) = management.cluster.get_raw::<K>(&key.namespace, &key.name).await? else { return Ok(()) };
    let Some(why) = fault::<K>(&raw) else { return Ok(()) };
    let current: Vec<Condition> = raw.pointer("/status/conditions").and_then(|conditions| from_value(conditions).ok()).unwrap_or_default();
    let metadata: ObjectMeta = raw.get("metadata").and_then(|metadata| from_value(metadata).ok()).unwrap_or_default();
    let said = said(&current, &why);
    let next = condition::apply(&current, &said, metadata.generation, management.now());
    if next == current || !selection.selects(&metadata) {
        return Ok(());
    }
    let ours: Vec<&Condition> = next.iter().filter(|c| said.iter().any(|d| c.type_ == d.type_)).collect();
    let object: PartialObjectMeta<K> = metadata.into_request_partial();
    management.cluster.apply_status(&object, MANAGER, &json!({ "conditions": ours })).await?;
    management.events.warning(&object, Reason::InvalidSpec, ConditionType::Ready.as_ref(), &why).await;
    Ok(())
}

/// Returns the fault of the object with the path of the field; `None` if it can be read now.
fn fault<K: Kind>(raw: &Value) -> Option<String> {
    let error = serde_path_to_error::deserialize::<_, K>(raw).err()?;
    Some(format!(
        "{}: {}. CAPW cannot read this object and does nothing for it, not even its deletion, until the field is corrected",
        error.path(),
        error.inner()
    ))
}

/// Sets Ready, and Available where the object has that condition.
fn said(current: &[Condition], why: &str) -> Vec<Desired> {
    let available = condition::find(current, ConditionType::Available).map(|_| ConditionType::Available);
    [ConditionType::Ready].into_iter().chain(available).map(|type_| Desired::no(type_, Reason::InvalidSpec, why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pool::WindowsNodePool;
    use crate::engine::caches::Caches;
    use crate::kube_api::mock::{Exchange, hang, refuse, step};
    use crate::testing::shared;

    const POOLS: &str = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsnodepools";
    const POOL: &str = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsnodepools/win";

    fn pool(most: Value) -> Value {
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": "win", "namespace": "lab", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": {"template": {"machine": {"image": "w"}}, "health": {"maxUnhealthy": most}},
            "status": {"replicas": 2, "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "2 of 2",
                "lastTransitionTime": "2025-01-01T00:00:00Z"}]}})
    }

    fn listed(object: Value) -> Exchange {
        let list =
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePoolList", "metadata": {}, "items": [object]});
        step(&format!("GET {POOLS}"), list)
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_says_so_itself_once_and_names_the_field() {
        let mut told = pool(Value::Null);
        let requests = vec![listed(pool(Value::Null)), step(&format!("PATCH {POOL}/status"), pool(Value::Null)), step("POST *", json!({}))];
        let (all, script) = shared(Caches::empty(), 0, requests);
        let key = ObjectKey::new("lab", "win");
        report::<WindowsNodePool>(&all.management, &key, &Selection::default()).await.unwrap();
        let written = script.seen()[1].clone();
        let ready = &written.body["status"]["conditions"][0];
        assert_eq!((&ready["type"], &ready["status"], &ready["reason"]), (&json!("Ready"), &json!("False"), &json!("InvalidSpec")));
        let message = ready["message"].as_str().unwrap();
        assert!(message.starts_with("spec.health.maxUnhealthy: ") && message.contains("25%"), "{message}");
        assert_eq!(written.body["status"].as_object().unwrap().len(), 1, "what the controller reported stays: {}", written.body);
        assert!(written.query.contains(MANAGER), "{}", written.query);

        told["status"]["conditions"] = written.body["status"]["conditions"].clone();
        let (all, script) = shared(Caches::empty(), 0, vec![listed(told), listed(pool(json!(1)))]);
        report::<WindowsNodePool>(&all.management, &key, &Selection::default()).await.expect("it is said already");
        report::<WindowsNodePool>(&all.management, &key, &Selection::default()).await.expect("it was fixed meanwhile");
        assert_eq!(script.seen().len(), 2);
    }

    fn metadata(name: &str) -> ObjectMeta {
        ObjectMeta { namespace: Some("lab".into()), name: Some(name.into()), ..ObjectMeta::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_that_are_refused_do_not_hold_up_others() {
        let pools = format!("GET {POOLS}");
        let refused: fn(&str) -> Exchange = |request| refuse(request, 403, "Forbidden");
        for (answer, requests) in [(refused, AT_ONCE + 1), (hang as fn(&str) -> Exchange, AT_ONCE)] {
            let answers = std::iter::repeat_with(|| answer(&pools)).take(AT_ONCE).chain((requests > AT_ONCE).then(|| listed(pool(json!(1)))));
            let (all, script) = shared(Caches::empty(), 0, answers.collect());
            let watch = &all.caches.pools.0;
            (0..=AT_ONCE).for_each(|number| watch.unreadable().found(metadata(&format!("win-{number}"))));
            let selection = Selection::default();
            let reports = report_all(&all.management, watch, &selection, std::future::pending());
            assert!(tokio::time::timeout(TRY_AGAIN / 2, reports).await.is_err());
            assert_eq!(script.seen().len(), requests, "before the first of them is tried again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_changes_while_its_report_is_refused_is_tried_again_once() {
        let answers = (0..3).map(|_| refuse(&format!("GET {POOLS}"), 403, "Forbidden")).collect();
        let (all, script) = shared(Caches::empty(), 0, answers);
        let (watch, selection) = (&all.caches.pools.0, Selection::default());
        let find = || watch.unreadable().found(metadata("win"));
        find();
        let reports = report_all(&all.management, watch, &selection, std::future::pending());
        let change = async {
            tokio::time::sleep(TRY_AGAIN / 2).await;
            find();
        };
        assert!(tokio::time::timeout(TRY_AGAIN * 2 - TRY_AGAIN / 4, async { tokio::join!(reports, change) }).await.is_err());
        assert_eq!(script.seen().len(), 3, "at once, after the change, and after the delay");
    }
}
