use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde_json::json;

use crate::kube_api::events::*;
use crate::kube_api::mock::{Exchange, Script, refuse, step};

const PATH: &str = "POST /apis/events.k8s.io/v1/namespaces/lab/events";

fn object(uid: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some("a".into()), namespace: Some("lab".into()), uid: Some(uid.into()), ..Default::default() },
        ..Default::default()
    }
}

fn events(steps: Vec<Exchange>) -> (Events, Script, Arc<AtomicUsize>) {
    let (client, script) = Script::new(steps);
    let lost = Arc::new(AtomicUsize::new(0));
    let counter = lost.clone();
    let count: Count = Arc::new(move |outcome| {
        if outcome == "lost" {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    (Events::new(client, "pod-1", count), script, lost)
}

fn made() -> Exchange {
    step(PATH, json!({ "metadata": {}, "eventTime": null }))
}

#[tokio::test(start_paused = true)]
async fn one_event_for_each_change_of_mind() {
    let (events, script, _) = events((0..5).map(|_| made()).collect());
    events.warning(&object("u1"), Reason::ImageMissing, "Create", "no image a").await;
    events.warning(&object("u1"), Reason::ImageMissing, "Create", "no image a").await;
    events.warning(&object("u1"), Reason::ImageMissing, "Create", "no image b").await;
    events.warning(&object("u1"), Reason::ImageMissing, "Create", "no image a").await;
    events.warning(&object("u2"), Reason::ImageMissing, "Create", "no image a").await;
    tokio::time::advance(TOLD + Duration::from_secs(1)).await;
    events.warning(&object("u2"), Reason::ImageMissing, "Create", "no image a").await;
    let seen = script.seen();
    assert_eq!(seen[1].body["note"], "no image b");
    assert_eq!(seen[1].body["regarding"]["uid"], "u1");
    assert_eq!((seen[1].body["type"].as_str(), seen[1].body["reason"].as_str()), (Some("Warning"), Some("ImageMissing")));
}

#[tokio::test]
async fn a_refused_event_is_counted_and_nothing_else() {
    let (events, _script, lost) = events(vec![refuse(PATH, 403, "Forbidden")]);
    events.warning(&object("u1"), Reason::ImageMissing, "Create", "no image a").await;
    assert_eq!(lost.load(Ordering::SeqCst), 1);
}

#[test]
fn notes_are_cut_between_characters() {
    let note = "ä".repeat(800);
    assert_eq!(cut(&note).len(), 1_000);
    assert_eq!(cut(&format!("a{note}")).len(), 999);
}
