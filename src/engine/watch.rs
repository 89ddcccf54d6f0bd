//! One watch and one cache per kind, shared by all controllers.
//!
//! Each watch has its own back-off, and its errors end here, counted and logged: merged into a controller, the error of one watch would pause all
//! of them (`docs/design/faults.md#watches`). An object that does not match its kind does not stop the watch: it is `Unreadable`, and the cache
//! keeps its last readable version, whether the object is changed or listed again.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::merged::merged;
use super::unreadable::Unreadable;
use crate::api::capi::WATCH_FILTER_LABEL;
use crate::api::name::ObjectKey;
use crate::api::namespaces::Namespaces;
use crate::kube_api::cluster::Kind;
use crate::kube_api::guarded::Guarded;
use crate::kube_api::watches;
use crate::telemetry::{Metrics, Readiness};

/// The objects that this process works on.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub namespaces: Namespaces,
    /// Only objects with this value of the label `cluster.x-k8s.io/watch-filter`.
    pub watch_filter: Option<String>,
    /// More labels, e.g. `cluster.x-k8s.io/cluster-name`.
    pub labels: Option<String>,
}

impl Selection {
    /// Whether the watch filter selects an object of a kind that is watched without it.
    pub fn selects(&self, meta: &ObjectMeta) -> bool {
        let label = meta.labels.as_ref().and_then(|labels| labels.get(WATCH_FILTER_LABEL));
        self.watch_filter.is_none() || self.watch_filter.as_ref() == label
    }

    /// Returns the selection without the filter, for kinds whose objects do not carry the label.
    pub fn unfiltered(&self) -> Self {
        Self { watch_filter: None, ..self.clone() }
    }

    fn config(&self) -> watcher::Config {
        let filter = self.watch_filter.as_ref().map(|value| format!("{WATCH_FILTER_LABEL}={value}"));
        let labels: Vec<String> = filter.into_iter().chain(self.labels.clone()).collect();
        let config = watches::settings();
        if labels.is_empty() { config } else { config.labels(&labels.join(",")) }
    }
}

/// The settings and shared parts that every watch needs.
#[derive(Clone)]
pub struct Watching {
    pub client: Client,
    pub selection: Selection,
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub stop: CancellationToken,
}

impl Watching {
    /// Streams the events of the selected objects of a kind: one request that stays open, or one per namespace.
    fn events<K: Kind>(&self) -> BoxStream<'static, watcher::Result<watcher::Event<Guarded<K>>>> {
        let watch = |api: Api<Guarded<K>>| watcher(api, self.selection.config()).default_backoff().boxed();
        match &self.selection.namespaces {
            Namespaces::All => watch(Api::all(self.client.clone())),
            Namespaces::Named(names) => {
                let all = names.iter().map(|name| (name.clone(), watch(Api::namespaced(self.client.clone(), name))));
                merged(all.collect()).boxed()
            }
        }
    }
}

/// A running watch with its cache.
pub struct Watch<K: Kind> {
    store: Store<K>,
    subscribers: Subscribers<K>,
    unreadable: Unreadable,
}

type Subscribers<K> = Arc<Mutex<Vec<mpsc::UnboundedSender<Arc<K>>>>>;

impl<K: Kind> Watch<K> {
    /// Starts the watch, which runs until `watching.stop`.
    pub fn start(watching: &Watching) -> Self {
        Self::over(watching, watching.events())
    }

    /// As [`Watch::start`], for a kind that may not be installed: the cache is ready and empty until the API server serves it.
    pub fn start_optional(watching: &Watching) -> Self {
        let (first, later) = (watching.client.clone(), watching.client.clone());
        let meanwhile =
            stream::once(
                async move { if is_served::<K>(&first).await { vec![] } else { vec![Ok(watcher::Event::Init), Ok(watcher::Event::InitDone)] } },
            );
        let served = stream::once(async move {
            while !is_served::<K>(&later).await {
                tokio::time::sleep(INSTALLED).await;
            }
            Vec::new()
        });
        let events = meanwhile.chain(served).flat_map(stream::iter).chain(watching.events());
        Self::over(watching, events)
    }

    /// An empty cache that never changes, for a kind that this process does not use and may not read.
    pub fn unused() -> Self {
        Self::holding(Vec::new())
    }

    /// A cache with these objects that never changes.
    pub(crate) fn holding(objects: Vec<K>) -> Self {
        let (store, mut writer) = reflector::store::<K>();
        writer.apply_watcher_event(&watcher::Event::Init);
        for object in objects {
            writer.apply_watcher_event(&watcher::Event::InitApply(object));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        Self { store, subscribers: Subscribers::default(), unreadable: Unreadable::default() }
    }

    /// A cache that never changes, with objects some of which cannot be read.
    #[cfg(test)]
    pub(crate) fn holding_unreadable(objects: Vec<Guarded<K>>) -> Self {
        let mut readable = Vec::new();
        let unreadable = Unreadable::default();
        for object in objects {
            match object.0 {
                Ok(object) => readable.push(object),
                Err(invalid) => unreadable.found(invalid.metadata),
            }
        }
        Self { unreadable, ..Self::holding(readable) }
    }

    pub(crate) fn over(watching: &Watching, events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send + 'static) -> Self {
        let (store, writer) = reflector::store::<K>();
        let watch = Self { store, subscribers: Subscribers::default(), unreadable: Unreadable::default() };
        let name = format!("watch of {}", K::plural(&()));
        watching.readiness.expect(&name);
        let sink = Sink {
            writer,
            subscribers: watch.subscribers.clone(),
            store: watch.store.clone(),
            unreadable: watch.unreadable.clone(),
            watching: watching.clone(),
            name,
        };
        tokio::spawn(sink.run(events));
        watch
    }

    /// The cache, which is empty until [`Watch::ready`].
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// The objects that do not match their kind.
    pub fn unreadable(&self) -> Unreadable {
        self.unreadable.clone()
    }

    /// Returns the metadata of the objects that could never be read: the cache does not hold them. Call this before reading the cache, since an
    /// object that becomes readable moves from here to the cache.
    pub fn never_read(&self) -> Vec<ObjectMeta> {
        let mut all = self.unreadable.all();
        all.retain(|meta| last(&self.store, meta).is_none());
        all
    }

    /// Returns when the cache holds everything that existed at the start.
    pub async fn ready(&self) {
        // The writer lives as long as the process; if its task has ended, this task ends soon too.
        let _ = self.store.wait_until_ready().await;
    }

    /// Streams every object that exists now, then each that is created, changed or deleted. The queue is unbounded: subscribers must be quick.
    pub fn subscribe(&self) -> impl Stream<Item = Arc<K>> + Send + use<K> {
        let (sender, receiver) = mpsc::unbounded();
        let mut subscribers = self.subscribers.lock();
        for object in self.store.state() {
            let _ = sender.unbounded_send(object);
        }
        subscribers.push(sender);
        receiver
    }

    /// As [`Watch::subscribe`], mapped to the objects of another kind that need a pass.
    pub fn map<T: Kind, I>(&self, map: impl Fn(&K) -> I + Send + 'static) -> futures::stream::BoxStream<'static, ObjectRef<T>>
    where
        I: IntoIterator<Item = ObjectRef<T>> + Send + 'static,
        I::IntoIter: Send,
    {
        self.subscribe().flat_map(move |object| futures::stream::iter(map(&object))).boxed()
    }
}

/// The time between two checks whether a kind is installed.
const INSTALLED: Duration = Duration::from_secs(15);

/// Whether the API server serves the kind; retries until the API server answers.
async fn is_served<K: Kind>(client: &Client) -> bool {
    loop {
        match client.list_api_group_resources(&K::api_version(&())).await {
            Ok(found) => return found.resources.iter().any(|r| r.name == K::plural(&())),
            // The answer for a group that is not served is no Status: only its code is reliable.
            Err(kube::Error::Api(status)) if status.code == 404 => return false,
            Err(error) => {
                tracing::debug!(kind = %K::kind(&()), %error, "whether the kind is installed is asked again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

struct Sink<K: Kind> {
    writer: Writer<K>,
    subscribers: Subscribers<K>,
    store: Store<K>,
    unreadable: Unreadable,
    watching: Watching,
    name: String,
}

impl<K: Kind> Sink<K> {
    async fn run(mut self, events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send) {
        let mut events = std::pin::pin!(events.take_until(self.watching.stop.clone().cancelled_owned()));
        let mut failing = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!(watch = self.name, "the watch recovered");
                    }
                    self.apply(event);
                }
                Err(error) => {
                    self.watching.metrics.watch_error(&K::plural(&()));
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(watch = self.name, %error, "the watch failed, retrying");
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: watcher::Event<Guarded<K>>) {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let event = match event {
            Apply(object) => self.read(object).ok().map(Apply),
            // An object that is missing from a listing counts as deleted.
            InitApply(object) => self.read(object).or_else(|meta| last(&self.store, &meta).ok_or(meta)).ok().map(InitApply),
            Delete(object) => self.deleted(object).map(Delete),
            Init => {
                self.unreadable.listing();
                Some(Init)
            }
            InitDone => Some(InitDone),
        };
        let Some(event) = event else { return };
        let mut subscribers = self.subscribers.lock();
        let complete = matches!(event, InitDone);
        let before = if complete { self.store.state() } else { Vec::new() };
        self.writer.apply_watcher_event(&event);
        // A readable object is in the store before it is removed from the unreadable ones, so it is always in one of the two.
        let touched: Vec<Arc<K>> = match event {
            Apply(object) | Delete(object) => {
                self.unreadable.settled(&ObjectKey::of(object.meta()));
                vec![Arc::new(object)]
            }
            // A new listing: the objects that exist now, and the objects that were deleted while the watch was down.
            InitDone => {
                self.unreadable.listed();
                let gone = before.into_iter().filter(|old| self.store.get(&ObjectRef::from_obj(&**old)).is_none());
                gone.chain(self.store.state()).collect()
            }
            Init | InitApply(_) => Vec::new(),
        };
        subscribers.retain(|subscriber| touched.iter().all(|object| subscriber.unbounded_send(object.clone()).is_ok()) && !subscriber.is_closed());
        drop(subscribers);
        if complete {
            self.watching.readiness.met(&self.name);
        }
    }

    /// Returns the object, or the metadata of an unreadable one.
    fn read(&self, object: Guarded<K>) -> Result<K, Box<ObjectMeta>> {
        match object.0 {
            Ok(object) => Ok(object),
            Err(invalid) => {
                self.watching.metrics.malformed(&K::plural(&()));
                let key = ObjectKey::of(&invalid.metadata);
                tracing::warn!(
                    watch = self.name,
                    namespace = key.namespace,
                    name = key.name,
                    error = invalid.error,
                    "skipping an object that does not match its CRD"
                );
                self.unreadable.found(invalid.metadata.clone());
                Err(Box::new(invalid.metadata))
            }
        }
    }

    fn deleted(&self, object: Guarded<K>) -> Option<K> {
        match object.0 {
            Ok(_) => self.read(object).ok(),
            Err(invalid) => {
                self.unreadable.settled(&ObjectKey::of(&invalid.metadata));
                last(&self.store, &invalid.metadata)
            }
        }
    }
}

/// Returns the last readable version of an object.
fn last<K: Kind>(store: &Store<K>, meta: &ObjectMeta) -> Option<K> {
    let key = ObjectKey::of(meta);
    let known = store.get(&ObjectRef::new(&key.name).within(&key.namespace))?;
    (known.meta().uid == meta.uid).then(|| (*known).clone())
}
