//! The versions that this process wrote last, so that no pass works with a cache that is older than they are.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::name::ObjectKey;
use crate::kube_api::cluster::Kind;

/// The UID and version of an object, by its kind and key.
type Versions = HashMap<(String, ObjectKey), (String, u64)>;

/// The versions that were written last. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<Versions>>);

impl Written {
    /// Must be called with every object that a write returned.
    pub fn note<K: Kind>(&self, object: &K) {
        if let Some((uid, version)) = version(object.meta()) {
            // The write that removes the last finalizer returns the object with its old version: no later version follows.
            let gone = object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty();
            let version = if gone { u64::MAX } else { version };
            self.0.lock().insert(key_of(object), (uid, version));
        }
    }

    /// Whether the cached object is older than the version that was written last.
    pub(super) fn is_stale<K: Kind>(&self, cached: &K) -> bool {
        let Some((uid, seen)) = version(cached.meta()) else { return false };
        let mut all = self.0.lock();
        let key = key_of(cached);
        match all.get(&key) {
            Some((of, written)) if *of == uid && seen < *written => true,
            Some(_) => {
                all.remove(&key);
                false
            }
            None => false,
        }
    }

    pub(super) fn forget<K: Kind>(&self, key: &ObjectKey) {
        self.0.lock().remove(&(K::kind(&()).into_owned(), key.clone()));
    }
}

fn key_of<K: Kind>(object: &K) -> (String, ObjectKey) {
    (K::kind(&()).into_owned(), ObjectKey::of(object.meta()))
}

/// Versions of one object are numbers that grow (KEP-5504); a server with other versions switches the guard off.
fn version(metadata: &ObjectMeta) -> Option<(String, u64)> {
    Some((metadata.uid.clone()?, metadata.resource_version.as_ref()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;

    fn secret(uid: &str, version: &str) -> Secret {
        serde_json::from_value(json!({"metadata": {"namespace": "lab", "name": "a", "uid": uid, "resourceVersion": version}})).unwrap()
    }

    #[test]
    fn a_cache_that_is_behind_our_own_write_is_stale() {
        let written = Written::default();
        assert!(!written.is_stale(&secret("u", "1")), "nothing was written");
        written.note(&secret("u", "5"));
        assert!(written.is_stale(&secret("u", "4")));
        assert!(!written.is_stale(&secret("another", "4")), "recreated");
        written.note(&secret("u", "5"));
        assert!(!written.is_stale(&secret("u", "5")));
    }
}
