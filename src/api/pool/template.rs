//! `WindowsNodePoolTemplate`: the pools for the MachinePools of a ClusterClass.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::WindowsNodePoolSpec;
use crate::api::machine::TemplateMetadata;

/// The template from which ClusterClass creates WindowsNodePools.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsNodePoolTemplate",
    plural = "windowsnodepooltemplates",
    namespaced,
    shortname = "wnpt",
    category = "cluster-api",
    doc = "Template of the WindowsNodePools of MachinePools, for ClusterClasses.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsNodePoolTemplateSpec {
    /// The pool to create.
    pub template: WindowsNodePoolTemplateResource,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsNodePoolTemplateResource {
    /// Labels and annotations of the pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the pools. The MachinePool sets the number of machines and the version.
    pub spec: WindowsNodePoolSpec,
}
