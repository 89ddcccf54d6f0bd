//! Certificate signing requests of a workload cluster: the watch and the approval. Other modules decide which requests are approved.

use futures::{Stream, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};

use super::error::ApiError;
use super::kept::within;
use super::watches;
use super::workload::{Workload, WorkloadError};
use crate::api::bootstrap_config::JOIN_SIGNER;

/// The reason in the condition of serving certificate requests that we approved.
pub const SERVING_REASON: &str = "CAPWApprovedServing";
/// The reason in the condition of join requests that we approved.
pub const APPROVED_REASON: &str = "CAPWApprovedJoin";
/// The most bytes of JSON for the names of a machine's requests: thousands of names.
const NAMES: usize = 1 << 20;

/// Streams the requests for that signer: the existing ones, and every change. The stream has its own back-off; it returns errors so that they can
/// be counted and logged. It ends when the requests exceed the limit for kept objects.
pub fn events(
    workload: &Workload,
    signer: &str,
) -> impl Stream<Item = Result<watcher::Event<CertificateSigningRequest>, WorkloadError>> + Send + use<> {
    let api: Api<CertificateSigningRequest> = Api::all(workload.client.clone());
    let of_kubelets = watches::settings().fields(&format!("spec.signerName={signer}"));
    let endpoint = workload.clone();
    let what = "watch certificatesigningrequests";
    let events = watcher(api, of_kubelets).default_backoff().map_err(move |error| endpoint.explain(failed(what, error)));
    within(workload, what, events)
}

/// Converts an error of a watch.
pub(super) fn failed(what: &str, error: watcher::Error) -> ApiError {
    match error {
        watcher::Error::InitialListFailed(e) | watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => ApiError::of(what, e),
        watcher::Error::WatchError(status) => ApiError::answered(what, &status),
        watcher::Error::NoResourceVersion => ApiError::Other(format!("{what}: the answer has no resourceVersion")),
    }
}

/// Whether CAPW approved the request.
pub fn is_approved_here(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Approved" && c.reason.as_deref() == Some(APPROVED_REASON))
}

/// Returns the names of the existing join requests that `is_meant` selects.
pub async fn names_of(workload: &Workload, is_meant: impl Fn(&CertificateSigningRequest) -> bool) -> Result<Vec<String>, WorkloadError> {
    let api: Api<CertificateSigningRequest> = Api::all(workload.client.clone());
    let of_kubelets = ListParams::default().fields(&format!("spec.signerName={JOIN_SIGNER}"));
    let pages = workload.pages("list certificatesigningrequests", api, of_kubelets).keeping_at_most(NAMES);
    pages.keep(|request| is_meant(&request).then(|| request.name_any())).await
}

/// Approves exactly the request that was judged: its UID and version are sent, so a request that was changed or recreated in between is a conflict.
/// `false`: the request was deleted.
pub async fn approve(
    workload: &Workload,
    request: &CertificateSigningRequest,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Result<bool, WorkloadError> {
    let name = request.name_any();
    let mut approved = request.clone();
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(Time(now)),
        last_transition_time: None,
    };
    approved.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    let api: Api<CertificateSigningRequest> = Api::all(workload.client.clone());
    let parameters = PostParams::default();
    let call = api.replace_subresource("approval", &name, &parameters, &approved);
    match workload.call(&format!("approve certificatesigningrequests {name}"), call).await {
        Ok(_) => Ok(true),
        Err(WorkloadError::Api(ApiError::NotFound(_))) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes those requests; already deleted ones are no error.
pub async fn delete_of(workload: &Workload, names: &[String]) -> Result<(), WorkloadError> {
    let api: Api<CertificateSigningRequest> = Api::all(workload.client.clone());
    for name in names {
        match workload.call(&format!("delete certificatesigningrequests {name}"), api.delete(name, &DeleteParams::background())).await {
            Ok(_) | Err(WorkloadError::Api(ApiError::NotFound(_))) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
