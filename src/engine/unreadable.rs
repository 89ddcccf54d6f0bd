//! Objects that do not match their kind, because the schema, or another version of it, accepted them. Such an object gets no pass until it can be
//! read again, since its cached state is old. It still exists: code that counts objects, or releases what they need, counts it too.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::Stream;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::api::name::ObjectKey;

/// The unreadable objects of one kind. Clones share the list.
#[derive(Clone, Default)]
pub struct Unreadable(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    objects: HashMap<ObjectKey, ObjectMeta>,
    /// The objects that a new listing has not reported as unreadable yet.
    unlisted: HashSet<ObjectKey>,
    followers: Vec<UnboundedSender<ObjectKey>>,
}

impl Unreadable {
    pub(super) fn found(&self, object: ObjectMeta) {
        let (mut known, key) = (self.0.lock(), ObjectKey::of(&object));
        known.followers.retain(|follower| follower.unbounded_send(key.clone()).is_ok());
        known.unlisted.remove(&key);
        known.objects.insert(key, object);
    }

    /// Removes an object that the store has, or that was deleted.
    pub(super) fn settled(&self, object: &ObjectKey) {
        self.0.lock().objects.remove(object);
    }

    /// Starts a new listing: the known objects stay until it is complete.
    pub(super) fn listing(&self) {
        let mut known = self.0.lock();
        known.unlisted = known.objects.keys().cloned().collect();
    }

    /// Ends a listing: objects that it did not report as unreadable are in the store, or deleted.
    pub(super) fn listed(&self) {
        let known = &mut *self.0.lock();
        for gone in known.unlisted.drain() {
            known.objects.remove(&gone);
        }
    }

    pub(super) fn contains(&self, object: &ObjectKey) -> bool {
        self.0.lock().objects.contains_key(object)
    }

    /// Returns the metadata of all unreadable objects.
    pub(super) fn all(&self) -> Vec<ObjectMeta> {
        self.0.lock().objects.values().cloned().collect()
    }

    /// Streams the objects that are known now, then each that is found or changed.
    pub(super) fn follow(&self) -> impl Stream<Item = ObjectKey> + use<> {
        let (sender, receiver) = unbounded();
        let mut known = self.0.lock();
        for object in known.objects.keys() {
            let _ = sender.unbounded_send(object.clone());
        }
        known.followers.push(sender);
        receiver
    }
}
