//! Lists of workload clusters, page by page. Whatever an API server answers, a list ends, and the objects that are read and kept are limited. A
//! server may ignore the requested page size, or always announce another page, and objects of three bytes there take thousands here.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::core::Request;
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use super::cluster::PAGE;
use super::error::ApiError;
use super::json::size;
use super::workload::{Workload, WorkloadError};

/// The most objects of a page: an API server behind the API server may not support pages.
const MOST_OBJECTS: usize = 4 * PAGE as usize;
/// The most pages. With [`PAGE`], more objects of a kind than Kubernetes supports in a cluster.
pub(super) const MOST_PAGES: usize = 1000;
/// The most bytes of JSON that are kept: all Nodes of the largest cluster that Kubernetes supports.
const MOST_KEPT: usize = 64 << 20;
/// The longest time for a list: after five minutes an API server forgets the state that its next page belongs to.
const LONGEST: Duration = Duration::from_secs(300);

/// A list that is being read.
pub(super) struct Pages<'a, K> {
    workload: &'a Workload,
    /// The request as `kubectl` would name it, e.g. `list pods`.
    what: String,
    api: Api<K>,
    /// The request for the next page; `None` after the last one.
    next: Option<ListParams>,
    pages: usize,
    since: Instant,
    most_kept: usize,
}

impl Workload {
    /// Lists the selected objects page by page.
    pub(super) fn pages<K>(&self, what: &str, api: Api<K>, selected: ListParams) -> Pages<'_, K> {
        let next = Some(selected.limit(PAGE));
        Pages { workload: self, what: what.to_owned(), api, next, pages: 0, since: Instant::now(), most_kept: MOST_KEPT }
    }
}

impl<K: Resource + Clone + Debug + DeserializeOwned> Pages<'_, K> {
    /// Returns the objects of the next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<K>>, WorkloadError> {
        let Some(page) = self.next.take() else { return Ok(None) };
        if self.pages >= MOST_PAGES {
            return Err(self.too_large(&format!("more than {MOST_PAGES} pages")));
        }
        if self.since.elapsed() > LONGEST {
            return Err(self.too_large(&format!("its pages did not end within {}s", LONGEST.as_secs())));
        }
        let found = self.workload.call(&self.what, self.ask_for(&page)).await?;
        self.pages += 1;
        self.next = found.metadata.continue_.filter(|token| !token.is_empty()).map(|token| page.continue_token(&token));
        Ok(Some(found.items))
    }

    async fn ask_for(&self, page: &ListParams) -> kube::Result<Page<K>> {
        let request = Request::new(self.api.resource_url()).list(page).map_err(kube::Error::BuildRequest)?;
        self.workload.client.request(request).await
    }

    /// Sets a lower limit, for a list that is short in every cluster.
    pub(super) fn keeping_at_most(self, bytes: usize) -> Self {
        Self { most_kept: bytes, ..self }
    }

    /// Returns the results of `take` for each object of all pages.
    pub(super) async fn keep<T: Serialize>(mut self, take: impl Fn(K) -> Option<T>) -> Result<Vec<T>, WorkloadError> {
        let (mut kept, mut bytes) = (Vec::new(), 0);
        while let Some(objects) = self.next().await? {
            for taken in objects.into_iter().filter_map(&take) {
                bytes += size(&taken);
                if bytes > self.most_kept {
                    return Err(self.too_large(&format!("more than {} MiB", self.most_kept >> 20)));
                }
                kept.push(taken);
            }
        }
        Ok(kept)
    }

    fn too_large(&self, why: &str) -> WorkloadError {
        self.workload.explain(ApiError::TooLarge(format!("{}: {why}", self.what)))
    }
}

/// A page, as an API server answers it.
#[derive(Deserialize)]
#[serde(bound(deserialize = "K: Deserialize<'de>"))]
struct Page<K> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new", deserialize_with = "at_most")]
    items: Vec<K>,
}

/// Reads at most [`MOST_OBJECTS`] objects.
fn at_most<'de, D: Deserializer<'de>, K: Deserialize<'de>>(deserializer: D) -> Result<Vec<K>, D::Error> {
    struct Objects<K>(PhantomData<K>);

    impl<'de, K: Deserialize<'de>> Visitor<'de> for Objects<K> {
        type Value = Vec<K>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST_OBJECTS} objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<Vec<K>, A::Error> {
            let mut all = Vec::new();
            while let Some(object) = objects.next_element()? {
                if all.len() == MOST_OBJECTS {
                    return Err(A::Error::invalid_length(MOST_OBJECTS + 1, &self));
                }
                all.push(object);
            }
            Ok(all)
        }

        fn visit_unit<E: Error>(self) -> Result<Vec<K>, E> {
            Ok(Vec::new())
        }
    }

    deserializer.deserialize_any(Objects(PhantomData))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::super::mock::{Exchange, Script, step};
    use super::*;

    fn page(names: &[String], next: &str) -> Exchange {
        let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        step("GET /api/v1/pods", json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": next}, "items": items}))
    }

    fn listing(workload: &Workload) -> Pages<'_, Pod> {
        workload.pages("list pods", Api::all(workload.client.clone()), ListParams::default().labels("a=b"))
    }

    #[tokio::test]
    async fn each_page_says_where_the_next_one_begins() {
        let (client, script) = Script::new(vec![page(&["a".into(), "b".into()], "1"), page(&[], "2"), page(&["c".into()], "")]);
        let workload = Workload::of(client);
        let found = listing(&workload).keep(|pod| Some(pod.name_any()).filter(|name| name != "b")).await.unwrap();
        assert_eq!(found, ["a", "c"]);
        let queries: Vec<String> = script.seen().into_iter().map(|seen| seen.query).collect();
        assert!(queries.iter().all(|query| query.contains("labelSelector=a%3Db") && query.contains("limit=250")), "{queries:?}");
        assert!(queries[1].contains("continue=1") && queries[2].contains("continue=2"), "{queries:?}");
    }

    #[tokio::test]
    async fn what_is_kept_of_a_list_is_bounded_and_the_error_says_which_list() {
        let names: Vec<String> = (0..100).map(|number| format!("{number}-{}", "x".repeat(12_000))).collect();
        let (client, script) = Script::new(vec![page(&names, "1"), page(&names, "2")]);
        let workload = Workload { server: "https://10.0.0.1:6443".into(), ..Workload::of(client) };
        let error = Pages { most_kept: 2 << 20, ..listing(&workload) }.keep(Some).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("https://10.0.0.1:6443") && text.contains("list pods: more than 2 MiB; remove objects"), "{text}");
        assert_eq!(script.seen().len(), 2, "the rest is not asked for");
    }

    #[tokio::test]
    async fn a_page_with_many_more_objects_than_were_asked_for_is_not_read_to_its_end() {
        let names = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        let empty = step("GET /api/v1/pods", json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": null}));
        let (client, _script) = Script::new(vec![page(&names(MOST_OBJECTS), ""), page(&names(MOST_OBJECTS + 1), ""), empty]);
        let workload = Workload::of(client);
        let read = async || listing(&workload).keep(Some).await.map(|pods| pods.len()).map_err(|error| error.to_string());
        assert_eq!(read().await, Ok(1000));
        let error = read().await.unwrap_err();
        assert!(error.contains("list pods: the answer is not what was expected"), "{error}");
        assert_eq!(read().await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_takes_too_long_is_given_up() {
        let (client, _script) = Script::new(vec![page(&[], "1"), page(&[], "2")]);
        let workload = Workload::of(client);
        let mut pages = listing(&workload);
        for _ in 0..2 {
            assert_eq!(pages.next().await.unwrap().map(|pods| pods.len()), Some(0));
            tokio::time::advance(LONGEST).await;
        }
        let error = pages.next().await.unwrap_err();
        assert!(error.to_string().contains("did not end within 300s"), "{error}");
    }
}
