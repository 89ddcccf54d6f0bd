//! OBSERVE → DECIDE → ACT → REPORT, thin: one file per kind, and [`runtime`] in which they all run.
//!
//! Nothing is decided here (that is `lifecycle/`), no driver is named, and the Kubernetes API is reached through `cluster/` only.

mod autoscaler;
mod bootstrap_config;
mod control_plane;
mod hypervisor;
mod machine;
mod machine_template;
mod pool;
pub mod runtime;
mod windows_cluster;

use std::collections::HashMap;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use secrecy::SecretString;
use tokio::sync::OnceCell;
use tokio::task::{AbortHandle, JoinSet};

use self::runtime::controller::{Shell, Written};
use self::runtime::{certificates, nodes, stores, triggers};
use self::runtime::watch::{Watch, Watching};
use crate::api::control_plane::ExternalControlPlane;
use crate::cluster::Cluster;
use crate::cluster::events::Events;
use crate::cluster::join_rights;
use crate::cluster::workload::{Workload, WorkloadError, Workloads};
use crate::hypervisor::drivers::Drivers;

/// What the composition root hands over.
pub struct Parts {
    pub cluster: Cluster,
    pub workloads: Workloads,
    pub events: Events,
    pub drivers: Arc<Drivers>,
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Makes the secret half of a bootstrap token: 16 characters of 0-9a-z.
    pub new_token_secret: Arc<dyn Fn() -> SecretString + Send + Sync>,
    pub written: Written,
    /// Where the autoscaler's service finds the caches, while this process leads.
    pub autoscaler: Option<crate::autoscaler::Slot>,
}

/// Which providers this process is; three Deployments may share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub infrastructure: bool,
    pub bootstrap: bool,
    pub control_plane: bool,
}

/// What every reconcile may use. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
}

/// See [`Context`].
pub struct Shared {
    parts: Parts,
    stores: stores::Stores,
    wake: triggers::Calls,
    inventories: hypervisor::inventory::Inventories,
    seeds: machine::Seeds,
    unreported: bootstrap_config::data_secret::Unreported,
    known_tokens: bootstrap_config::data_secret::KnownTokens,
    certificates: certificates::Certificates,
    nodes: nodes::Nodes,
    pools: pool::Memories,
    probes: control_plane::clients::Probes,
    join_rights: Mutex<HashMap<String, Arc<OnceCell<()>>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Deref for Context {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Deref for Shared {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Context {
    fn new(parts: Parts, stores: stores::Stores, wake: triggers::Calls) -> Self {
        let shared = Shared {
            parts,
            stores,
            wake,
            inventories: Default::default(),
            seeds: Default::default(),
            unreported: Default::default(),
            known_tokens: Default::default(),
            certificates: Default::default(),
            nodes: Default::default(),
            pools: Default::default(),
            probes: Default::default(),
            join_rights: Default::default(),
            tasks: Default::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    async fn workload(&self, namespace: &str, cluster: &str) -> Result<Arc<Workload>, WorkloadError> {
        self.workloads.get(namespace, cluster).await
    }

    /// The rights of joining nodes are looked at once per process and kubeconfig: many machines begin at the same time, and all
    /// but the first wait here.
    async fn ensure_join_rights(&self, workload: &Workload) -> Result<(), WorkloadError> {
        let once = self.join_rights.lock().unwrap_or_else(PoisonError::into_inner).entry(workload.fingerprint.clone()).or_default().clone();
        once.get_or_try_init(|| async { join_rights::ensure(workload).await.map(drop) }).await.copied()
    }

    /// Nobody needs that workload cluster any more.
    async fn forget(&self, namespace: &str, cluster: &str) {
        self.certificates.forget(namespace, cluster);
        self.nodes.forget(namespace, cluster);
        self.workloads.forget(namespace, cluster).await;
    }

    /// Runs a task that ends with the process.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task)
    }
}

/// Runs the controllers of these roles until the shell stops, then lets running passes end.
pub async fn run(parts: Parts, roles: Roles, shell: &Shell, watching: &Watching) {
    let (wake, called) = triggers::Calls::new();
    let ctx = &Context::new(parts, stores::Stores::start(watching, roles), wake);
    tokio::select! {
        () = ctx.stores.ready() => {}
        () = shell.stop.cancelled() => return,
    }
    let answering = async {
        if let Some(slot) = ctx.autoscaler.as_ref().filter(|_| roles.infrastructure) {
            shell.stop.run_until_cancelled(autoscaler::open(ctx, slot, watching)).await;
        }
    };
    let infrastructure = async {
        if !roles.infrastructure {
            return;
        }
        tokio::join!(
            shell.run(
                "windowsmachine",
                &ctx.stores.windows_machines.0,
                triggers::machines(ctx, called.machines),
                with(ctx, machine::reconcile),
                |_, _| ()
            ),
            shell.run("windowshypervisor", &ctx.stores.hypervisors.0, triggers::hypervisors(ctx), with(ctx, hypervisor::reconcile), |_, _| ()),
            shell.run(
                "windowscluster",
                &ctx.stores.windows_clusters.0,
                triggers::windows_clusters(ctx),
                with(ctx, windows_cluster::reconcile),
                |_, _| ()
            ),
            shell.run("windowsnodepool", &ctx.stores.pools.0, triggers::pools(ctx, called.pools), with(ctx, pool::reconcile), |_, _| ()),
            shell.run("windowsmachinetemplate", &ctx.stores.machine_templates.0, vec![], with(ctx, machine_template::reconcile), |_, _| ()),
        );
    };
    let bootstrap = async {
        if roles.bootstrap {
            let triggers = triggers::configs(ctx, called.configs);
            shell.run("windowsbootstrapconfig", &ctx.stores.configs.0, triggers, with(ctx, bootstrap_config::reconcile), |_, _| ()).await;
        }
    };
    let control_plane = async {
        if roles.control_plane {
            let control_planes: Watch<ExternalControlPlane> = Watch::start(watching);
            shell.run("externalcontrolplane", &control_planes, triggers::control_planes(ctx), with(ctx, control_plane::reconcile), |_, _| ()).await;
        }
    };
    ctx.spawn(forget_clusters(ctx.clone()));
    tokio::join!(infrastructure, bootstrap, control_plane, answering);
    // Its caches hold the context too.
    ctx.autoscaler.iter().for_each(crate::autoscaler::Slot::close);
    // The tasks hold the context, and the context them.
    ctx.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
}

/// A reconcile with its context, as the shell takes it.
fn with<K, R>(ctx: &Context, reconcile: fn(Arc<K>, Context) -> R) -> impl Fn(Arc<K>) -> R + Send + Sync + 'static
where
    K: 'static,
    R: Future + 'static,
{
    let ctx = ctx.clone();
    move |object| reconcile(object, ctx.clone())
}

/// Drops clients and watches of workload clusters whose Cluster is gone.
async fn forget_clusters(ctx: Context) {
    let mut changes = std::pin::pin!(ctx.stores.clusters.0.subscribe());
    while let Some(cluster) = changes.next().await {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        if ctx.stores.clusters.get(&namespace, &name).is_none() {
            ctx.forget(&namespace, &name).await;
        }
    }
}
