//! Reading a node of a workload cluster for a diagnosis: what runs on it, its certificate requests, its events. Reads only.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};

use super::workload::{Workload, WorkloadError};

/// Events of one request; a diagnosis needs no more.
const LIMIT: u32 = 500;

impl Workload {
    /// All Pods on a Node.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, WorkloadError> {
        let parameters = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Ok(self.call("list pods", Api::<Pod>::all(self.client.clone()).list(&parameters)).await?.items)
    }

    /// Warnings about any of these objects.
    pub async fn warnings_about(&self, names: &[String]) -> Result<Vec<Event>, WorkloadError> {
        let parameters = ListParams::default().fields("type=Warning").limit(LIMIT);
        let all = self.call("list events", Api::<Event>::all(self.client.clone()).list(&parameters)).await?;
        let about = |event: &Event| event.involved_object.name.as_ref().is_some_and(|name| names.contains(name));
        Ok(all.items.into_iter().filter(about).collect())
    }

    /// Certificate requests by or for a node, whatever the signer.
    pub async fn requests_of(&self, node: &str) -> Result<Vec<CertificateSigningRequest>, WorkloadError> {
        let all = self
            .call("list certificatesigningrequests", Api::<CertificateSigningRequest>::all(self.client.clone()).list(&ListParams::default()))
            .await?;
        let user = format!("system:node:{node}");
        Ok(all.items.into_iter().filter(|request| request.spec.username.as_deref() == Some(&user)).collect())
    }
}
