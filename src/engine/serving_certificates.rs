//! Approves the serving certificates of our kubelets (for logs, exec and metrics), if machines request them from the cluster's authority. There is
//! one watch per workload cluster, from the first such machine on. The rule is [`crate::kinds::bootstrap_config::decide::csr::serving`]. A request
//! costs one read of its Node.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;

use super::followed::ServingCertificates;
use super::pending::{self, Handled, Place, Shown, Signer};
use super::workload_clusters::{WatchContext, WorkloadClusters};
use crate::api::bootstrap_config::{ServingCertificate, WindowsBootstrapConfig};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::Reason;
use crate::api::machine::{MachineAddressType, WindowsMachine};
use crate::domain::identity::host_name;
use crate::domain::owner::data_secret;
use crate::kinds::bootstrap_config::decide::csr::serving::{ExpectedServing, SERVING_SIGNER, judge, own_addresses, requester};
use crate::kinds::bootstrap_config::decide::csr::{Verdict, is_decided};
use crate::kube_api::csr;
use crate::kube_api::workload::WorkloadError;

impl WorkloadClusters {
    /// Watches the requests for serving certificates of a cluster, if a machine of it requests one that the cluster signs. `false`: the cluster
    /// cannot be watched yet.
    pub async fn watch_serving_certificates_for(&self, cluster: &ClusterRef, config: &WindowsBootstrapConfig) -> bool {
        let is_asked = config.spec.kubelet.serving_certificate == ServingCertificate::ClusterSigned && data_secret(config).is_some();
        if !is_asked || !self.context().approve_serving_certificates || self.serving_certificates().is_watching(cluster) {
            return true;
        }
        let workload = self.get(cluster).await.inspect_err(|error| {
            tracing::debug!(namespace = cluster.namespace, %cluster, %error, "serving certificates are not watched yet");
        });
        let spawn = |workload| self.spawn(pending::follow(Serves(Place::new(self, cluster, workload))));
        workload.map(|workload| self.serving_certificates().watch(cluster, &workload, spawn)).is_ok()
    }
}

/// The serving certificate requests of the nodes of one workload cluster.
#[derive(Clone)]
pub(super) struct Serves(pub Place);

impl Signer for Serves {
    const NAME: &'static str = SERVING_SIGNER;
    const WHAT: &'static str = "serving certificates";
    type Known = HashSet<String>;

    fn followed(&self) -> &ServingCertificates {
        self.0.clusters.serving_certificates()
    }

    fn place(&self) -> &Place {
        &self.0
    }

    fn learn(&self, shown: Shown) {
        self.followed().note(&self.0.cluster, |refused| match shown {
            Shown::Nothing | Shown::One(_) => {}
            Shown::All(listed) => refused.retain(|name| listed.iter().any(|request| request.name_any() == *name)),
            Shown::Gone(request) => {
                refused.remove(&request.name_any());
            }
        });
    }

    async fn handle(&self, request: &CertificateSigningRequest) -> Result<Handled, WorkloadError> {
        let Place { clusters, cluster, workload } = &self.0;
        let context = clusters.context();
        if is_decided(request) {
            return Ok(Handled::Done);
        }
        let Some(machine) = requester(request).and_then(|node| machine_of(context, cluster, node)) else { return Ok(Handled::Foreign) };
        let Some(expected) = expected(context, cluster, &machine) else { return Ok(Handled::Unseen) };
        let node = workload.node(expected.node.name.as_str()).await?;
        match judge(request, &expected, node.as_ref()) {
            Verdict::Approve => {
                let message = format!("names and addresses are those of WindowsMachine {}/{}", cluster.namespace, machine.name_any());
                csr::approve(workload, request, csr::SERVING_REASON, &message, context.management.now()).await?;
                let (request, node) = (request.name_any(), expected.node.name);
                tracing::info!(namespace = cluster.namespace, %cluster, request, %node, "serving certificate approved");
                Ok(Handled::Done)
            }
            Verdict::Ignore => Ok(Handled::Foreign),
            Verdict::Refuse(why) => {
                // Reported once, and judged again: an address may be reported later.
                if self.followed().note(cluster, |refused| refused.insert(request.name_any())) {
                    let note = format!("serving certificate request {} was left alone: {why}", request.name_any());
                    tracing::warn!(namespace = cluster.namespace, %cluster, "{note}");
                    context.management.events.warning(&*machine, Reason::CertificateRequestRefused, "Approve", &note).await;
                }
                Ok(Handled::Refused)
            }
        }
    }
}

fn machines_of(context: &WatchContext, cluster: &ClusterRef) -> Vec<Arc<WindowsMachine>> {
    let mut machines = context.caches.windows_machines.all(&cluster.namespace);
    machines.retain(|machine| ClusterRef::of(&machine.metadata).as_ref() == Some(cluster));
    machines
}

/// Returns the machine of that node.
fn machine_of(context: &WatchContext, cluster: &ClusterRef, node: &str) -> Option<Arc<WindowsMachine>> {
    let has_name = |machine: &WindowsMachine| host_name(machine).is_ok_and(|name| name.as_str() == node);
    let is_it = |machine: &Arc<WindowsMachine>| has_name(machine) && context.caches.node_of(machine).is_some();
    machines_of(context, cluster).into_iter().find(is_it)
}

/// Returns what a machine may request; `None` while its owner is unknown.
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
