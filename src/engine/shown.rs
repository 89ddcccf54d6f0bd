//! The objects that one watch of a workload cluster has reported.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::api::listing::Listing;
use crate::components::{facts, needed};
use crate::kube_api::linux_side::{is_unserved, trimmed};
use crate::kube_api::workload::WorkloadError;

/// Objects by namespace and name.
type Objects = BTreeMap<(Option<String>, String), Known>;

/// The known facts about an object.
#[derive(Clone)]
struct Known {
    facts: Box<str>,
    /// The part of the object that is read, in JSON. Thousands of parsed values would take several times as much memory.
    text: Box<str>,
}

/// The existing objects, while the watch works.
#[derive(Default)]
pub struct Shown {
    /// `None` before the first complete listing, and for a kind that is not served.
    listed: Option<Objects>,
    /// A listing that is not complete yet.
    begun: Objects,
    /// Whether the list is up to date.
    is_current: bool,
    /// Why the credentials may not watch the kind.
    refused: Option<WorkloadError>,
}

impl Shown {
    /// Returns the objects. `None`: they are unknown. The inner `None`: the kind is not served. An error: the credentials may not watch the kind.
    pub fn objects(&self) -> Result<Option<Option<Vec<Value>>>, WorkloadError> {
        let object = |known: &Known| serde_json::from_str(&known.text).ok();
        let objects = || self.listed.as_ref().map(|listed| listed.values().filter_map(object).collect());
        self.refused.clone().map_or_else(|| Ok(self.is_current.then(objects)), Err)
    }

    /// Stores an event. Returns `true` if an earlier read may be out of date. That is so after the first listing too, because the last pass may
    /// have read before the watch began.
    pub fn note(&mut self, of: &Listing, event: Event<DynamicObject>) -> bool {
        let read = |object: DynamicObject| {
            let (name, facts) = ((object.namespace(), object.name_any()), facts(of.kind, &object.metadata));
            let text = needed(of.kind, trimmed(object, of)?).to_string();
            Some((name, Known { facts: facts.into(), text: text.into() }))
        };
        match event {
            Event::Init => self.begun.clear(),
            Event::InitApply(object) => self.begun.extend(read(object)),
            Event::InitDone => {
                self.is_current = true;
                let before = self.listed.replace(std::mem::take(&mut self.begun));
                let facts = |objects: &Objects| objects.iter().map(|(name, known)| (name.clone(), known.facts.clone())).collect::<Vec<_>>();
                return before.as_ref().map(facts) != self.listed.as_ref().map(facts);
            }
            Event::Apply(object) => {
                let Some((name, now)) = read(object) else { return false };
                let facts = now.facts.clone();
                let before = self.listed.get_or_insert_default().insert(name, now);
                return before.is_none_or(|before| before.facts != facts);
            }
            Event::Delete(object) => return self.listed.get_or_insert_default().remove(&(object.namespace(), object.name_any())).is_some(),
        }
        false
    }

    /// Records that the watch failed: its objects may be out of date, unless the kind is not served. Returns `true` if an earlier read is out of
    /// date, or if the error must be reported.
    pub fn fail(&mut self, error: &WorkloadError) -> bool {
        self.is_current = is_unserved(error);
        if matches!(error, WorkloadError::Forbidden { .. }) {
            return self.refused.replace(error.clone()).is_none();
        }
        self.is_current && self.listed.take().is_some()
    }

    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Records that the credentials may watch the kind now.
    pub fn allow(&mut self) {
        self.refused = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube_api::error::ApiError;
    use crate::testing::windows_nodes::{NODES, node, pod};

    const SETS: Listing = Listing::new("apps", "v1", "DaemonSet", "daemonsets");

    fn object(name: &str, generation: i64) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "generation": generation}, "status": {"ready": generation}})).unwrap()
    }

    /// Sends a complete listing. Returns `true` if one of its events is a change.
    fn list(shown: &mut Shown) -> bool {
        [Event::Init, Event::InitApply(object("a", 1)), Event::InitDone].map(|event| shown.note(&SETS, event)).contains(&true)
    }

    fn names(shown: &Shown) -> Option<Option<Vec<String>>> {
        let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        shown.objects().unwrap().map(|served| served.map(|objects| objects.into_iter().map(name).collect()))
    }

    #[test]
    fn news_is_what_may_be_read_differently() {
        let mut shown = Shown::default();
        for (event, is_news, expected, why) in [
            (Event::Init, false, None, "nothing is known yet"),
            (Event::InitApply(object("a", 1)), false, None, "the listing goes on"),
            (Event::InitDone, true, Some("a"), "a pass may have read before"),
            (Event::Apply(object("a", 1)), false, Some("a"), "its status has changed"),
            (Event::Apply(object("a", 2)), true, Some("a"), "its spec has changed"),
            (Event::Apply(object("b", 1)), true, Some("a b"), "it is new"),
            (Event::Init, false, Some("a b"), "the watch began again"),
            (Event::InitApply(object("b", 1)), false, Some("a b"), "the listing goes on"),
            (Event::InitApply(object("a", 2)), false, Some("a b"), "the listing goes on"),
            (Event::InitDone, false, Some("a b"), "all is as it was"),
            (Event::Delete(object("b", 1)), true, Some("a"), "it is gone"),
            (Event::Delete(object("b", 1)), false, Some("a"), "it was gone"),
            (Event::Init, false, Some("a"), "the watch began again"),
            (Event::InitDone, true, Some(""), "the last one went meanwhile"),
        ] {
            assert_eq!(shown.note(&SETS, event), is_news, "{why}");
            assert_eq!(names(&shown).flatten().map(|names| names.join(" ")).as_deref(), expected, "{why}");
        }
    }

    #[test]
    fn an_object_is_shown_as_it_is_now_although_that_is_no_news() {
        let mut shown = Shown::default();
        assert!(list(&mut shown));
        let mut changed = object("a", 1);
        changed.data["status"]["ready"] = json!(7);
        assert!(!shown.note(&SETS, Event::Apply(changed)));
        let found = shown.objects().unwrap().flatten().unwrap();
        assert_eq!((&found[0]["kind"], &found[0]["apiVersion"], &found[0]["status"]["ready"]), (&json!("DaemonSet"), &json!("apps/v1"), &json!(7)));
    }

    /// The size of an object besides its texts: entries in a map and on the heap.
    const OBJECT: usize = 256;
    const MOST: usize = 6 << 20;

    #[test]
    fn a_thousand_nodes_and_their_pods_take_little_memory() {
        let [of_nodes, of_pods] = [("Node", "nodes"), ("Pod", "pods")].map(|(kind, plural)| Listing::new("", "v1", kind, plural));
        let (mut nodes, mut pods) = (Shown::default(), Shown::default());
        for at in 0..NODES {
            nodes.note(&of_nodes, Event::Apply(serde_json::from_value(node(at)).unwrap()));
            for part in ["flannel", "kube-proxy"] {
                pods.note(&of_pods, Event::Apply(serde_json::from_value(pod(part, at)).unwrap()));
            }
        }
        let name = |(namespace, name): &(Option<String>, String)| namespace.as_ref().map_or(0, String::len) + name.len();
        let size = |shown: &Shown| -> usize {
            shown.listed.iter().flatten().map(|(key, known)| name(key) + known.facts.len() + known.text.len() + OBJECT).sum()
        };
        let sizes = [size(&nodes), size(&pods)];
        assert!(sizes.iter().sum::<usize>() <= MOST, "{sizes:?}");
        pods.is_current = true;
        assert_eq!(pods.objects().unwrap().flatten().map(|pods| pods.len()), Some(2 * NODES));
    }

    #[test]
    fn what_a_watch_has_shown_does_not_count_while_it_fails() {
        let mut shown = Shown::default();
        assert!(list(&mut shown));
        let (broken, gone) = (WorkloadError::Api(ApiError::Other("broken".into())), WorkloadError::Api(ApiError::NotFound("gone".into())));
        assert!(!shown.fail(&broken), "nothing is known to be different");
        assert_eq!(names(&shown), None);
        assert!(!list(&mut shown), "all is as it was");
        assert!(shown.fail(&gone), "the kind has gone");
        assert_eq!(names(&shown), Some(None));
        assert!(!shown.fail(&gone), "it was gone");
        assert!(list(&mut shown), "it is back");
        assert_eq!(names(&shown), Some(Some(vec!["a".to_owned()])));
    }

    #[test]
    fn a_watch_that_is_refused_is_told_until_it_is_allowed() {
        let mut shown = Shown::default();
        let refused = WorkloadError::Forbidden { what: "watch daemonsets".into() };
        assert!(list(&mut shown));
        assert!(shown.fail(&refused), "there is something to say");
        assert!(!shown.fail(&refused), "it was said");
        assert_eq!(shown.objects(), Err(refused));
        shown.allow();
        assert_eq!(names(&shown), None, "what it has shown is old");
        assert!(!list(&mut shown), "all is as it was");
        assert_eq!(names(&shown), Some(Some(vec!["a".to_owned()])));
    }
}
