//! The steps of the demo, from the README's YAML to an empty cluster. It must use only commands that a reader of the README could type,
//! except for the recorded Linux nodes of `network.rs`.
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "it talks to a person, and ends with the place of what went wrong")]

use std::time::{Duration, Instant};

use capw::api::kubernetes_version::KubernetesVersion;
use serde_json::json;

use crate::host;
use crate::network;
use crate::progress::{Progress, say};
use crate::sample::{self, LONG, Real};
use crate::stage::{Acceleration, Firmware, Stage};
use crate::world::{Capw, Kind, Tools, text};

/// Time between two polls.
const LOOK: Duration = Duration::from_millis(500);
/// The limit for machines to be created, changed or deleted. An idle machine needs far less, even with QEMU that translates its guests.
const LIMIT: Duration = Duration::from_secs(600);

/// Creates three nodes; then, with `once`, another version, fewer machines, none; without it, watches forever.
pub async fn run(stage: &Stage, once: bool) -> Result<(), String> {
    let version = stage.version().await;
    stage.give_login().await;
    let acceleration = host::acceleration(stage, |acceleration| sample(stage, &version, Some(acceleration))).await?;
    if let Some(acceleration) = acceleration {
        let _ = stage.acceleration.set(acceleration);
    }
    say("installing CAPW's definitions and rights (config/default) and starting capw run");
    let capw = Capw::start(&stage.cp, &[]).await;
    let _ = stage.capw.set(capw);
    if stage.existing {
        stage.cp.kubectl(&["create", "namespace", stage.namespace]).await;
    }
    let kubeconfig = stage.cp.kubeconfig();
    say("applying config/samples/three-nodes.yaml and the kubeconfig of this cluster");
    let value = format!("--from-file=value={}", kubeconfig.display());
    stage.kubectl(&["create", "secret", "generic", "first-external-kubeconfig", &value]).await;
    let labels = ["cluster.x-k8s.io/cluster-name=first", "clusterctl.cluster.x-k8s.io/move="];
    stage.kubectl(&["label", "secret", "first-external-kubeconfig", labels[0], labels[1]]).await;
    stage.apply(&sample(stage, &version, acceleration)).await;

    let since = Instant::now();
    let mut progress = Progress::default();
    if stage.own.is_some() {
        return one_machine(stage, &mut progress, &version, once).await;
    }
    settle(stage, &mut progress, "three machines are Running, their Nodes Ready", 3, &version).await?;
    say(format!("three Windows nodes after {:.0} s", since.elapsed().as_secs_f32()));
    table(stage).await;
    if !stage.existing {
        network::show(stage).await;
    }
    let older = older(&version);
    if !once {
        print!("{}", directions(stage, &older));
        loop {
            progress.look(stage, false).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    say(format!("changing the version to {older}: machines are replaced one by one"));
    let change = json!({"spec": {"template": {"spec": {"version": older}}}}).to_string();
    stage.kubectl(&["patch", "machinedeployments.cluster.x-k8s.io", "windows", "--type=merge", "--patch", &change]).await;
    settle(stage, &mut progress, "three machines of the other version are Running", 3, &older).await?;
    table(stage).await;

    say("scaling down to one");
    stage.kubectl(&["scale", "machinedeployments.cluster.x-k8s.io", "windows", "--replicas=1"]).await;
    settle(stage, &mut progress, "one machine is left", 1, &older).await?;
    table(stage).await;

    delete(stage, &mut progress).await
}

/// Runs one machine that starts the user's image, until its Node exists.
async fn one_machine(stage: &Stage, progress: &mut Progress, version: &str, once: bool) -> Result<(), String> {
    let since = Instant::now();
    until(stage, progress, LONG, "the machine has a Node", async |_, machines| {
        machines.len() == 1 && machines.values().all(|machine| machine.joined)
    })
    .await?;
    say(format!("your image joined as a node after {:.0} s; it gets Ready when a network plugin runs on it", since.elapsed().as_secs_f32()));
    table(stage).await;
    if once {
        return delete(stage, progress).await;
    }
    print!("{}", directions(stage, &older(version)));
    loop {
        progress.look(stage, false).await;
        tokio::time::sleep(LOOK).await;
    }
}

async fn delete(stage: &Stage, progress: &mut Progress) -> Result<(), String> {
    say("deleting the Cluster");
    stage.cp.delete(Kind::CLUSTER, &stage.name("first")).await;
    until(stage, progress, LIMIT, "the Cluster, its machines and its Nodes are gone", async |stage, machines| {
        let nodes = stage.cp.list(Kind::NODE, None).await;
        let left = nodes.iter().any(|node| text(node, "/spec/providerID").starts_with("windows://lab/"));
        machines.is_empty() && !left && stage.cp.get(Kind::CLUSTER, &stage.name("first")).await.is_none()
    })
    .await?;
    say("nothing is left: no machine, no VM, no Node");
    Ok(())
}

/// The README's YAML, for this cluster, this hypervisor and the user's image.
fn sample(stage: &Stage, version: &str, acceleration: Option<Acceleration>) -> String {
    let own = stage.own.as_ref().map(|own| if own.firmware == Firmware::Uefi { "UEFI" } else { "BIOS" });
    let hypervisor = acceleration.and_then(|acceleration| stage.hypervisor(acceleration));
    sample::render(version, hypervisor.map(|hypervisor| Real { hypervisor, own }).as_ref())
}

type Machines = std::collections::BTreeMap<String, crate::progress::State>;

/// Waits until exactly `count` machines of a version exist, all Ready.
async fn settle(stage: &Stage, progress: &mut Progress, what: &str, count: usize, version: &str) -> Result<(), String> {
    until(stage, progress, LIMIT, what, async |_, machines| {
        machines.len() == count && machines.values().all(|machine| machine.ready && machine.version == version)
    })
    .await
}

async fn until(
    stage: &Stage,
    progress: &mut Progress,
    limit: Duration,
    what: &str,
    reached: impl AsyncFn(&Stage, &Machines) -> bool,
) -> Result<(), String> {
    let since = Instant::now();
    loop {
        let machines = progress.look(stage, true).await;
        if reached(stage, &machines).await {
            return Ok(());
        }
        if since.elapsed() > limit {
            let events = stage.kubectl(&["get", "events", "--sort-by=.metadata.creationTimestamp"]).await;
            println!("{events}");
            return Err(format!("{} s have passed before {what}; the lines and events above say how far each has come", limit.as_secs()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn table(stage: &Stage) {
    println!("\n{}", stage.kubectl(&["get", "nodes,machines,windowsmachines", "-o", "wide"]).await);
}

/// The previous patch release: a node may be older than its control plane, not newer.
fn older(version: &str) -> String {
    let before = |version: KubernetesVersion| Some(KubernetesVersion { patch: Some(version.patch?.checked_sub(1)?), ..version });
    KubernetesVersion::parse(version).and_then(before).map_or_else(|| "v1.35.6".to_owned(), |older| older.to_string())
}

fn directions(stage: &Stage, older: &str) -> String {
    let tools = Tools::ensure();
    let (kubectl, clusterctl) = (tools.kubectl.display(), tools.clusterctl.display());
    let kubeconfig = stage.cp.kubeconfig().display();
    let namespace = if stage.existing { format!(" -n {}", stage.namespace) } else { String::new() };
    let log = stage.cp.directory().join("capw.log");
    format!(
        "Look around, in another terminal:
    export KUBECONFIG={kubeconfig}
    alias kubectl='{kubectl}{namespace}' clusterctl={clusterctl}
    kubectl get nodes,machines,windowsmachines -o wide
    kubectl describe windowsmachines                      # conditions and events: what happened to each
    clusterctl describe cluster first{namespace} --show-conditions all
    kubectl describe windowsclusters                      # the pod network, and what keeps Windows nodes from it
    kubectl explain windowsmachine.spec --recursive
    less {log}
Change something; what happens is shown here:
    kubectl scale machinedeployment windows --replicas=5
    kubectl patch machinedeployment windows --type=merge -p '{{\"spec\":{{\"template\":{{\"spec\":{{\"version\":\"{older}\"}}}}}}}}'
    kubectl delete machine NAME                           # another one takes its place
    kubectl delete cluster first
Ctrl-C here stops everything and leaves nothing behind.

",
        log = log.display(),
    )
}

impl Stage {
    /// Applies YAML in the namespace of the README's objects.
    async fn apply(&self, yaml: &str) {
        let path = self.cp.directory().join("three-nodes.yaml");
        if let Err(error) = std::fs::write(&path, yaml) {
            say(format!("{}: {error}", path.display()));
        }
        self.kubectl(&["apply", "-f", &path.display().to_string()]).await;
    }
}
