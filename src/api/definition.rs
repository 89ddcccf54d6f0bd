//! The part of a CustomResourceDefinition that CAPW reads: its versions, without their schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceSubresources,
};
use kube::api::ApiResource;
use kube::core::Object;
use serde::{Deserialize, Serialize};

use super::KINDS;

/// Annotation with the generation of a definition whose objects need no migration. Cluster API sets it on its own definitions, and its
/// upgrade tests check it.
pub const OBSERVED_GENERATION: &str = "crd-migration.cluster.x-k8s.io/observed-generation";

/// A CustomResourceDefinition as the API server stores it.
pub type Definition = Object<DefinitionSpec, DefinitionStatus>;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DefinitionSpec {
    pub group: String,
    pub names: CustomResourceDefinitionNames,
    pub versions: Vec<Version>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Version {
    pub name: String,
    /// Whether the API server answers requests in this version.
    pub served: bool,
    /// Whether the API server writes objects to etcd in this version; exactly one version is the storage version.
    pub storage: bool,
    pub subresources: Option<CustomResourceSubresources>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionStatus {
    /// Versions in which objects may be stored in etcd. The API server adds versions and never removes one.
    #[serde(default)]
    pub stored_versions: Vec<String>,
}

/// Group and name of each of our definitions. The name ends with the group.
pub fn names() -> Vec<(String, String)> {
    KINDS.iter().filter_map(|kind| Some(((kind.name)().split_once('.')?.1.to_owned(), (kind.name)().to_owned()))).collect()
}

/// The resource of definitions themselves.
pub fn resource() -> ApiResource {
    ApiResource::erase::<CustomResourceDefinition>(&())
}
