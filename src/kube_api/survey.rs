//! Reads the state of a node of a workload cluster: its pods, its certificate requests, its events. Reads only.

use std::fmt::Debug;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::workload::{Workload, WorkloadError};

/// The most bytes of JSON for the pods of a Node: many times the pods of a full Node. Several nodes are drained at the same time.
const OF_NODE: usize = 8 << 20;
/// The most events of one request, which is enough for a diagnosis.
const LIMIT: u32 = 500;

impl Workload {
    /// Returns all Pods on a Node, each with the fields of `P`.
    pub async fn pods_on<P>(&self, node: &str) -> Result<Vec<P>, WorkloadError>
    where
        P: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.pages("list pods", Api::<P>::all(self.client.clone()), on_node).keeping_at_most(OF_NODE).keep(Some).await
    }

    /// Returns the warnings about any of these objects.
    pub async fn warnings_about(&self, names: &[String]) -> Result<Vec<Event>, WorkloadError> {
        let parameters = ListParams::default().fields("type=Warning").limit(LIMIT);
        let all = self.call("list events", Api::<Event>::all(self.client.clone()).list(&parameters)).await?;
        let about = |event: &Event| event.involved_object.name.as_ref().is_some_and(|name| names.contains(name));
        Ok(all.items.into_iter().filter(about).collect())
    }

    /// Returns the certificate requests by or for a node, whatever the signer.
    pub async fn requests_of(&self, node: &str) -> Result<Vec<CertificateSigningRequest>, WorkloadError> {
        let all = self.pages("list certificatesigningrequests", Api::all(self.client.clone()), ListParams::default());
        let user = format!("system:node:{node}");
        all.keep(|request: CertificateSigningRequest| (request.spec.username.as_deref() == Some(&user)).then_some(request)).await
    }
}
