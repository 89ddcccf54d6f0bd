//! The conditions for this process to be ready, by name, so that a probe can report the missing ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The expected conditions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<String, bool>>>);

impl Readiness {
    /// Adds the condition `name`, which must be met from now on.
    pub fn expect(&self, name: &str) {
        self.0.lock().entry(name.to_owned()).or_insert(false);
    }

    pub fn met(&self, name: &str) {
        self.0.lock().insert(name.to_owned(), true);
    }

    /// Returns the conditions that are not met, sorted by name.
    pub fn missing(&self) -> Vec<String> {
        self.0.lock().iter().filter(|(_, met)| !**met).map(|(name, _)| name.clone()).collect()
    }
}
