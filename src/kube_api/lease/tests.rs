use serde_json::{Value, json};

use crate::kube_api::lease::*;
use crate::kube_api::mock::{Exchange, Script, hang, refuse, step};

const ITEM: &str = "/apis/coordination.k8s.io/v1/namespaces/capw-system/leases/capw";
const LIST: &str = "/apis/coordination.k8s.io/v1/namespaces/capw-system/leases";

fn record(holder: &str, renewed: &str, version: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "capw", "namespace": "capw-system", "resourceVersion": version },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3, "renewTime": renewed },
    })
}

const T1: &str = "2020-01-01T00:00:00.000000Z";
const T2: &str = "2020-01-01T00:00:02.000000Z";

fn lease(steps: Vec<Exchange>) -> (Lease, Script) {
    let (client, script) = Script::new(steps);
    let clock: Clock = Arc::new(|| "2026-11-21T12:00:00Z".parse().unwrap());
    (Lease::new(client, Settings::new("capw-system", "capw", "me"), clock), script)
}

fn get(holder: &str, renewed: &str) -> Exchange {
    step(&format!("GET {ITEM}"), record(holder, renewed, "9"))
}

#[tokio::test]
async fn a_free_lease_is_taken_at_once() {
    let (mut lease, script) = lease(vec![refuse(&format!("GET {ITEM}"), 404, "NotFound"), step(&format!("POST {LIST}"), record("me", T1, "1"))]);
    lease.acquire().await;
    assert_eq!(script.seen()[1].body["spec"]["holderIdentity"], "me");
}

#[tokio::test]
async fn a_lease_that_was_given_back_is_taken_at_once_with_the_version_that_was_read() {
    let (mut lease, script) = lease(vec![get("", T1), step(&format!("PUT {ITEM}"), record("me", T1, "10"))]);
    lease.acquire().await;
    assert_eq!(script.seen()[1].body["metadata"]["resourceVersion"], "9");
    assert_eq!(script.seen()[1].body["spec"]["leaseTransitions"], 4);
}

#[tokio::test(start_paused = true)]
async fn another_holder_is_dead_only_when_seen_unchanged_for_its_duration() {
    // By our wall clock its renew time is years old, and yet it is alive: it changes once, after three reads.
    let mut steps: Vec<Exchange> = (0..3).map(|_| get("other", T1)).collect();
    steps.extend((0..9).map(|_| get("other", T2)));
    steps.push(step(&format!("PUT {ITEM}"), record("me", T2, "10")));
    let (mut lease, _script) = lease(steps);
    let start = Instant::now();
    lease.acquire().await;
    // Seen changed at 6 s, then unchanged until the first read 15 s later, at 22 s.
    assert_eq!(start.elapsed().as_secs(), 22);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_lost_when_another_process_took_it() {
    let (mut lease, _script) = lease(vec![get("", T1), step(&format!("PUT {ITEM}"), record("me", T1, "10")), get("other", T2)]);
    lease.acquire().await;
    assert_eq!(lease.hold().await, "other took it");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_up_before_others_may_take_it() {
    let mut steps = vec![get("", T1), step(&format!("PUT {ITEM}"), record("me", T1, "10"))];
    steps.extend((0..4).map(|_| refuse(&format!("GET {ITEM}"), 500, "InternalError")));
    let (mut lease, _script) = lease(steps);
    lease.acquire().await;
    let start = Instant::now();
    assert!(lease.hold().await.contains("could not be renewed"));
    assert!(start.elapsed() <= lease.settings.renew_deadline, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_graceful_stop_gives_it_back_and_touches_no_other_holder() {
    let (mut lease, script) = lease(vec![get("me", T1), step(&format!("PUT {ITEM}"), record("", T1, "10")), get("other", T1)]);
    lease.release().await.unwrap();
    assert_eq!(script.seen()[1].body["spec"]["holderIdentity"], "");
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_once_does_not_lose_the_lease() {
    let write = || step(&format!("PUT {ITEM}"), record("me", T1, "10"));
    let (mut lease, script) = lease(vec![get("", T1), write(), hang(&format!("GET {ITEM}")), get("me", T1), write(), get("other", T2)]);
    lease.acquire().await;
    assert_eq!(lease.hold().await, "other took it");
    assert_eq!(script.seen().len(), 6);
}
