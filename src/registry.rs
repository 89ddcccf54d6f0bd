//! Values that are shared by all users of the same key, while one of them is in use.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A list of few values: keys are compared one by one, so that they need no hash and no order.
pub struct Registry<K, V>(Mutex<Vec<(K, Weak<V>)>>);

impl<K, V> Default for Registry<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V> Registry<K, V> {
    /// Returns the value of that key, and creates it if none is in use.
    pub fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let Ok(value) = self.try_get(key, || Ok::<_, Infallible>(make()));
        value
    }

    /// As `get`, where creating the value may fail.
    pub fn try_get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut all = self.0.lock();
        all.retain(|(_, value)| value.strong_count() > 0);
        if let Some(value) = all.iter().find(|(known, _)| *known == key).and_then(|(_, value)| value.upgrade()) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        all.push((key, Arc::downgrade(&value)));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_for_its_key_while_it_is_in_use() {
        let registry = Registry::default();
        assert_eq!(registry.try_get("a", || Err::<i32, _>("no")), Err("no"));
        let one = registry.get("a", || 1);
        assert_eq!([*registry.get("a", || 2), *registry.get("b", || 3)], [1, 3]);
        drop(one);
        assert_eq!(*registry.get("a", || 4), 4);
        assert_eq!(registry.0.lock().len(), 1, "what nothing uses is forgotten");
    }
}
