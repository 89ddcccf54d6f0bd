mod slots;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::engine::controller::*;
use crate::engine::watch::{Selection, Watching};
use crate::hypervisor::DriverError;
use crate::kube_api::error::ApiError;
use crate::kube_api::guarded::Guarded;
use crate::kube_api::workload::WorkloadError;
use crate::telemetry::Readiness;

type Event = watcher::Result<watcher::Event<Guarded<ConfigMap>>>;

/// A controller of ConfigMaps whose watch events the test sends.
struct Stage {
    events: mpsc::UnboundedSender<Event>,
    watching: Watching,
    watch: Arc<Watch<ConfigMap>>,
    controller: ControllerLoop,
}

fn object(name: &str, version: u64) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        namespace: Some("lab".into()),
        uid: Some(format!("uid-{name}")),
        resource_version: Some(version.to_string()),
        ..Default::default()
    };
    ConfigMap { metadata, ..Default::default() }
}

fn broken(name: &str, version: u64) -> Guarded<ConfigMap> {
    Guarded(Err(InvalidObject { error: "no".into(), metadata: object(name, version).metadata }))
}

impl Stage {
    /// Objects of version 1 with these names exist.
    fn new(names: &[&str]) -> Self {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no server"))
        });
        let stop = CancellationToken::new();
        let watching = Watching {
            client: Client::new(service, "default"),
            selection: Selection::default(),
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            stop: stop.clone(),
        };
        let (events, stream) = mpsc::unbounded();
        let watch = Arc::new(Watch::over(&watching, stream));
        let controller = ControllerLoop {
            concurrency: 4,
            selection: Selection::default(),
            metrics: watching.metrics.clone(),
            written: Written::default(),
            passes: Default::default(),
            stop,
        };
        let stage = Self { events, watching, watch, controller };
        stage.tell(Ok(watcher::Event::Init));
        for name in names {
            stage.tell(Ok(watcher::Event::InitApply(Guarded(Ok(object(name, 1))))));
        }
        stage.tell(Ok(watcher::Event::InitDone));
        stage
    }

    fn tell(&self, event: Event) {
        self.events.unbounded_send(event).unwrap();
    }

    fn change(&self, name: &str, version: u64) {
        self.tell(Ok(watcher::Event::Apply(Guarded(Ok(object(name, version))))));
    }

    fn run<F, R>(&self, reconcile: F) -> tokio::task::JoinHandle<()>
    where
        F: Fn(Arc<ConfigMap>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let (controller, watch) = (self.controller.clone(), self.watch.clone());
        tokio::spawn(async move { controller.run("test", &watch, vec![], reconcile).await })
    }
}

/// Waits, in virtual time, until the count is reached.
async fn reaches(count: &AtomicUsize, wanted: usize) {
    let reached = async {
        while count.load(Ordering::SeqCst) < wanted {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(600), reached).await.unwrap_or_else(|_| panic!("{} of {wanted} passes", count.load(Ordering::SeqCst)));
}

#[tokio::test(start_paused = true)]
async fn passes_of_one_object_never_overlap_and_those_of_all_are_limited() {
    let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    let stage = Stage::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (running, most, done) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (r, m, d) = (running.clone(), most.clone(), done.clone());
    let task = stage.run(move |object| {
        let (running, most, done) = (r.clone(), m.clone(), d.clone());
        async move {
            {
                let mut running = running.lock();
                assert!(running.insert(object.name_any()), "two passes at a time for {}", object.name_any());
                most.fetch_max(running.len(), Ordering::SeqCst);
            }
            sleep(Duration::from_secs(1)).await;
            running.lock().remove(&object.name_any());
            done.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::done())
        }
    });
    for version in 2..5 {
        for name in &names {
            stage.change(name, version);
        }
        sleep(Duration::from_millis(300)).await;
    }
    // Twenty first passes, and second passes for the four objects that changed while their pass ran; a waiting object takes all changes at once.
    reaches(&done, 24).await;
    stage.controller.stop.cancel();
    task.await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert!(!stage.controller.metrics.text().contains("outcome=\"defect\""));
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_waits_for_an_answer_has_not_failed() {
    let (stage, passes) = (Stage::new(&["a"]), Arc::new(AtomicUsize::new(0)));
    let counted = passes.clone();
    let task = stage.run(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(WorkloadError::NotReached { cluster: "c1".into() }.into()) }
    });
    reaches(&passes, 1).await;
    sleep(Duration::from_secs(200)).await;
    assert_eq!(passes.load(Ordering::SeqCst), 1, "the answer triggers the next pass");
    reaches(&passes, 2).await;
    stage.controller.stop.cancel();
    task.await.unwrap();
    let text = stage.controller.metrics.text();
    assert!(text.contains("outcome=\"requeue\"") && !text.contains("not_reached"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_a_success_resets() {
    let stage = Stage::new(&["a"]);
    let times = Arc::new(Mutex::new(Vec::new()));
    let (seen, fails, passes) = (times.clone(), Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (failing, count) = (fails.clone(), passes.clone());
    let task = stage.run(move |_| {
        seen.lock().push(Instant::now());
        count.fetch_add(1, Ordering::SeqCst);
        let fails = failing.load(Ordering::SeqCst);
        async move { if fails { Err(ReconcileError::Api(ApiError::Unreachable("x".into()))) } else { Ok(Outcome::done()) } }
    });
    reaches(&passes, 8).await;
    let gaps: Vec<f64> = times.lock().windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
    for (gap, nominal) in gaps.iter().zip([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]) {
        assert!((nominal * 0.79..nominal * 1.21).contains(gap), "{gaps:?}");
    }
    fails.store(false, Ordering::SeqCst);
    reaches(&passes, 9).await;
    fails.store(true, Ordering::SeqCst);
    stage.change("a", 2);
    reaches(&passes, 11).await;
    let gap = {
        let times = times.lock();
        times[10] - times[9]
    };
    assert!(gap < Duration::from_millis(700), "{gap:?}");
    stage.controller.stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_pass_and_no_controller() {
    let stage = Stage::new(&["bad", "good"]);
    let good = Arc::new(AtomicUsize::new(0));
    let count = good.clone();
    let task = stage.run(move |object| {
        let count = count.clone();
        async move {
            assert!(object.name_any() != "bad", "a defect");
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::requeue_after(Duration::from_secs(1)))
        }
    });
    reaches(&good, 5).await;
    assert!(stage.controller.metrics.text().contains("capw_reconciles_total{controller=\"test\",outcome=\"defect\"}"));
    stage.controller.stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_running_pass_finish_and_starts_no_other() {
    let stage = Stage::new(&["a"]);
    let (begun, passes, finished) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (b, p, f) = (begun.clone(), passes.clone(), finished.clone());
    let task = stage.run(move |_| {
        let (begun, passes, finished) = (b.clone(), p.clone(), f.clone());
        async move {
            passes.fetch_add(1, Ordering::SeqCst);
            begun.notify_one();
            sleep(Duration::from_secs(5)).await;
            finished.store(true, Ordering::SeqCst);
            Ok(Outcome::now())
        }
    });
    begun.notified().await;
    stage.controller.stop.cancel();
    task.await.unwrap();
    assert!(finished.load(Ordering::SeqCst));
    assert_eq!(passes.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn no_pass_works_with_a_cache_older_than_our_own_write() {
    let stage = Stage::new(&["a"]);
    let (versions, passes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (seen, count, written) = (versions.clone(), passes.clone(), stage.controller.written.clone());
    let task = stage.run(move |object| {
        seen.lock().push(object.resource_version().unwrap());
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            written.note(&self::object("a", 7));
        }
        let first = count.load(Ordering::SeqCst) == 1;
        async move { Ok(if first { Outcome::now() } else { Outcome::done() }) }
    });
    reaches(&passes, 1).await;
    stage.change("a", 6);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(passes.load(Ordering::SeqCst), 1, "the watch has not brought version 7 yet");
    stage.change("a", 7);
    reaches(&passes, 2).await;
    assert_eq!(*versions.lock().last().unwrap(), "7");
    stage.controller.stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_and_a_failing_watch_stop_nothing() {
    let stage = Stage::new(&["a"]);
    stage.watch.ready().await;
    assert!(stage.watching.readiness.missing().is_empty());
    let malformed: Guarded<ConfigMap> =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "x", "namespace": "lab" }, "data": 5 })).unwrap();
    stage.tell(Ok(watcher::Event::Apply(malformed)));
    stage.tell(Err(watcher::Error::NoResourceVersion));
    let mut seen = std::pin::pin!(stage.watch.subscribe());
    assert_eq!(seen.next().await.unwrap().name_any(), "a", "what is there already");
    stage.change("b", 2);
    assert_eq!(seen.next().await.unwrap().name_any(), "b");
    let text = stage.watching.metrics.text();
    assert!(text.contains("capw_malformed_objects_total{kind=\"configmaps\"} 1"), "{text}");
    assert!(text.contains("capw_watch_errors_total{kind=\"configmaps\"} 1"), "{text}");
    // "a" was deleted while the watch was down.
    stage.tell(Ok(watcher::Event::Init));
    stage.tell(Ok(watcher::Event::InitApply(Guarded(Ok(object("b", 3))))));
    stage.tell(Ok(watcher::Event::InitDone));
    assert_eq!(seen.next().await.unwrap().name_any(), "a", "its end is told");
    assert!(stage.watch.store().get(&ObjectRef::new("a").within("lab")).is_none());
}

#[test]
fn the_other_side_may_ask_for_more_time_than_the_back_off() {
    let busy = ReconcileError::Driver(DriverError::Busy { after: Duration::from_secs(120) });
    assert_eq!(delay(&busy, 1, "a"), Duration::from_secs(120));
    let soon = ReconcileError::Api(ApiError::Conflict(String::new()));
    assert!(delay(&soon, 1, "a") < Duration::from_millis(50));
    assert!(delay(&soon, 40, "a") < Duration::from_secs(7));
    assert!(delay(&ReconcileError::Invalid(String::new()), 1, "a") > Duration::from_secs(200));
}

#[test]
fn who_takes_the_last_finalizer_away_is_not_asked_again() {
    let written = Written::default();
    let mut cached = object("a", 7);
    cached.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    cached.metadata.finalizers = Some(vec!["ours".into(), "theirs".into()]);
    let mut answer = cached.clone();
    answer.metadata.finalizers = Some(vec!["theirs".into()]);
    written.note(&answer);
    assert!(!written.is_stale(&cached), "it lives on");
    // The API server answers with the unchanged version of the object.
    answer.metadata.finalizers = None;
    written.note(&answer);
    assert!(written.is_stale(&cached), "it is gone, and the cache does not know yet");
    let mut again = object("a", 9);
    again.metadata.uid = Some("another".into());
    assert!(!written.is_stale(&again), "recreated");
    assert!(!written.is_stale(&cached), "nothing is remembered of what is gone");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_gets_no_pass_until_it_can_and_goes_when_it_is_deleted() {
    let stage = Stage::new(&["a"]);
    let passes = Arc::new(AtomicUsize::new(0));
    let count = passes.clone();
    let _task = stage.run(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(Outcome::requeue_after(Duration::from_secs(1))) }
    });
    reaches(&passes, 2).await;
    let broken = || broken("a", 2);
    stage.tell(Ok(watcher::Event::Apply(broken())));
    sleep(Duration::from_millis(1)).await;
    let before = passes.load(Ordering::SeqCst);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(passes.load(Ordering::SeqCst), before, "what the cache knows of it is old");
    stage.change("a", 3);
    reaches(&passes, before + 2).await;
    stage.tell(Ok(watcher::Event::Apply(broken())));
    stage.tell(Ok(watcher::Event::Delete(broken())));
    sleep(Duration::from_secs(1)).await;
    assert!(stage.watch.store().state().is_empty(), "a deleted object stays in the cache");
}

#[tokio::test(start_paused = true)]
async fn only_objects_that_the_watch_filter_selects_get_a_pass_and_all_are_known() {
    let mut stage = Stage::new(&["a"]);
    stage.controller.selection.watch_filter = Some("mine".into());
    let passes = Arc::new(AtomicUsize::new(0));
    let count = passes.clone();
    let _task = stage.run(move |object| {
        assert_eq!(object.name_any(), "b");
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(Outcome::done()) }
    });
    let mut mine = object("b", 2);
    mine.metadata.labels = Some([(crate::api::capi::WATCH_FILTER_LABEL.to_owned(), "mine".to_owned())].into());
    stage.tell(Ok(watcher::Event::Apply(Guarded(Ok(mine)))));
    reaches(&passes, 1).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((passes.load(Ordering::SeqCst), stage.watch.store().state().len()), (1, 2));
}

/// Every watch lists again from time to time. An unreadable object in the list must not count as deleted.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stays_when_all_are_listed_again() {
    let stage = Stage::new(&["a", "gone"]);
    let passes = Arc::new(AtomicUsize::new(0));
    let count = passes.clone();
    let _task = stage.run(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(Outcome::done()) }
    });
    reaches(&passes, 2).await;
    let names = || {
        let held: Vec<String> = stage.watch.store().state().iter().map(|object| object.name_any()).collect();
        (held, stage.watch.never_read().into_iter().filter_map(|meta| meta.name).collect::<Vec<_>>())
    };
    for name in ["a", "gone", "b"] {
        stage.tell(Ok(watcher::Event::Apply(broken(name, 2))));
    }
    let listed = |objects: Vec<Guarded<ConfigMap>>| {
        stage.tell(Ok(watcher::Event::Init));
        objects.into_iter().for_each(|object| stage.tell(Ok(watcher::Event::InitApply(object))));
        stage.tell(Ok(watcher::Event::InitDone));
    };
    listed(vec![broken("a", 2), broken("b", 2)]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(names(), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!(passes.load(Ordering::SeqCst), 2, "neither gets a pass");

    // The object was recreated while the watch was down, and the new one was never readable.
    let mut again = object("a", 3).metadata;
    again.uid = Some("another".into());
    listed(vec![Guarded(Err(InvalidObject { error: "no".into(), metadata: again })), Guarded(Ok(object("b", 3)))]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(), (vec!["b".to_owned()], vec!["a".to_owned()]), "the second can be read by now");
    stage.tell(Ok(watcher::Event::Delete(broken("a", 4))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(), (vec!["b".to_owned()], vec![]));
}
