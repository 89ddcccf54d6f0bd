//! The identity of the cluster behind each kubeconfig. If a Secret led to another cluster, every Node would seem to be deleted.
//!
//! The identity is read once per kubeconfig and process, and once for each full listing of Nodes after the first.

use std::sync::Arc;

use super::caches::Caches;
use super::workload_clusters::WorkloadClusters;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::kube_api::workload::{Workload, WorkloadError};

impl WorkloadClusters {
    /// Returns the client of a cluster, if it is the cluster that machines were created for.
    pub async fn get(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        let workload = self.clients().get(cluster).await?;
        if let Err(error) = self.confirm(cluster, &workload) {
            self.note_error(cluster, &error).await;
            return Err(error);
        }
        Ok(workload)
    }

    /// Returns an error if the kubeconfig leads to another cluster than the one that machines were created for, and while that is unknown. Machines
    /// pin their cluster: without machines, every cluster is accepted.
    fn confirm(&self, cluster: &ClusterRef, workload: &Workload) -> Result<(), WorkloadError> {
        if cluster.source == ClusterSource::InCluster {
            return Ok(());
        }
        self.ask(self.identities(), cluster, workload, || read(self.clone(), cluster.clone(), workload.clone())).map(drop)
    }

    /// Reads the identity again, although the kubeconfig is unchanged, and waits for the answer.
    pub(super) async fn confirm_again(&self, cluster: &ClusterRef, workload: &Workload) -> Result<(), WorkloadError> {
        self.identities().forget(cluster);
        self.identities().wait(|| self.confirm(cluster, workload)).await
    }

    /// Returns the unique ID of the cluster, once the cluster was used.
    pub fn uid(&self, cluster: &ClusterRef) -> Option<String> {
        self.identities().known(cluster).filter(|uid| !uid.is_empty())
    }
}

async fn read(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload) -> Result<String, WorkloadError> {
    let found = workload.uid().await?;
    match pinned(&clusters.context().caches, &cluster) {
        Some(expected) if expected != found => Err(WorkloadError::ClusterReplaced { endpoint: workload.server, expected, found }),
        _ => Ok(found),
    }
}

/// Returns the cluster that machines were created for, as their configurations record it.
fn pinned(caches: &Caches, cluster: &ClusterRef) -> Option<String> {
    let configs = caches.configs.all(&cluster.namespace);
    let mut of_cluster = configs.iter().filter(|config| ClusterRef::of_config(config).as_ref() == Some(cluster));
    of_cluster.find_map(|config| config.status.as_ref()?.cluster_uid.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use futures::StreamExt;
    use serde_json::{Value, json};
    use tokio::task::yield_now;
    use tokio::time::{Instant, sleep};

    use super::super::answers::AGAIN;
    use super::super::triggers::{Requested, Requests};
    use super::super::workload_clusters::WatchContext;
    use super::*;
    use crate::kube_api::mock::{Exchange, Script, hang, refuse, step};
    use crate::kube_api::workloads::Workloads;
    use crate::testing::{holding, shared};

    const READ: &str = "GET /api/v1/namespaces/kube-system";

    fn says(uid: &str) -> Exchange {
        step(READ, json!({"metadata": {"name": "kube-system", "uid": uid}}))
    }

    struct Stage {
        clusters: WorkloadClusters,
        requested: Requested,
        script: Script,
    }

    fn c1() -> ClusterRef {
        ClusterRef::cluster_api("lab", "c1")
    }

    /// A stage with one object of each kind of the cluster `c1`, whose machines were created for the cluster with the UID `pinned`.
    fn stage(pinned: Option<&str>, exchanges: Vec<Exchange>) -> Stage {
        let object = |group: &str, kind: &str, name: &str, cluster: &str, spec: Value| {
            json!({"apiVersion": format!("{group}.cluster.x-k8s.io/v1alpha1"), "kind": kind, "spec": spec,
                "metadata": {"name": name, "namespace": "lab", "labels": {"cluster.x-k8s.io/cluster-name": cluster}}})
        };
        let mut config = object("bootstrap", "WindowsBootstrapConfig", "config", "c1", json!({}));
        config["status"] = json!({"clusterUID": pinned});
        let machine = |name: &str, cluster: &str| object("infrastructure", "WindowsMachine", name, cluster, json!({"image": "w"}));
        let caches = Caches {
            configs: holding(vec![config]),
            windows_machines: holding(vec![machine("machine", "c1"), machine("another", "c3")]),
            pools: holding(vec![object("infrastructure", "WindowsNodePool", "pool", "c1", json!({"template": {"machine": {"image": "w"}}}))]),
            windows_clusters: holding(vec![object("infrastructure", "WindowsCluster", "cluster", "c1", json!({}))]),
            ..Caches::empty()
        };
        let (shared, script) = shared(caches, 1, exchanges);
        let (requests, requested) = Requests::new();
        let of = shared.clusters.context();
        let context = WatchContext {
            management: of.management.clone(),
            caches: of.caches.clone(),
            owners: of.owners.clone(),
            requests,
            nodes: of.nodes.clone(),
            approve_serving_certificates: true,
        };
        let clusters = WorkloadClusters::new(Workloads::new(of.management.cluster.clone()), context);
        Stage { clusters, requested, script }
    }

    impl Stage {
        fn confirm(&self, cluster: &ClusterRef, fingerprint: &str) -> Result<(), WorkloadError> {
            let client = self.clusters.context().management.cluster.client().clone();
            let workload = Workload { server: "https://a".into(), fingerprint: fingerprint.into(), ..Workload::of(client) };
            self.clusters.confirm(cluster, &workload)
        }

        /// Calls `confirm` until the answer arrives, as the triggered passes do.
        async fn answer(&self, fingerprint: &str) -> Result<(), WorkloadError> {
            while self.confirm(&c1(), fingerprint).is_err_and(|error| error.is_pending()) {
                yield_now().await;
            }
            self.confirm(&c1(), fingerprint)
        }

        /// Returns the objects that were triggered.
        fn triggered(&mut self) -> Vec<String> {
            let Requested { machines, configs, pools, windows_clusters } = &mut self.requested;
            let mut names = Vec::new();
            names.extend(std::iter::from_fn(|| machines.next().now_or_never().flatten()).map(|object| object.name));
            names.extend(std::iter::from_fn(|| configs.next().now_or_never().flatten()).map(|object| object.name));
            names.extend(std::iter::from_fn(|| pools.next().now_or_never().flatten()).map(|object| object.name));
            names.extend(std::iter::from_fn(|| windows_clusters.next().now_or_never().flatten()).map(|object| object.name));
            names
        }
    }

    const ALL: [&str; 4] = ["machine", "config", "pool", "cluster"];

    #[tokio::test(start_paused = true)]
    async fn no_pass_waits_for_a_cluster_that_hangs() {
        let mut stage = stage(None, vec![hang(READ), says("b")]);
        let (start, c2) = (Instant::now(), ClusterRef::cluster_api("lab", "c2"));
        for _ in 0..32 {
            let error = stage.confirm(&c1(), "one").unwrap_err();
            assert_eq!(error.to_string(), "CAPW has asked the API server of the workload cluster of Cluster c1 and waits for its first answer");
            yield_now().await;
        }
        assert_eq!(stage.script.seen().len(), 1);
        while stage.confirm(&c2, "two").is_err() {
            yield_now().await;
        }
        assert_eq!((stage.clusters.uid(&c2).as_deref(), start.elapsed()), (Some("b"), Duration::ZERO));
        assert_eq!(stage.triggered(), [""; 0], "of another cluster");
        sleep(Duration::from_secs(21)).await;
        assert!(matches!(stage.confirm(&c1(), "one"), Err(WorkloadError::Unreachable { .. })));
        assert_eq!(stage.triggered(), ALL, "they say that it does not answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubeconfig_is_asked_once_for_its_cluster_and_the_answer_triggers_the_passes() {
        let mut stage = stage(None, vec![says("a")]);
        assert!(stage.confirm(&c1(), "one").unwrap_err().is_pending());
        assert_eq!(stage.triggered(), [""; 0]);
        assert_eq!(stage.answer("one").await, Ok(()));
        assert_eq!((stage.clusters.uid(&c1()).as_deref(), stage.triggered()), (Some("a"), ALL.map(str::to_owned).to_vec()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_failed_is_tried_again_after_its_time_and_not_with_each_pass() {
        let refused = || refuse(READ, 503, "ServiceUnavailable");
        let mut stage = stage(None, vec![refused(), refused(), says("a")]);
        for asked in 1..3 {
            for _ in 0..5 {
                assert!(matches!(stage.answer("one").await, Err(WorkloadError::Unreachable { .. })));
                yield_now().await;
            }
            assert_eq!(stage.script.seen().len(), asked);
            assert_eq!(stage.triggered().is_empty(), asked > 1, "the same failure again is no news");
            sleep(AGAIN).await;
            assert!(matches!(stage.confirm(&c1(), "one"), Err(WorkloadError::Unreachable { .. })), "that holds until there is an answer");
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((stage.answer("one").await, stage.triggered().len()), (Ok(()), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn another_cluster_behind_the_same_secret_is_refused_until_the_first_is_back() {
        let stage = stage(Some("a"), vec![says("a"), says("b"), says("a")]);
        stage.answer("one").await.unwrap();
        for _ in 0..2 {
            let error = stage.answer("two").await.unwrap_err();
            assert_eq!(error, WorkloadError::ClusterReplaced { endpoint: "https://a".into(), expected: "a".into(), found: "b".into() });
            assert_eq!(stage.clusters.uid(&c1()), None);
        }
        stage.answer("three").await.unwrap();
    }

    #[tokio::test]
    async fn without_machines_every_cluster_is_right() {
        let stage = stage(None, vec![says("a"), says("b")]);
        stage.answer("one").await.unwrap();
        stage.answer("two").await.unwrap();
        assert_eq!(stage.clusters.uid(&c1()).as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn the_same_kubeconfig_is_asked_again_after_a_new_listing_of_nodes() {
        let stage = stage(Some("a"), vec![says("a"), says("b")]);
        stage.answer("one").await.unwrap();
        let client = stage.clusters.context().management.cluster.client().clone();
        let workload = Workload { fingerprint: "one".into(), ..Workload::of(client) };
        let again = stage.clusters.confirm_again(&c1(), &workload).await;
        assert!(matches!(again, Err(WorkloadError::ClusterReplaced { .. })));
    }

    #[tokio::test]
    async fn the_own_cluster_cannot_be_another() {
        let stage = stage(Some("a"), vec![]);
        let own = ClusterRef { source: ClusterSource::InCluster, ..c1() };
        stage.confirm(&own, "one").unwrap();
    }
}
