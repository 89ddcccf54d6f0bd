//! Runs the controllers of a process, and keeps the parts that several of them share.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kube::ResourceExt;
use tokio_util::task::AbortOnDropHandle;

use super::pool::{self, CachedNodeGroups};
use super::shared::Shared;
use super::{bootstrap_config, control_plane, definitions, fleet, hypervisor, machine, machine_template, windows_cluster};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::api::control_plane::ExternalControlPlane;
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::autoscaler::ServiceHandle;
use crate::engine::caches::Caches;
use crate::engine::controller::ControllerLoop;
use crate::engine::management::{Clock, Management, NewTokenSecret};
use crate::engine::roles::Roles;
use crate::engine::triggers::{Receiver, Requested};
use crate::engine::watch::{Watch, Watching};
use crate::engine::workload_clusters::WorkloadClusters;
use crate::hypervisor::drivers::Drivers;
use crate::kube_api::cluster::Cluster;
use crate::kube_api::events::Events;
use crate::kube_api::workloads::Workloads;

/// The parts that the composition root hands over.
pub struct Parts {
    pub cluster: Cluster,
    pub workloads: Workloads,
    pub events: Events,
    pub drivers: Arc<Drivers>,
    pub clock: Clock,
    pub new_token_secret: NewTokenSecret,
    pub approve_serving_certificates: bool,
    /// CAPW's own image, as Windows nodes pull it.
    pub image: Option<String>,
    /// Gives the autoscaler's service the caches while this process leads.
    pub autoscaler: Option<ServiceHandle>,
}

/// Runs the controllers of these roles until `controllers.stop`, then waits for running passes.
pub async fn run(parts: Parts, roles: Roles, controllers: &ControllerLoop, watching: &Watching) {
    let Parts { cluster, workloads, events, drivers, clock, new_token_secret, approve_serving_certificates, image, autoscaler } = parts;
    let management = Arc::new(Management { cluster, events, written: controllers.written.clone(), clock });
    let caches = Caches::start(watching, roles);
    let (shared, requested) = Shared::new(management, workloads, drivers, caches, approve_serving_certificates, image);
    let shared = &shared;
    tokio::select! {
        () = shared.caches.ready() => {}
        () = controllers.stop.cancelled() => return,
    }
    if let Some(service) = autoscaler.as_ref().filter(|_| roles.infrastructure) {
        service.open(Arc::new(CachedNodeGroups(shared.caches.clone())), shared.management.cluster.clone());
        tracing::info!("cluster-autoscaler is answered");
    }
    shared.clusters.spawn(forget_clusters(shared.caches.clone(), shared.clusters.clone()));
    let (metrics, clock) = (controllers.metrics.clone(), shared.management.clock.clone());
    let observing = fleet::observe(shared.caches.clone(), shared.clusters.clone(), metrics, clock, roles);
    let _observing = AbortOnDropHandle::new(tokio::spawn(observing));
    let Requested { machines, configs, pools, windows_clusters } = requested;
    let infrastructure = async {
        if roles.infrastructure {
            run_infrastructure(shared, controllers, watching, (machines, pools, windows_clusters)).await;
        }
    };
    let bootstrap = async {
        if roles.bootstrap {
            let triggers = bootstrap_config::triggers(&shared.caches, configs);
            let reconcile = with(shared.bootstrap_config(new_token_secret), bootstrap_config::reconcile);
            let watch = &shared.caches.configs.0;
            let passes = controllers.run("windowsbootstrapconfig", watch, triggers, reconcile);
            all([passes.boxed(), shared.unreadable(controllers, watch).boxed()]).await;
        }
    };
    let control_plane = async {
        if roles.control_plane {
            let watch: Watch<ExternalControlPlane> = Watch::start(watching);
            let triggers = control_plane::triggers(&shared.caches);
            let reconcile = with(shared.control_plane(), control_plane::reconcile);
            let passes = controllers.run("externalcontrolplane", &watch, triggers, reconcile);
            all([passes.boxed(), shared.unreadable(controllers, &watch).boxed()]).await;
        }
    };
    let definitions = definitions::Context { cluster: shared.management.cluster.clone(), metrics: controllers.metrics.clone() };
    let definitions = definitions::run(definitions, roles, &watching.selection.namespaces, &controllers.stop);
    all([infrastructure.boxed(), bootstrap.boxed(), control_plane.boxed(), definitions.boxed()]).await;
    // The service holds the caches too.
    autoscaler.iter().for_each(ServiceHandle::close);
    shared.clusters.stop();
}

/// The controllers of the infrastructure provider.
async fn run_infrastructure(
    shared: &Shared,
    controllers: &ControllerLoop,
    watching: &Watching,
    (machines, pools, windows_clusters): (Receiver<WindowsMachine>, Receiver<WindowsNodePool>, Receiver<WindowsCluster>),
) {
    let caches = &shared.caches;
    let pool = shared.pool();
    let pool_triggers = pool::triggers(caches, &pool.memories, pools);
    let unfiltered = controllers.unfiltered();
    let hypervisor = shared.hypervisor(&watching.selection);
    let template = machine_template::Context { management: shared.management.clone(), caches: caches.clone(), selection: watching.selection.clone() };
    all([
        controllers
            .run("windowsmachine", &caches.windows_machines.0, machine::triggers(caches, machines), with(shared.machine(), machine::reconcile))
            .boxed(),
        unfiltered
            .run(
                "windowshypervisor",
                &caches.hypervisors.0,
                hypervisor::triggers(caches, &shared.hypervisors.drivers),
                with(hypervisor, hypervisor::reconcile),
            )
            .boxed(),
        controllers
            .run(
                "windowscluster",
                &caches.windows_clusters.0,
                windows_cluster::triggers(caches, windows_clusters),
                with(shared.windows_cluster(), windows_cluster::reconcile),
            )
            .boxed(),
        controllers.run("windowsnodepool", &caches.pools.0, pool_triggers, with(pool, pool::reconcile)).boxed(),
        unfiltered
            .run(
                "windowsmachinetemplate",
                &caches.machine_templates.0,
                machine_template::triggers(caches),
                with(template, machine_template::reconcile),
            )
            .boxed(),
        shared.unreadable(controllers, &caches.windows_machines.0).boxed(),
        shared.unreadable(controllers, &caches.hypervisors.0).boxed(),
        shared.unreadable(controllers, &caches.windows_clusters.0).boxed(),
        shared.unreadable(controllers, &caches.pools.0).boxed(),
    ])
    .await;
}

/// Runs all futures to their end. Each future is polled only when it is woken itself: `tokio::join!` polls all of them whenever one is woken.
async fn all<const COUNT: usize>(futures: [BoxFuture<'_, ()>; COUNT]) {
    FuturesUnordered::from_iter(futures).collect().await
}

/// Binds a reconcile function to its context, as the loop needs it.
fn with<K, C, R>(context: C, reconcile: fn(Arc<K>, C) -> R) -> impl Fn(Arc<K>) -> R + Send + Sync + 'static
where
    K: 'static,
    C: Clone + Send + Sync + 'static,
    R: Future + 'static,
{
    move |object| reconcile(object, context.clone())
}

/// Drops clients and watches of workload clusters whose Cluster was deleted.
async fn forget_clusters(caches: Arc<Caches>, clusters: WorkloadClusters) {
    let mut changes = std::pin::pin!(caches.clusters.0.subscribe());
    while let Some(cluster) = changes.next().await {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        if caches.clusters.get(&namespace, &name).is_none() {
            clusters.forget(&ClusterRef::cluster_api(&namespace, &name)).await;
        }
    }
}

#[cfg(test)]
mod tests;
