use std::convert::Infallible;
use std::future::pending;

use http::{Request, Response};
use kube::Config;
use kube::client::Body;
use serde_json::{Value, json};

use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::namespaces::Namespaces;
use crate::engine::caches::Caches;
use crate::engine::controller::tests::*;
use crate::engine::workload_clusters::{WatchContext, WorkloadClusters};
use crate::kube_api::cluster::Cluster;
use crate::kube_api::workloads::{Connect, Workloads};
use crate::testing::server::{Server, client, kubeconfig_of};
use crate::testing::{holding, shared_asked};

/// The passes at the same time, and the machines of each cluster: one cluster alone could take all passes.
const SLOTS: u16 = 32;
const MACHINES: usize = 50;
/// The clusters that answer, and one that may exist beside them.
const ANSWERING: usize = 9;
const HANGING: &str = "hangs";
/// The duration of a pass after its cluster has answered, and the time from its end to the next pass.
const WORK: Duration = Duration::from_millis(50);
const PERIOD: Duration = Duration::from_secs(10);
/// Twice as long as an answer is waited for.
const RUN: Duration = Duration::from_secs(45);

/// When the cluster had answered in each pass, by machine.
type Served = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

fn machine(cluster: &str, nth: usize) -> Value {
    let name = format!("{cluster}-{nth}");
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "spec": {"image": "w"},
        "metadata": {"name": name, "namespace": "lab", "uid": name, "resourceVersion": "1", "labels": {"cluster.x-k8s.io/cluster-name": cluster}}})
}

/// Returns clients of these clusters, by the Secrets of a management cluster.
fn workloads(names: &[String]) -> Workloads {
    let secret = |name: &String| (format!("/api/v1/namespaces/lab/secrets/{name}-kubeconfig"), kubeconfig_of(name));
    let secrets: Vec<(String, Value)> = names.iter().map(secret).collect();
    let management = Server::holding(secrets.iter().map(|(path, secret)| (path.as_str(), secret.clone())));
    let answering = client(&Arc::new(Mutex::new(Server::holding([]))));
    let hanging = Client::new(tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>()), "default");
    let connect: Connect =
        Arc::new(move |config: Config| Ok(if config.cluster_url.host() == Some(HANGING) { hanging.clone() } else { answering.clone() }));
    Workloads::connected(Cluster::new(client(&Arc::new(Mutex::new(management)))), connect, Namespaces::All).for_passes(SLOTS.into())
}

/// Runs a controller from its start on. Returns the 99th percentile of two waits, for the machines whose clusters answer: until the first answer, and
/// from the time at which a later pass is due to its answer.
async fn waits(hangs: bool) -> [Duration; 2] {
    let names: Vec<String> = (0..ANSWERING).map(|nth| format!("c{nth}")).chain(hangs.then(|| HANGING.to_owned())).collect();
    let machines = names.iter().flat_map(|name| (0..MACHINES).map(|nth| machine(name, nth))).collect();
    let caches = Caches { windows_machines: holding(machines), ..Caches::empty() };
    let (shared, _script, requested) = shared_asked(caches, 1, vec![], Arc::new(Client::try_from));
    let of = shared.clusters.context();
    let context = WatchContext {
        management: of.management.clone(),
        caches: of.caches.clone(),
        owners: of.owners.clone(),
        requests: shared.requests.clone(),
        nodes: of.nodes.clone(),
        approve_serving_certificates: true,
    };
    let (clusters, served, start) = (WorkloadClusters::new(workloads(&names), context), Served::default(), Instant::now());
    let controller = ControllerLoop { concurrency: SLOTS, ..Stage::new(&[]).controller };
    let (of_passes, answers) = (clusters.clone(), served.clone());
    let pass = move |object: Arc<WindowsMachine>| {
        let (clusters, served) = (of_passes.clone(), answers.clone());
        async move {
            let workload = clusters.get(&ClusterRef::of(&object.metadata).unwrap()).await?;
            workload.config_map("lab", "any").await?;
            served.lock().entry(object.name_any()).or_default().push(Instant::now());
            sleep(WORK).await;
            Ok::<_, ReconcileError>(Outcome::requeue_after(PERIOD))
        }
    };
    let (running, caches) = (controller.clone(), shared.caches.clone());
    let task = tokio::spawn(async move { running.run("test", &caches.windows_machines.0, vec![requested.machines.boxed()], pass).await });
    sleep(RUN).await;
    controller.stop.cancel();
    task.await.unwrap();
    clusters.stop();

    let served = served.lock();
    assert!(!served.keys().any(|name| name.starts_with(HANGING)));
    let of_answering = (0..ANSWERING).flat_map(|cluster| (0..MACHINES).map(move |nth| format!("c{cluster}-{nth}")));
    let times: Vec<&[Instant]> = of_answering.map(|name| served.get(&name).map(Vec::as_slice).unwrap_or_default()).collect();
    let first = times.iter().map(|times| times.first().map_or(RUN, |first| *first - start));
    let later = times.iter().flat_map(|times| times.windows(2)).map(|pair| (pair[1] - pair[0]).saturating_sub(WORK + PERIOD));
    [first.collect(), later.collect()].map(|mut waits: Vec<Duration>| {
        waits.sort();
        waits[waits.len() * 99 / 100]
    })
}

/// The cluster that hangs accepts connections and never answers. After the start, nothing is known of any cluster.
#[tokio::test(start_paused = true)]
async fn the_machines_of_nine_clusters_wait_no_longer_beside_one_that_hangs() {
    let (alone, beside) = (waits(false).await, waits(true).await);
    for (alone, beside) in alone.into_iter().zip(beside) {
        assert!(beside <= alone.max(WORK) * 3 / 2, "{beside:?} beside a cluster that hangs, {alone:?} without it");
    }
}
