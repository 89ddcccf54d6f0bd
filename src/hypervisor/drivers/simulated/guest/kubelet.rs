//! The kubelet of a guest: registers its Node once per start, then renews its lease and, rarely, its status.
//!
//! It does only what NodeRestriction allows a kubelet. A deleted Node is not recreated until the
//! machine starts again, as with a real kubelet.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use secrecy::SecretString;
use serde_json::json;
use tokio::time::sleep;
use tracing::debug;

use super::error::JoinError;
use super::node::{Hardware, Kubelet, conditions, node};
use super::powered::Guest;
use super::server::{Credentials, Server, refused};
use crate::hypervisor::drivers::simulated::record::address;

const LEASES: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;
/// The time between two renewals of a lease of [`LEASE_SECONDS`].
const RENEWAL: Duration = Duration::from_secs(15);
/// The number of renewals between two status reports: five minutes.
const STATUS_EVERY: u32 = 20;
const RETRY: Duration = Duration::from_secs(3);

/// The kubelet with its identity from the join.
pub struct Running {
    pub kubelet: Kubelet,
    pub server: Server,
    pub certificate: String,
    pub key: SecretString,
}

/// The result of a heartbeat.
enum Beat {
    Renewed,
    /// The Node was deleted.
    NoNode,
}

impl Running {
    /// Runs until the power goes off. `registered`: this start of the machine has registered its Node before.
    pub async fn run(&self, guest: &Guest, registered: bool) {
        if !registered {
            while let Err(error) = self.register(guest).await {
                debug!(node = %self.kubelet.node, %error, "simulated kubelet cannot register");
                sleep(RETRY).await;
            }
            guest.registered().await;
        }
        // Spread the renewals over the period: an operator that starts with a thousand guests must not renew all leases at once.
        let mut next = RENEWAL.mul_f64(f64::from(u32::from(guest.record.vm.as_bytes()[15])) / 256.0);
        // A starting kubelet reports its status, and so does one whose Node may count as dead after a long silence.
        let mut heard = (!registered).then(|| guest.now());
        for beat in 1_u32.. {
            sleep(next).await;
            let silent = heard.is_none_or(|at| guest.now().duration_since(at).as_secs() >= i64::from(LEASE_SECONDS));
            next = match self.beat(guest, silent || beat.is_multiple_of(STATUS_EVERY)).await {
                Ok(Beat::Renewed) => {
                    heard = Some(guest.now());
                    RENEWAL
                }
                Ok(Beat::NoNode) => break,
                Err(error) => {
                    debug!(node = %self.kubelet.node, %error, "simulated kubelet cannot renew its lease");
                    RETRY
                }
            };
        }
        debug!(node = %self.kubelet.node, "the Node of a simulated guest was deleted; its kubelet does not make it again");
    }

    fn client(&self) -> Result<Client, JoinError> {
        self.server.client(&Credentials::Certificate { pem: &self.certificate, key: &self.key })
    }

    async fn register(&self, guest: &Guest) -> Result<(), JoinError> {
        let _permit = guest.request().await;
        let client = self.client()?;
        let api: Api<Node> = Api::all(client.clone());
        let hardware = Hardware {
            image: &guest.record.image,
            cpus: guest.record.cpus,
            memory_mib: guest.record.memory_mib,
            address: address(guest.record.vm).to_string(),
            uuid: guest.record.vm.to_string(),
        };
        let now = guest.now();
        let made = match api.create(&PostParams::default(), &node(&self.kubelet, &hardware, now)).await {
            Ok(made) => made,
            // The Node was registered at an earlier start: only its status is new.
            Err(error) if refused(&error) == Some(409) => self.report(&api, now).await?,
            Err(error) => return Err(self.server.explain("create node", &error)),
        };
        self.renew(&client, Some(&made), now).await.map(|_| ())
    }

    async fn beat(&self, guest: &Guest, report: bool) -> Result<Beat, JoinError> {
        let _permit = guest.request().await;
        let client = self.client()?;
        let now = guest.now();
        if report {
            let api: Api<Node> = Api::all(client.clone());
            match self.patch(&api, now).await {
                Err(error) if refused(&error) == Some(404) => return Ok(Beat::NoNode),
                result => result.map_err(|error| self.server.explain("patch node status", &error))?,
            };
        }
        self.renew(&client, None, now).await
    }

    async fn patch(&self, api: &Api<Node>, now: Timestamp) -> kube::Result<Node> {
        let status = json!({ "status": { "conditions": conditions(now) } });
        api.patch_status(&self.kubelet.node, &PatchParams::default(), &Patch::Strategic(status)).await
    }

    async fn report(&self, api: &Api<Node>, now: Timestamp) -> Result<Node, JoinError> {
        self.patch(api, now).await.map_err(|error| self.server.explain("patch node status", &error))
    }

    /// Renews the lease, and creates it if it is missing and the Node exists.
    async fn renew(&self, client: &Client, node: Option<&Node>, now: Timestamp) -> Result<Beat, JoinError> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
        let name = &self.kubelet.node;
        let renewed = json!({ "spec": { "renewTime": MicroTime(now), "holderIdentity": name } });
        match leases.patch_metadata(name, &PatchParams::default(), &Patch::Merge(renewed)).await {
            Ok(_) => return Ok(Beat::Renewed),
            Err(error) if refused(&error) == Some(404) => {}
            Err(error) => return Err(self.server.explain("patch lease", &error)),
        }
        let found;
        let node = match node {
            Some(node) => node,
            None => {
                let api: Api<Node> = Api::all(client.clone());
                match api.get_opt(name).await.map_err(|error| self.server.explain("get node", &error))? {
                    None => return Ok(Beat::NoNode),
                    Some(node) => {
                        found = node;
                        &found
                    }
                }
            }
        };
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: name.clone(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let lease = Lease {
            metadata: ObjectMeta { name: Some(name.clone()), owner_references: Some(vec![owner]), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(name.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        };
        match leases.create(&PostParams::default(), &lease).await {
            Err(error) if refused(&error) != Some(409) => Err(self.server.explain("create lease", &error)),
            _ => Ok(Beat::Renewed),
        }
    }
}
