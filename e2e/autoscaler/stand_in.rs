//! Stands in for the controller of a pool without Cluster API, until that is there: makes the machines of the pool as Nodes, and
//! removes those that the pool names, then what is too much. It decides nothing that the service under test decides.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capw::api::name::VmUuid;
use capw::api::pool::WindowsNodePool;
use futures::FutureExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use capw::api::machine::WindowsMachine;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt};

use crate::world::ControlPlane;

/// What it saw and did.
#[derive(Default)]
struct Seen {
    most: i32,
    removed: Vec<String>,
    made: usize,
}

/// A running one.
pub struct StandIn {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl StandIn {
    pub fn start(cp: &ControlPlane) -> Self {
        let (client, seen) = (cp.client(), Arc::<Mutex<Seen>>::default());
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let _ = std::panic::AssertUnwindSafe(pass(&client, &shared)).catch_unwind().await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self { seen, task }
    }

    /// Most machines that were ever asked for.
    pub fn most(&self) -> i32 {
        self.seen.lock().unwrap().most
    }

    /// Names of the machines that were removed, in order.
    pub fn removed(&self) -> Vec<String> {
        self.seen.lock().unwrap().removed.clone()
    }

    pub fn stop(&self) {
        self.task.abort();
    }
}

async fn pass(client: &Client, seen: &Mutex<Seen>) -> Option<()> {
    let pool = Api::<WindowsNodePool>::namespaced(client.clone(), "default").get("windows").await.ok()?;
    let api: Api<WindowsMachine> = Api::namespaced(client.clone(), "default");
    let machines = api.list(&ListParams::default()).await.ok()?.items;
    let names: BTreeSet<String> = machines.iter().map(|m| m.name_any()).collect();
    let wanted = pool.spec.replicas;
    {
        let mut seen = seen.lock().unwrap();
        seen.most = seen.most.max(wanted);
    }
    let named: Vec<String> = pool.named_for_removal().intersection(&names).cloned().collect();
    if !named.is_empty() {
        for name in named {
            remove(client, &api, seen, &name).await?;
        }
        return Some(());
    }
    let wanted = usize::try_from(wanted).unwrap_or_default();
    for name in names.iter().skip(wanted) {
        remove(client, &api, seen, name).await?;
    }
    for _ in names.len()..wanted {
        make(client, &api, &pool, seen).await?;
    }
    Some(())
}

async fn remove(client: &Client, api: &Api<WindowsMachine>, seen: &Mutex<Seen>, name: &str) -> Option<()> {
    seen.lock().unwrap().removed.push(name.to_owned());
    let _ = Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await;
    api.delete(name, &DeleteParams::default()).await.ok().map(drop)
}

async fn make(client: &Client, api: &Api<WindowsMachine>, pool: &WindowsNodePool, seen: &Mutex<Seen>) -> Option<()> {
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.made += 1;
        seen.made
    };
    let name = format!("win-{number}");
    let owner = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "name": "windows", "uid": pool.uid()});
    let machine = object(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]}, "spec": {"image": "windows-server-2022"},
    }));
    let made: WindowsMachine = api.create(&PostParams::default(), &machine).await.expect("a machine");
    let provider_id = format!("windows://lab/{}", VmUuid::of(&made.uid().unwrap_or_default()));
    let patch = Patch::Merge(json!({"spec": {"providerID": provider_id}}));
    api.patch(&name, &PatchParams::default(), &patch).await.expect("its identity");
    let node = object(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}},
        "spec": {"providerID": provider_id, "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "4", "memory": "8192Mi", "pods": "30"},
            "allocatable": {"cpu": "3360m", "memory": "4693Mi", "pods": "30"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }));
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.expect("a Node");
    let joined = json!({"type": "NodeJoined", "status": "True", "reason": "Joined", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = Patch::Merge(json!({"status": {"conditions": [joined]}}));
    api.patch_status(&name, &PatchParams::default(), &patch).await.expect("its status");
    Some(())
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of its kind")
}
