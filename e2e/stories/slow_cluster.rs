//! Story *slow cluster*: one of ten workload clusters accepts connections and never answers. While CAPW restarts, the objects of the other clusters
//! wait no longer for their reconciles than without it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::workers;
use crate::world::{self, Capw, ControlPlane, Forward, Kind, Options, Waits, free_port, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(240);
/// The number of clusters that answer.
const GOOD: usize = 9;
/// The number of machines of the cluster that does not answer. They exceed a controller's concurrent reconciles.
const OF_SLOW: usize = 40;
/// How many times longer objects may wait beside the slow cluster: up to the next bound of the histogram.
const TIMES: u64 = 2;
/// Shorter waits are not compared, because every starting program has them.
const LEAST_MILLISECONDS: u64 = 500;

#[test]
fn a_cluster_that_never_answers_delays_no_other() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("slow-cluster")).await;
        let capw = Capw::start(&cp, &[]).await;
        let (port, kubeconfig) = (free_port(), workers::remote_kubeconfig(&cp).await);
        let server = cp.server();
        let address = server.strip_prefix("https://").expect("a server");
        let way = Forward::start(port, address).await;
        let mut objects = vec![json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": "lab", "namespace": "default"}, "spec": {"simulated": {}}})];
        for number in 0..GOOD {
            objects.extend(cluster(&good(number), 1, &kubeconfig));
        }
        objects.extend(cluster("slow", OF_SLOW, &kubeconfig.replace(&server, &format!("https://127.0.0.1:{port}"))));
        cp.apply_objects(&objects).await;
        for number in 0..GOOD {
            available(&cp, &good(number), 1).await;
        }
        available(&cp, "slow", OF_SLOW).await;
        step(format!("{} machines of {} clusters are available", GOOD + OF_SLOW, GOOD + 1));

        capw.kill();
        let without = waits_of_a_start(&cp, &capw, 2).await;
        capw.kill();
        way.silence();
        // For each machine of the slow cluster, CAPW queries the cluster for pods and for its Node.
        remove_all_of(&cp, "slow").await;
        let with = waits_of_a_start(&cp, &capw, 3).await;

        let said = format!("objects wait {} s without it, {} s beside it", without.within(99), with.within(99));
        step(&said);
        assert!(with.is_at_most(TIMES, &without, LEAST_MILLISECONDS), "{said}");
    });
}

fn good(number: usize) -> String {
    format!("good-{number}")
}

/// Returns a kubeconfig, and a pool that joins its machines to that cluster.
fn cluster(name: &str, replicas: usize, kubeconfig: &str) -> [Value; 2] {
    let metadata = json!({"name": name, "namespace": "default"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"value": kubeconfig}});
    let pool = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "metadata": metadata, "spec": {
        "cluster": {"kubeconfigSecretRef": {"name": name}}, "replicas": replicas, "version": "v1.36.3",
        "template": {"machine": {"image": "windows-server-2022", "cpus": 4, "memory": "8Gi"}, "bootstrap": {"windowsRelease": "2022"}},
    }});
    [secret, pool]
}

/// Measures how long objects waited for their reconciles from CAPW's start until each good cluster has this number of machines.
async fn waits_of_a_start(cp: &ControlPlane, capw: &Capw, machines: usize) -> Waits {
    let began = Instant::now();
    for number in 0..GOOD {
        scale(cp, &good(number), machines).await;
    }
    capw.start_again().await;
    for number in 0..GOOD {
        available(cp, &good(number), machines).await;
    }
    step(format!("{machines} machines of each good cluster after {:.1} s", began.elapsed().as_secs_f32()));
    Waits::of(&capw.metrics())
}

async fn scale(cp: &ControlPlane, name: &str, replicas: usize) {
    let patch = json!({"spec": {"replicas": replicas}});
    cp.patch(Kind::WINDOWS_NODE_POOL, &format!("default/{name}"), &patch).await.expect("a pool");
}

async fn remove_all_of(cp: &ControlPlane, pool: &str) {
    let mut machines = cp.list(Kind::WINDOWS_MACHINE, Some("default")).await;
    machines.retain(|machine| text(machine, "/metadata/name").starts_with(pool));
    assert_eq!(machines.len(), OF_SLOW);
    for machine in machines {
        cp.delete(Kind::WINDOWS_MACHINE, &format!("default/{}", text(&machine, "/metadata/name"))).await;
    }
}

async fn available(cp: &ControlPlane, name: &str, replicas: usize) {
    wait_for(&format!("{replicas} machines of {name} are available"), LIMIT, || async {
        let pool = cp.get(Kind::WINDOWS_NODE_POOL, &format!("default/{name}")).await.expect("the pool");
        let available = pool.pointer("/status/availableReplicas") == Some(&json!(replicas));
        if available { Ok(()) } else { Err(pool["status"].to_string()) }
    })
    .await;
}
