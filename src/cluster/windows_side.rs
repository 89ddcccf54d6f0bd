//! Reading, applying and removing what CAPW brings to a workload cluster for its Windows nodes.

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::Value;

use super::ApiError;
use super::linux_side::named;
use super::workload::{Workload, WorkloadError};
use crate::api::listing::Listing;

/// Whose the fields of the Windows side are.
pub const COMPONENTS_MANAGER: &str = "capw-components";

impl Workload {
    /// The object of that name, if there is one.
    pub async fn object(&self, of: &Listing, namespace: Option<&str>, name: &str) -> Result<Option<Value>, WorkloadError> {
        let what = format!("get {}", named(of, namespace, name));
        let found = self.call(&what, self.api(of, namespace).get_opt(name)).await?;
        Ok(found.and_then(|object| serde_json::to_value(object).ok()))
    }

    /// Applies an object under the field manager [`COMPONENTS_MANAGER`], over what others have written into the same fields.
    pub async fn apply_object(&self, of: &Listing, namespace: Option<&str>, name: &str, object: &Value) -> Result<(), WorkloadError> {
        let what = format!("patch {}", named(of, namespace, name));
        let parameters = PatchParams::apply(COMPONENTS_MANAGER).force();
        self.call(&what, self.api(of, namespace).patch(name, &parameters, &Patch::Apply(object))).await.map(drop)
    }

    /// Deletes the object that has this UID. One that is gone, or another one of the same name, is no error.
    pub async fn delete_object(&self, of: &Listing, name: &str, uid: &str) -> Result<(), WorkloadError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let what = format!("delete {}", named(of, None, name));
        match self.call(&what, self.api(of, None).delete(name, &parameters)).await {
            Err(WorkloadError::Api(ApiError::NotFound(_) | ApiError::Conflict(_))) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
