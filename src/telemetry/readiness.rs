//! What must be there before this process is ready, by name, so that a probe can say what is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The list of what is awaited. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<String, bool>>>);

impl Readiness {
    /// From now on, `name` must be met.
    pub fn expect(&self, name: &str) {
        self.0.lock().entry(name.to_owned()).or_insert(false);
    }

    pub fn met(&self, name: &str) {
        self.0.lock().insert(name.to_owned(), true);
    }

    /// What is not met yet, sorted by name.
    pub fn missing(&self) -> Vec<String> {
        self.0.lock().iter().filter(|(_, met)| !**met).map(|(name, _)| name.clone()).collect()
    }
}
