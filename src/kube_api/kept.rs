//! The watches of workload clusters, while the objects that they keep are within the budget of their cluster. An API server with endless objects
//! takes no more than that, and its cluster is treated like one whose watch does not work.

use std::collections::HashMap;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use serde::Serialize;

use super::budget::Crowded;
use super::error::ApiError;
use super::json::size;
use super::keeping::Place;
use super::workload::{Workload, WorkloadError};

/// The memory of an object besides the bytes of its JSON.
const OBJECT: usize = 512;

/// The places of objects, by namespace and name.
type Places = HashMap<(Option<String>, String), Place>;

/// The places of the existing objects of one watch.
struct Held {
    workload: Workload,
    /// The request as `kubectl` would name it, e.g. `watch nodes`.
    what: String,
    listed: Places,
    /// A listing that is not complete yet.
    begun: Places,
}

impl Held {
    fn note<K: ResourceExt + Serialize>(&mut self, event: &Event<K>) -> Result<(), Crowded> {
        let name = |object: &K| (object.namespace(), object.name_any());
        let cost = |object: &K| size(object) + OBJECT;
        match event {
            Event::Init => self.begun.clear(),
            Event::InitApply(object) => drop(self.begun.insert(name(object), self.workload.keeping.take(cost(object))?)),
            Event::InitDone => self.listed = std::mem::take(&mut self.begun),
            Event::Apply(object) => {
                self.listed.remove(&name(object));
                self.listed.insert(name(object), self.workload.keeping.take(cost(object))?);
            }
            Event::Delete(object) => drop(self.listed.remove(&name(object))),
        }
        Ok(())
    }

    fn too_large(&self, why: &Crowded) -> WorkloadError {
        self.workload.explain(ApiError::TooLarge(format!("{}: {why}", self.what)))
    }
}

/// Streams the events of a watch while its objects are within the budget of its cluster. Beyond it, the stream ends with an error.
pub(super) fn within<K: ResourceExt + Serialize + Send + 'static>(
    workload: &Workload,
    what: &str,
    events: impl Stream<Item = Result<Event<K>, WorkloadError>> + Send + 'static,
) -> BoxStream<'static, Result<Event<K>, WorkloadError>> {
    let held = Held { workload: workload.clone(), what: what.to_owned(), listed: Places::new(), begun: Places::new() };
    let next = async |watch: Option<(BoxStream<'static, _>, Held)>| {
        let (mut events, mut held) = watch?;
        let next: Result<Event<K>, WorkloadError> = events.next().await?;
        Some(match next.as_ref().ok().and_then(|event| held.note(event).err()) {
            Some(why) => (Err(held.too_large(&why)), None),
            None => (next, Some((events, held))),
        })
    };
    stream::unfold(Some((events.boxed(), held)), next).boxed()
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, TryStreamExt};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use serde_json::json;

    use super::super::budget::Budget;
    use super::super::keeping::Keeping;
    use super::super::linux_side;
    use super::super::linux_side::Watched;
    use super::super::mock::{Script, step};
    use super::super::{csr, nodes};
    use super::*;
    use crate::api::bootstrap_config::JOIN_SIGNER;
    use crate::api::listing::Listing;

    fn map(name: &str, bytes: usize) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "lab"}, "data": {"x": "x".repeat(bytes)}})).unwrap()
    }

    /// The budgets of these tests are smaller by this factor, because each byte is counted.
    const SMALLER: usize = 96;
    const MUCH: usize = (1 << 20) / SMALLER;

    fn of_all() -> Budget {
        Keeping::of_all().divided(SMALLER)
    }

    fn workload(all: &Budget) -> Workload {
        let (client, _): (Client, _) = Script::new(Vec::new());
        let one = Keeping::default().0.into_iter().map(|budget| budget.divided(SMALLER));
        Workload { server: "https://10.0.0.1:6443".into(), keeping: Keeping(one.chain([all.clone()]).collect()), ..Workload::of(client) }
    }

    fn listing(objects: usize) -> Vec<Event<ConfigMap>> {
        let named = |number| Event::InitApply(map(&format!("c{number}"), MUCH));
        std::iter::once(Event::Init).chain((0..objects).map(named)).chain([Event::InitDone]).collect()
    }

    type Watch = BoxStream<'static, Result<Event<ConfigMap>, WorkloadError>>;

    fn watch(all: &Budget, events: Vec<Event<ConfigMap>>) -> Watch {
        // Keeps the stream open after the last event.
        let events = stream::iter(events.into_iter().map(Ok)).chain(stream::pending());
        within(&workload(all), "watch configmaps", events)
    }

    /// Returns the number of events, and the error that ends them.
    fn read(watch: &mut Watch) -> (usize, Option<String>) {
        let mut count = 0;
        loop {
            match watch.next().now_or_never() {
                Some(Some(Ok(_))) => count += 1,
                Some(Some(Err(error))) => {
                    assert!(watch.next().now_or_never().unwrap().is_none(), "it ends with its error");
                    return (count, Some(error.to_string()));
                }
                Some(None) => panic!("it ended without an error"),
                None => return (count, None),
            }
        }
    }

    #[tokio::test]
    async fn a_watch_that_shows_more_than_its_cluster_may_take_ends_and_says_so() {
        let all = of_all();
        let mut endless = watch(&all, listing(200));
        let (count, said) = read(&mut endless);
        let said = said.unwrap();
        assert!((90..=96).contains(&count), "{count}");
        for part in ["https://10.0.0.1:6443", "watch configmaps", "what watches of this API server show would take more than 1 MiB of memory"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(all.is_untouched(), "given back");
    }

    #[test]
    fn one_cluster_has_a_half_of_the_budget_of_all() {
        let all = Keeping::of_all();
        let one = Keeping::of_one(&all);
        let whole = one.take(96 << 20).unwrap();
        let said = one.take(1).unwrap_err().to_string();
        assert_eq!(said, "what watches of this API server show would take more than 96 MiB of memory");
        let other = Keeping::of_one(&all).take(96 << 20).unwrap();
        let said = Keeping::of_one(&all).take(1).unwrap_err().to_string();
        assert_eq!(said, "what watches of all workload clusters show would take more than 192 MiB of memory");
        drop((whole, other));
        assert!(all.is_untouched());
    }

    #[tokio::test]
    async fn what_is_gone_or_replaced_gives_its_place_back() {
        let all = of_all();
        let many = |event: fn(ConfigMap) -> Event<ConfigMap>| (0..200).map(move |_| event(map("c0", MUCH)));
        let mut events = listing(40);
        // The objects of another listing are kept beside the objects of the first one.
        events.extend(listing(40));
        events.extend(many(Event::Apply));
        events.extend((0..40).map(|number| Event::Delete(map(&format!("c{number}"), 0))));
        events.extend(listing(90));
        let count = events.len();
        let mut one = watch(&all, events);
        assert_eq!(read(&mut one), (count, None));
        assert!(!all.is_untouched());
        drop(one);
        assert!(all.is_untouched());
    }

    #[tokio::test]
    async fn all_clusters_have_one_budget() {
        let all = of_all();
        let mut two = [watch(&all, listing(90)), watch(&all, listing(90))];
        assert_eq!(two.each_mut().map(|watch| read(watch).1), [None, None]);
        let said = read(&mut watch(&all, listing(90))).1.unwrap();
        assert!(said.contains("what watches of all workload clusters show would take more than 2 MiB of memory"), "{said}");
        let [one, _] = two;
        drop(one);
        assert_eq!(read(&mut watch(&all, listing(90))).1, None);
    }

    #[tokio::test]
    async fn every_watch_of_a_workload_cluster_has_the_budget() {
        const SETS: Listing = Listing::new("apps", "v1", "DaemonSet", "daemonsets");
        let none = Budget::new(0, "what it shows");
        let of = |path: &str, kind: &str, spec: serde_json::Value| {
            let items = json!([{"metadata": {"name": "a"}, "spec": spec}]);
            let list = json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {"resourceVersion": "1"}, "items": items});
            let (client, script) = Script::new(vec![step(&format!("GET {path}"), list)]);
            (Workload { keeping: Keeping::of_one(&none), ..Workload::of(client) }, script)
        };
        let (nodes, _asked) = of("/api/v1/nodes", "Node", json!({}));
        let nodes: Vec<_> = nodes::events(&nodes).map_ok(drop).collect().await;
        let request = json!({"request": "", "signerName": JOIN_SIGNER});
        let (requests, _asked) = of("/apis/certificates.k8s.io/v1/certificatesigningrequests", "CertificateSigningRequest", request);
        let requests: Vec<_> = csr::events(&requests, JOIN_SIGNER).map_ok(drop).collect().await;
        let (sets, _asked) = of("/apis/apps/v1/daemonsets", "DaemonSet", json!({}));
        let sets: Vec<_> = linux_side::changes(&sets, &Watched::Kind(SETS)).map_ok(drop).collect().await;
        for told in [nodes, requests, sets] {
            assert!(matches!(told.last(), Some(Err(WorkloadError::TooLarge { .. }))), "{told:?}");
        }
    }
}
