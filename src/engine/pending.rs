//! Certificate requests that are not decided yet. Each is handled again until it is approved, denied or deleted, whatever the last result was: an
//! address may be reported later, a Node in the way may be deleted. The watch reports a request only once.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::followed::Followed;
use super::workload_clusters::WorkloadClusters;
use crate::api::cluster_ref::ClusterRef;
use crate::kinds::bootstrap_config::decide::csr::is_decided;
use crate::kube_api::csr;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The most requests of one workload cluster and signer that are handled at the same time.
const AT_ONCE: usize = 8;
/// The longest delay between two attempts to handle a request; the first delays are shorter.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The result of handling a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The request is decided or deleted.
    Done,
    /// The request does not match its machine. That may change.
    Refused,
    /// The request belongs to no known machine.
    Foreign,
    /// The owner of its machine is not known yet, e.g. because the Nodes of the cluster are still being listed.
    Unseen,
    Failed,
}

/// The change that a watch event reports.
#[derive(Debug)]
pub enum Shown {
    /// A listing is not complete yet.
    Nothing,
    /// All requests that exist.
    All(Vec<CertificateSigningRequest>),
    One(CertificateSigningRequest),
    Gone(CertificateSigningRequest),
}

/// The existing requests, by UID.
#[derive(Default)]
pub struct Pending {
    works: HashMap<String, Work>,
    begun: Vec<CertificateSigningRequest>,
}

struct Work {
    request: CertificateSigningRequest,
    /// The attempts in a row that ended without a judgement.
    tries: u32,
    next: Instant,
    is_running: bool,
    /// The result of the last attempt.
    handled: Option<Handled>,
}

impl Work {
    fn is_judged(&self) -> bool {
        matches!(self.handled, Some(Handled::Refused | Handled::Foreign))
    }

    fn requester(&self) -> Option<&str> {
        self.request.spec.username.as_deref()
    }
}

impl Pending {
    /// Stores an event of the watch. The returned change must be learned before a request is due.
    pub fn note(&mut self, event: Event<CertificateSigningRequest>, now: Instant) -> Shown {
        match event {
            Event::Init => self.begun.clear(),
            Event::InitApply(request) => self.begun.push(request),
            Event::InitDone => {
                let listed = std::mem::take(&mut self.begun);
                let there: HashSet<String> = listed.iter().map(uid).collect();
                self.works.retain(|uid, _| there.contains(uid));
                listed.iter().for_each(|request| self.add(request, now));
                return Shown::All(listed);
            }
            Event::Apply(request) => {
                self.add(&request, now);
                return Shown::One(request);
            }
            Event::Delete(request) => {
                self.works.remove(&uid(&request));
                return Shown::Gone(request);
            }
        }
        Shown::Nothing
    }

    fn add(&mut self, request: &CertificateSigningRequest, now: Instant) {
        let new = || Work { request: request.clone(), tries: 0, next: now, is_running: false, handled: None };
        let work = self.works.entry(uid(request)).or_insert_with(new);
        work.request = request.clone();
        if is_decided(request) {
            work.next = now;
        }
    }

    /// Returns the requests to handle now, at most `most`. From one requester comes one at a time.
    pub fn due(&mut self, now: Instant, most: usize) -> Vec<CertificateSigningRequest> {
        let mut requesters = HashSet::new();
        let due = self.free().into_iter().filter(|work| work.next <= now && requesters.insert(work.requester()));
        let due: Vec<CertificateSigningRequest> = due.take(most).map(|work| work.request.clone()).collect();
        for request in &due {
            if let Some(work) = self.works.get_mut(&uid(request)) {
                work.is_running = true;
            }
        }
        due
    }

    /// Returns when the next request is due.
    pub fn next(&self) -> Option<Instant> {
        self.free().into_iter().map(|work| work.next).min()
    }

    /// Returns the requests that may be handled, the oldest first, because it decides which key is the machine's. Younger requests of a requester
    /// wait until it is judged.
    fn free(&self) -> Vec<&Work> {
        let mut all: Vec<&Work> = self.works.values().collect();
        all.sort_by_cached_key(|work| (work.request.creation_timestamp(), work.request.name_any()));
        let mut held: HashSet<Option<&str>> = all.iter().filter(|work| work.is_running).map(|work| work.requester()).collect();
        all.retain(|work| {
            let is_free = !held.contains(&work.requester());
            if !work.is_judged() {
                held.insert(work.requester());
            }
            is_free
        });
        all
    }

    /// Stores the result of handling a request.
    pub fn settle(&mut self, uid: &str, handled: Handled, now: Instant) {
        if handled == Handled::Done {
            self.works.remove(uid);
        }
        let Some(work) = self.works.get_mut(uid) else { return };
        (work.is_running, work.handled) = (false, Some(handled));
        work.tries = if work.is_judged() { 0 } else { work.tries.saturating_add(1) };
        let soon = Duration::from_secs(1 << work.tries.saturating_sub(1).min(5)).min(LONGEST_WAIT);
        work.next = match work.is_judged() {
            // The request was decided while it was handled.
            _ if is_decided(&work.request) => now,
            true => now + LONGEST_WAIT,
            false => now + soon,
        };
    }

    /// Returns when the oldest request of one of our machines was created.
    pub fn oldest(&self) -> Option<Timestamp> {
        let is_ours = |work: &&Work| matches!(work.handled, Some(Handled::Refused | Handled::Unseen | Handled::Failed));
        self.works.values().filter(is_ours).filter_map(|work| work.request.creation_timestamp()).map(|created| created.0).min()
    }
}

fn uid(request: &CertificateSigningRequest) -> String {
    request.uid().unwrap_or_default()
}

/// A workload cluster whose requests are followed.
#[derive(Clone)]
pub struct Place {
    pub clusters: WorkloadClusters,
    pub cluster: ClusterRef,
    pub workload: Workload,
}

impl Place {
    pub fn new(clusters: &WorkloadClusters, cluster: &ClusterRef, workload: Workload) -> Self {
        Self { clusters: clusters.clone(), cluster: cluster.clone(), workload }
    }
}

/// How the requests for one signer are handled.
pub trait Signer: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    /// The name of the requests in the log.
    const WHAT: &'static str;
    /// The known facts about the requests of a cluster.
    type Known: Default;

    fn followed(&self) -> &Followed<Self::Known>;

    fn place(&self) -> &Place;

    /// Stores what requests reveal, before any of them is handled.
    fn learn(&self, shown: Shown);

    fn handle(&self, request: &CertificateSigningRequest) -> impl Future<Output = Result<Handled, WorkloadError>> + Send;
}

/// Follows the requests of one workload cluster until the task is aborted.
pub async fn follow<S: Signer>(signer: S) {
    let events = csr::events(&signer.place().workload, S::NAME);
    handle_all(signer, events).await;
}

/// Handles the events of a watch. No request waits for the answer to another one.
pub async fn handle_all<S: Signer>(signer: S, events: impl Stream<Item = Result<Event<CertificateSigningRequest>, WorkloadError>> + Send) {
    let (mut events, mut pending) = (std::pin::pin!(events), Pending::default());
    // The running tasks end with this task.
    let mut running = JoinSet::new();
    loop {
        for request in pending.due(Instant::now(), AT_ONCE - running.len()) {
            running.spawn(handle(signer.clone(), request));
        }
        signer.followed().tell_oldest(&signer.place().cluster, pending.oldest());
        let next = pending.next().filter(|_| running.len() < AT_ONCE);
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => signer.learn(pending.note(event, Instant::now())),
                Some(Err(error)) => failed(&signer, &error).await,
                None => return,
            },
            Some(done) = running.join_next() => {
                if let Ok((uid, handled)) = done {
                    pending.settle(&uid, handled, Instant::now());
                }
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

async fn handle<S: Signer>(signer: S, request: CertificateSigningRequest) -> (String, Handled) {
    let handled = match AssertUnwindSafe(signer.handle(&request)).catch_unwind().await {
        Ok(Ok(handled)) => handled,
        Ok(Err(error)) => {
            failed(&signer, &error).await;
            Handled::Failed
        }
        // A defect in CAPW; the panic message is in the log.
        Err(_) => Handled::Failed,
    };
    (uid(&request), handled)
}

async fn failed<S: Signer>(signer: &S, error: &WorkloadError) {
    let Place { clusters, cluster, .. } = signer.place();
    tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "{}: {error}", S::WHAT);
    clusters.note_error(cluster, error).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::read;

    /// A request that a requester created at that second.
    fn request(name: &str, requester: &str, second: u8) -> CertificateSigningRequest {
        read(json!({"metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"request": "", "signerName": "s", "username": requester}}))
    }

    fn decided(name: &str) -> CertificateSigningRequest {
        let mut request = request(name, "a", 0);
        request.status = read(json!({"conditions": [{"type": "Denied", "status": "True"}]}));
        request
    }

    fn names(requests: &[CertificateSigningRequest]) -> Vec<String> {
        requests.iter().map(ResourceExt::name_any).collect()
    }

    fn shown(requests: &[CertificateSigningRequest], now: Instant) -> Pending {
        let mut pending = Pending::default();
        for request in requests {
            pending.note(Event::Apply(request.clone()), now);
        }
        pending
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_failed_comes_again_however_many_events_there_are() {
        let start = Instant::now();
        let mut pending = shown(&[request("ours", "a", 0)], start);
        let mut tries = Vec::new();
        for second in 0..120_u8 {
            let now = start + SECOND * second.into();
            pending.note(Event::Apply(request("other", "b", 0)), now);
            pending.note(Event::Apply(request("ours", "a", 0)), now);
            for due in names(&pending.due(now, 8)) {
                if due == "ours" {
                    tries.push(second);
                }
                pending.settle(&due, if due == "ours" { Handled::Failed } else { Handled::Foreign }, now);
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 61, 91]);
    }

    #[test]
    fn a_refusal_holds_for_half_a_minute() {
        let start = Instant::now();
        let mut pending = shown(&[request("ours", "a", 0)], start);
        for round in 0..3 {
            let now = start + LONGEST_WAIT * round;
            assert_eq!(pending.due(now, 8).len(), 1, "{round}");
            assert_eq!((pending.due(now, 8).len(), pending.next()), (0, None), "it is being handled");
            pending.settle("ours", Handled::Refused, now);
            assert_eq!(pending.next(), Some(now + LONGEST_WAIT));
        }
    }

    #[test]
    fn one_request_of_a_requester_is_handled_at_a_time_and_the_oldest_first() {
        let start = Instant::now();
        let mut pending = shown(&[request("second", "a", 2), request("first", "a", 1), request("third", "b", 3)], start);
        assert_eq!(names(&pending.due(start, 1)), ["first"], "no more than that");
        assert_eq!(names(&pending.due(start, 7)), ["third"]);
        pending.settle("first", Handled::Failed, start);
        assert_eq!((pending.due(start, 8).len(), pending.next()), (0, Some(start + SECOND)), "the second waits for the first");
        assert_eq!(names(&pending.due(start + SECOND, 8)), ["first"]);
        pending.settle("first", Handled::Refused, start);
        assert_eq!(names(&pending.due(start, 8)), ["second"], "a refusal holds up no other");
    }

    #[test]
    fn what_is_decided_or_gone_is_left() {
        let start = Instant::now();
        let mut pending = shown(&[request("denied", "a", 0), request("gone", "b", 0), request("unlisted", "c", 0)], start);
        for due in names(&pending.due(start, 8)) {
            pending.settle(&due, Handled::Refused, start);
        }
        assert_eq!(pending.oldest(), Some("2026-01-01T00:00:00Z".parse().unwrap()));
        pending.note(Event::Delete(request("gone", "b", 0)), start);
        for event in [Event::Init, Event::InitApply(decided("denied")), Event::InitDone] {
            pending.note(event, start);
        }
        assert_eq!(names(&pending.due(start, 8)), ["denied"], "at once");
        pending.settle("denied", Handled::Done, start);
        pending.settle("gone", Handled::Failed, start);
        assert_eq!((pending.next(), pending.oldest()), (None, None));
    }

    #[test]
    fn requests_of_others_are_not_counted() {
        let start = Instant::now();
        let mut pending = shown(&[request("other", "a", 0), request("ours", "b", 5)], start);
        assert_eq!(pending.oldest(), None, "whose they are is not known yet");
        pending.settle("other", Handled::Foreign, start);
        pending.settle("ours", Handled::Unseen, start);
        assert_eq!(pending.oldest(), Some("2026-01-01T00:00:05Z".parse().unwrap()));
    }
}
