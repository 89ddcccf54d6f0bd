//! A short-lived cache of an endpoint's named objects (images, networks).

use std::time::Duration;

use tokio::time::Instant;

/// How long a cached object is trusted.
pub const FRESH: Duration = Duration::from_secs(60);

/// Cached objects, by name.
pub struct Fresh<T>(Vec<(String, T, Instant)>);

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Fresh<T> {
    pub fn get(&mut self, name: &str) -> Option<T> {
        self.0.retain(|(_, _, since)| since.elapsed() < FRESH);
        self.0.iter().find(|(known, _, _)| known == name).map(|(_, found, _)| found.clone())
    }

    pub fn put(&mut self, name: &str, found: T) {
        self.0.push((name.to_owned(), found, Instant::now()));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Joins the names that exist, for an error about a missing name.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_believed_for_a_while() {
        let mut fresh = Fresh::default();
        fresh.put("a", 1);
        tokio::time::advance(FRESH - Duration::from_secs(1)).await;
        fresh.put("b", 2);
        assert_eq!((fresh.get("a"), fresh.get("b"), fresh.get("c")), (Some(1), Some(2), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((fresh.get("a"), fresh.get("b")), (None, Some(2)));
        fresh.clear();
        assert_eq!(fresh.get("b"), None);
    }

    #[test]
    fn names_are_sorted_and_none_is_said() {
        assert_eq!((listed(["b", "a"]), listed([])), ("a, b".to_owned(), "none".to_owned()));
    }
}
