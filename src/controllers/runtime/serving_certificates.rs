//! Approves the certificates with which kubelets of ours serve logs, exec and metrics, if machines ask the cluster's authority for
//! them. One watch per workload cluster, from the first such machine on. The rule is
//! [`crate::lifecycle::bootstrap_config::csr::serving`]. A request costs one read of its Node.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::certificates::Handled;
use super::watch_task::WatchTask;
use super::workload_clusters::{WatchContext, WorkloadClusters};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::Reason;
use crate::api::machine::{MachineAddressType, WindowsMachine};
use crate::cluster::csr;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::lifecycle::bootstrap_config::csr::serving::{ExpectedServing, SERVING_SIGNER, judge, own_addresses, requester};
use crate::lifecycle::bootstrap_config::csr::{Verdict, is_decided};
use crate::lifecycle::identity::host_name;

/// Between two tries of requests that came too early or failed: the watch does not show them again, and a kubelet asks anew after a quarter of
/// an hour.
const AGAIN: Duration = Duration::from_secs(15);

/// The watches, and what was refused, so that it is told once.
#[derive(Default)]
pub struct ServingCertificates(Mutex<HashMap<ClusterRef, Followed>>);

#[derive(Default)]
struct Followed {
    watch: WatchTask,
    refused: HashSet<String>,
}

impl ServingCertificates {
    pub(super) fn is_watching(&self, cluster: &ClusterRef) -> bool {
        self.lock().get(cluster).is_some_and(|followed| followed.watch.is_running())
    }

    pub(super) fn watch(&self, cluster: &ClusterRef, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        self.lock().entry(cluster.clone()).or_default().watch.start(workload, spawn);
    }

    pub(super) fn forget(&self, cluster: &ClusterRef) {
        self.lock().remove(cluster);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterRef, Followed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the requests of one workload cluster until the task is aborted.
pub(super) async fn follow(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload) {
    let mut events = std::pin::pin!(csr::events(&workload, SERVING_SIGNER));
    let mut waiting = HashMap::new();
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = sleep(AGAIN), if !waiting.is_empty() => {
                for (_, request) in std::mem::take(&mut waiting) {
                    handle_or_keep(&clusters, &cluster, &workload, request, &mut waiting).await;
                }
                continue;
            }
        };
        match next {
            Some(Ok(Event::InitApply(request) | Event::Apply(request))) => {
                handle_or_keep(&clusters, &cluster, &workload, request, &mut waiting).await;
            }
            Some(Ok(Event::Delete(request))) => {
                waiting.remove(&request.name_any());
                if let Some(followed) = clusters.serving_certificates().lock().get_mut(&cluster) {
                    followed.refused.remove(&request.name_any());
                }
            }
            // All that there are come now.
            Some(Ok(Event::Init)) => waiting.clear(),
            Some(Ok(Event::InitDone)) => {}
            Some(Err(error)) => failed(&clusters, &cluster, &error).await,
            None => return,
        }
    }
}

/// Handles a request, or keeps it for the next try.
async fn handle_or_keep(
    clusters: &WorkloadClusters,
    cluster: &ClusterRef,
    workload: &Workload,
    request: CertificateSigningRequest,
    waiting: &mut HashMap<String, CertificateSigningRequest>,
) {
    waiting.remove(&request.name_any());
    match handle(clusters, cluster, workload, &request).await {
        Ok(Handled::Done) => return,
        Ok(Handled::Unseen) => {}
        Err(error) => failed(clusters, cluster, &error).await,
    }
    waiting.insert(request.name_any(), request);
}

async fn failed(clusters: &WorkloadClusters, cluster: &ClusterRef, error: &WorkloadError) {
    tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "serving certificates: {error}");
    clusters.doubt(cluster, error).await;
}

async fn handle(
    clusters: &WorkloadClusters,
    cluster: &ClusterRef,
    workload: &Workload,
    request: &CertificateSigningRequest,
) -> Result<Handled, WorkloadError> {
    let context = clusters.context();
    let machine = if is_decided(request) { None } else { requester(request).and_then(|node| machine_of(context, cluster, node)) };
    let Some(machine) = machine else { return Ok(Handled::Done) };
    let Some(expected) = expected(context, cluster, &machine) else { return Ok(Handled::Unseen) };
    let node = workload.node(expected.node.name.as_str()).await?;
    match judge(request, &expected, node.as_ref()) {
        Verdict::Approve => {
            let message = format!("names and addresses are those of WindowsMachine {}/{}", cluster.namespace, machine.name_any());
            csr::approve(workload, request, csr::SERVING_REASON, &message, context.management.now()).await?;
            tracing::info!(namespace = cluster.namespace, %cluster, request = request.name_any(), node = %expected.node.name, "serving certificate approved");
        }
        Verdict::Ignore => {}
        Verdict::Refuse(why) => {
            let is_news = clusters.serving_certificates().lock().entry(cluster.clone()).or_default().refused.insert(request.name_any());
            if is_news {
                let note = format!("serving certificate request {} was left alone: {why}", request.name_any());
                tracing::warn!(namespace = cluster.namespace, %cluster, "{note}");
                context.management.events.warning(&*machine, Reason::CertificateRequestRefused, "Approve", &note).await;
            }
        }
    }
    Ok(Handled::Done)
}

fn machines_of(context: &WatchContext, cluster: &ClusterRef) -> Vec<Arc<WindowsMachine>> {
    let mut machines = context.caches.windows_machines.all(&cluster.namespace);
    machines.retain(|machine| ClusterRef::of(&machine.metadata).as_ref() == Some(cluster));
    machines
}

/// The machine of that node.
fn machine_of(context: &WatchContext, cluster: &ClusterRef, node: &str) -> Option<Arc<WindowsMachine>> {
    let has_name = |machine: &WindowsMachine| host_name(machine).is_ok_and(|name| name.as_str() == node);
    let is_it = |machine: &Arc<WindowsMachine>| has_name(machine) && context.caches.node_of(machine).is_some();
    machines_of(context, cluster).into_iter().find(is_it)
}

/// What a machine may ask for; `None`: it is not known yet who asks for it.
fn expected(context: &WatchContext, cluster: &ClusterRef, machine: &WindowsMachine) -> Option<ExpectedServing> {
    context.owners.of_machine(machine).request()?;
    let machines = machines_of(context, cluster);
    let others: Vec<&str> = machines.iter().filter(|other| other.uid() != machine.uid()).flat_map(|other| addresses(other)).collect();
    let addresses = own_addresses(addresses(machine).into_iter(), &others);
    Some(ExpectedServing { node: context.caches.node_of(machine)?, addresses })
}

fn addresses(machine: &WindowsMachine) -> Vec<&str> {
    let reported = machine.status.as_ref().map(|status| status.addresses.as_slice()).unwrap_or_default();
    reported.iter().filter(|address| address.type_ == MachineAddressType::InternalIp).map(|address| address.address.as_str()).collect()
}

#[cfg(test)]
mod tests;
