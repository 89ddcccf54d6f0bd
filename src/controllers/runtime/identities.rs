//! Which cluster each kubeconfig leads to. Another cluster behind the same Secret would look as if every Node were gone.
//!
//! One read per kubeconfig and process, and one for each full listing of Nodes after the first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::cluster::workload::{Workload, WorkloadError};

/// One read that all who wait for it share.
type Asked = Shared<BoxFuture<'static, Result<String, WorkloadError>>>;

#[derive(Default)]
pub struct Identities(Mutex<HashMap<ClusterRef, Identity>>);

struct Identity {
    /// Of the kubeconfig.
    fingerprint: String,
    uid: Asked,
    confirmed: bool,
}

impl Identities {
    /// An error if the kubeconfig leads to another cluster than the `pinned` one. No request if that is known.
    pub async fn confirm(&self, cluster: &ClusterRef, workload: &Workload, pinned: impl FnOnce() -> Option<String>) -> Result<(), WorkloadError> {
        if cluster.source == ClusterSource::InCluster {
            return Ok(());
        }
        let (asked, confirmed) = self.ask(cluster, workload);
        if confirmed {
            return Ok(());
        }
        let answer = asked.clone().await.and_then(|found| match pinned() {
            Some(expected) if expected != found => Err(WorkloadError::ClusterReplaced { endpoint: workload.server.clone(), expected, found }),
            _ => Ok(()),
        });
        let mut all = self.lock();
        if all.get(cluster).is_some_and(|known| known.uid.ptr_eq(&asked)) {
            match all.get_mut(cluster).filter(|_| answer.is_ok()) {
                Some(known) => known.confirmed = true,
                None => drop(all.remove(cluster)),
            }
        }
        answer
    }

    fn ask(&self, cluster: &ClusterRef, workload: &Workload) -> (Asked, bool) {
        let mut all = self.lock();
        if let Some(known) = all.get(cluster).filter(|known| known.fingerprint == workload.fingerprint) {
            return (known.uid.clone(), known.confirmed);
        }
        let client = workload.clone();
        let uid = async move { client.uid().await }.boxed().shared();
        all.insert(cluster.clone(), Identity { fingerprint: workload.fingerprint.clone(), uid: uid.clone(), confirmed: false });
        (uid, false)
    }

    /// The next one who needs it asks again.
    pub fn doubt(&self, cluster: &ClusterRef) {
        self.lock().remove(cluster);
    }

    /// What was found and confirmed.
    pub fn uid(&self, cluster: &ClusterRef) -> Option<String> {
        let all = self.lock();
        let known = all.get(cluster).filter(|known| known.confirmed)?;
        known.uid.peek()?.as_ref().ok().filter(|uid| !uid.is_empty()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterRef, Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::mock::{Exchange, Script, refuse, step};
    use serde_json::json;

    const READ: &str = "GET /api/v1/namespaces/kube-system";

    fn says(uid: &str) -> Exchange {
        step(READ, json!({"metadata": {"name": "kube-system", "uid": uid}}))
    }

    fn stage(exchanges: Vec<Exchange>) -> (Identities, ClusterRef, impl Fn(&str) -> Workload, Script) {
        let (client, script) = Script::new(exchanges);
        let workload =
            move |fingerprint: &str| Workload { server: "https://a".into(), fingerprint: fingerprint.into(), ..Workload::of(client.clone()) };
        (Identities::default(), ClusterRef::cluster_api("lab", "c1"), workload, script)
    }

    #[tokio::test]
    async fn a_kubeconfig_is_asked_once_for_its_cluster() {
        let (identities, cluster, workload, _script) = stage(vec![says("a")]);
        let one = workload("one");
        let (first, second) = tokio::join!(identities.confirm(&cluster, &one, || None), identities.confirm(&cluster, &one, || None));
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(identities.confirm(&cluster, &one, || Some("a".into())).await, Ok(()));
        assert_eq!(identities.uid(&cluster).as_deref(), Some("a"));
    }

    #[tokio::test]
    async fn another_cluster_behind_the_same_secret_is_refused_until_the_first_is_back() {
        let (identities, cluster, workload, _script) = stage(vec![says("a"), says("b"), says("b"), says("a")]);
        let pinned = || Some("a".to_owned());
        identities.confirm(&cluster, &workload("one"), pinned).await.unwrap();
        for _ in 0..2 {
            let error = identities.confirm(&cluster, &workload("two"), pinned).await.unwrap_err();
            assert_eq!(error, WorkloadError::ClusterReplaced { endpoint: "https://a".into(), expected: "a".into(), found: "b".into() });
            assert_eq!(identities.uid(&cluster), None);
        }
        identities.confirm(&cluster, &workload("three"), pinned).await.unwrap();
    }

    #[tokio::test]
    async fn without_machines_every_cluster_is_right() {
        let (identities, cluster, workload, _script) = stage(vec![says("a"), says("b")]);
        identities.confirm(&cluster, &workload("one"), || None).await.unwrap();
        identities.confirm(&cluster, &workload("two"), || None).await.unwrap();
        assert_eq!(identities.uid(&cluster).as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn the_same_kubeconfig_is_asked_again_when_it_is_doubted_or_did_not_answer() {
        let (identities, cluster, workload, _script) = stage(vec![refuse(READ, 503, "ServiceUnavailable"), says("a"), says("b")]);
        let one = workload("one");
        assert!(matches!(identities.confirm(&cluster, &one, || None).await, Err(WorkloadError::Unreachable { .. })));
        identities.confirm(&cluster, &one, || None).await.unwrap();
        identities.doubt(&cluster);
        assert!(matches!(identities.confirm(&cluster, &one, || Some("a".into())).await, Err(WorkloadError::ClusterReplaced { .. })));
    }

    #[tokio::test]
    async fn the_own_cluster_cannot_be_another() {
        let (identities, cluster, workload, _script) = stage(vec![]);
        let own = ClusterRef { source: ClusterSource::InCluster, ..cluster };
        identities.confirm(&own, &workload("one"), || Some("a".into())).await.unwrap();
    }
}
