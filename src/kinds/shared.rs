//! Objects that several controllers share, and the context of each controller.

use std::sync::Arc;

use super::hypervisor::{self, Hypervisors};
use super::{bootstrap_config, control_plane, machine, pool, windows_cluster};
use crate::engine::caches::Caches;
use crate::engine::controller::ControllerLoop;
use crate::engine::made_secrets::MadeSecrets;
use crate::engine::management::{Management, NewTokenSecret};
use crate::engine::nodes::Nodes;
use crate::engine::owners::Owners;
use crate::engine::triggers::{Requested, Requests};
use crate::engine::unreadable_reports::report_all;
use crate::engine::watch::{Selection, Watch};
use crate::engine::workload_clusters::{WatchContext, WorkloadClusters};
use crate::hypervisor::drivers::Drivers;
use crate::kube_api::cluster::Kind;
use crate::kube_api::workloads::Workloads;

/// The objects that several controllers share.
pub(crate) struct Shared {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    pub made_secrets: Arc<MadeSecrets>,
    pub requests: Requests,
    pub image: Option<String>,
}

impl Shared {
    /// Returns the objects, and the passes that they request.
    pub fn new(
        management: Arc<Management>,
        workloads: Workloads,
        drivers: Arc<Drivers>,
        caches: Caches,
        approve_serving_certificates: bool,
        image: Option<String>,
    ) -> (Self, Requested) {
        let (requests, requested) = Requests::new();
        let (caches, nodes) = (Arc::new(caches), Arc::new(Nodes::default()));
        let owners = Owners::new(caches.clone(), nodes.clone());
        let context = WatchContext {
            management: management.clone(),
            caches: caches.clone(),
            owners: owners.clone(),
            requests: requests.clone(),
            nodes,
            approve_serving_certificates,
        };
        let clusters = WorkloadClusters::new(workloads, context);
        let hypervisors = Hypervisors { caches: caches.clone(), drivers, inventories: Arc::default(), logins: Arc::default() };
        (Self { management, caches, owners, clusters, hypervisors, made_secrets: Arc::default(), requests, image }, requested)
    }

    pub async fn unreadable<K: Kind>(&self, controllers: &ControllerLoop, watch: &Watch<K>) {
        report_all(&self.management, watch, &controllers.selection, controllers.stop.clone().cancelled_owned()).await;
    }

    pub fn machine(&self) -> machine::Context {
        machine::Context {
            management: self.management.clone(),
            caches: self.caches.clone(),
            owners: self.owners.clone(),
            clusters: self.clusters.clone(),
            hypervisors: self.hypervisors.clone(),
            made_secrets: self.made_secrets.clone(),
            seeds: Arc::default(),
            failures: Arc::default(),
            endings: Arc::default(),
            deletions: Arc::default(),
        }
    }

    pub fn pool(&self) -> pool::Context {
        pool::Context {
            management: self.management.clone(),
            caches: self.caches.clone(),
            owners: self.owners.clone(),
            clusters: self.clusters.clone(),
            hypervisors: self.hypervisors.clone(),
            memories: Arc::default(),
        }
    }

    pub fn hypervisor(&self, selection: &Selection) -> hypervisor::Context {
        hypervisor::Context {
            selection: selection.clone(),
            management: self.management.clone(),
            caches: self.caches.clone(),
            hypervisors: self.hypervisors.clone(),
            requests: self.requests.clone(),
        }
    }

    pub fn windows_cluster(&self) -> windows_cluster::Context {
        windows_cluster::Context {
            management: self.management.clone(),
            caches: self.caches.clone(),
            clusters: self.clusters.clone(),
            hypervisors: self.hypervisors.clone(),
            image: self.image.clone(),
        }
    }

    pub fn bootstrap_config(&self, new_token_secret: NewTokenSecret) -> bootstrap_config::Context {
        bootstrap_config::Context {
            management: self.management.clone(),
            caches: self.caches.clone(),
            owners: self.owners.clone(),
            clusters: self.clusters.clone(),
            new_token_secret,
            made_secrets: self.made_secrets.clone(),
            unreported: Arc::default(),
            known_tokens: Arc::default(),
            secret_owners: Arc::default(),
        }
    }

    pub fn control_plane(&self) -> control_plane::Context {
        control_plane::Context {
            management: self.management.clone(),
            caches: self.caches.clone(),
            clusters: self.clusters.clone(),
            clients: Arc::default(),
        }
    }
}
