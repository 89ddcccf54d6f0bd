//! Merges the watches of several namespaces into one: a cache is complete when each namespace is complete.

use std::collections::HashMap;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::runtime::watcher::{Event, Result};

/// The known objects of one namespace.
struct Listed<K> {
    objects: HashMap<String, K>,
    /// A listing that is not complete yet.
    begun: Option<HashMap<String, K>>,
    complete: bool,
}

/// Merges the watches of several namespaces, by name. Each has its own back-off. When one namespace is listed again, the objects of all are sent
/// again, so that deleted objects disappear from the cache.
pub fn merged<K>(watches: Vec<(String, BoxStream<'static, Result<Event<K>>>)>) -> impl Stream<Item = Result<Event<K>>> + Send
where
    K: ResourceExt + Clone + Send + 'static,
{
    let listed = |(name, _): &(String, _)| (name.clone(), Listed { objects: HashMap::new(), begun: None, complete: false });
    let mut all: HashMap<String, Listed<K>> = watches.iter().map(listed).collect();
    let tagged = watches.into_iter().map(|(name, watch)| watch.map(move |event| (name.clone(), event)).boxed());
    stream::select_all(tagged).flat_map(move |(namespace, event)| {
        stream::iter(match event {
            Err(error) => vec![Err(error)],
            Ok(event) => note(&mut all, &namespace, event).into_iter().map(Ok).collect(),
        })
    })
}

/// Stores an event of one namespace, and returns the events to send.
fn note<K: ResourceExt + Clone>(all: &mut HashMap<String, Listed<K>>, namespace: &str, event: Event<K>) -> Vec<Event<K>> {
    let complete = all.values().all(|listed| listed.complete);
    let Some(listed) = all.get_mut(namespace) else { return Vec::new() };
    match event {
        Event::Init => listed.begun = Some(HashMap::new()),
        Event::InitApply(object) => {
            listed.begun.get_or_insert_default().insert(object.name_any(), object);
        }
        Event::InitDone => {
            listed.objects = listed.begun.take().unwrap_or_default();
            listed.complete = true;
            if all.values().all(|listed| listed.complete) {
                let objects = all.values().flat_map(|listed| listed.objects.values().cloned()).map(Event::InitApply);
                return std::iter::once(Event::Init).chain(objects).chain([Event::InitDone]).collect();
            }
        }
        Event::Apply(object) => {
            listed.objects.insert(object.name_any(), object.clone());
            return complete.then_some(Event::Apply(object)).into_iter().collect();
        }
        Event::Delete(object) => {
            listed.objects.remove(&object.name_any());
            return complete.then_some(Event::Delete(object)).into_iter().collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn object(namespace: &str, name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}})).unwrap()
    }

    /// The sent events, in short form.
    fn told(events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let mut told: Vec<String> = events
            .into_iter()
            .map(|event| match event {
                Event::Init => "begin".into(),
                Event::InitApply(o) => format!("is {}/{}", o.namespace().unwrap(), o.name_any()),
                Event::InitDone => "end".into(),
                Event::Apply(o) => format!("now {}", o.name_any()),
                Event::Delete(o) => format!("gone {}", o.name_any()),
            })
            .collect();
        if let Some(objects) = told.len().checked_sub(1).and_then(|last| told.get_mut(1..last)) {
            objects.sort();
        }
        told
    }

    #[test]
    fn a_cache_is_complete_when_each_namespace_is_and_what_vanished_in_one_is_gone() {
        let listed = || Listed { objects: HashMap::new(), begun: None, complete: false };
        let mut all: HashMap<String, Listed<ConfigMap>> = [("a".to_owned(), listed()), ("b".to_owned(), listed())].into();
        let mut say = |namespace: &str, event| told(note(&mut all, namespace, event));
        let nothing: Vec<String> = Vec::new();
        for event in [Event::Init, Event::InitApply(object("a", "x")), Event::InitApply(object("a", "y")), Event::InitDone] {
            assert_eq!(say("a", event), nothing, "b may have more");
        }
        assert_eq!(say("a", Event::Delete(object("a", "y"))), nothing);
        say("b", Event::Init);
        say("b", Event::InitApply(object("b", "x")));
        assert_eq!(say("b", Event::InitDone), ["begin", "is a/x", "is b/x", "end"]);
        assert_eq!(say("b", Event::Apply(object("b", "z"))), ["now z"]);
        // `a` lists again, without x.
        say("a", Event::Init);
        assert_eq!(say("b", Event::Delete(object("b", "z"))), ["gone z"], "the others go on meanwhile");
        assert_eq!(say("a", Event::InitDone), ["begin", "is b/x", "end"]);
    }

    #[tokio::test]
    async fn an_error_of_one_is_told_and_stops_none() {
        let good = stream::iter(vec![Ok(Event::Init), Ok(Event::InitDone)]).boxed();
        let bad = stream::iter(vec![Err(kube::runtime::watcher::Error::NoResourceVersion), Ok(Event::Init), Ok(Event::InitDone)]).boxed();
        let all: Vec<Result<Event<ConfigMap>>> = merged(vec![("a".into(), good), ("b".into(), bad)]).collect().await;
        assert_eq!(all.iter().filter(|event| event.is_err()).count(), 1);
        assert_eq!(told(all.into_iter().flatten().collect()), ["begin", "end"]);
    }
}
