//! The list of CAPW's kinds, and their definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceConversion, CustomResourceDefinition};
use kube::CustomResourceExt;
#[cfg(test)]
use kube::api::ApiResource;
use serde::Serialize;
use serde::de::DeserializeOwned;
#[cfg(test)]
use serde_json::Value;

use super::{bootstrap_config, cluster, control_plane, hypervisor, machine, pool};

/// One of CAPW's kinds.
pub struct OwnKind {
    /// Name of the kind's CustomResourceDefinition.
    pub name: fn() -> &'static str,
    definition: fn() -> CustomResourceDefinition,
    /// Its group, version and name.
    #[cfg(test)]
    pub resource: fn() -> ApiResource,
    /// Reads an object into the type of the kind, and writes it again. An error names the field.
    #[cfg(test)]
    pub round_trip: fn(&Value) -> Result<Value, String>,
}

impl OwnKind {
    const fn of<K: CustomResourceExt + DeserializeOwned + Serialize>() -> Self {
        Self {
            name: K::crd_name,
            definition: K::crd,
            #[cfg(test)]
            resource: K::api_resource,
            #[cfg(test)]
            round_trip: round_trip::<K>,
        }
    }

    /// Returns the kind of an object, if it is one of ours.
    #[cfg(test)]
    pub fn of_object(object: &Value) -> Option<&'static Self> {
        KINDS.iter().find(|kind| {
            let resource = (kind.resource)();
            object["apiVersion"] == *resource.api_version && object["kind"] == *resource.kind
        })
    }
}

#[cfg(test)]
fn round_trip<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
    let read: K = serde_path_to_error::deserialize(object).map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
    serde_json::to_value(read).map_err(|error| error.to_string())
}

/// The one list of kinds, in the order in which they are written to `crds/`.
pub const KINDS: [OwnKind; 11] = [
    OwnKind::of::<cluster::WindowsCluster>(),
    OwnKind::of::<cluster::WindowsClusterTemplate>(),
    OwnKind::of::<hypervisor::WindowsHypervisor>(),
    OwnKind::of::<machine::WindowsMachine>(),
    OwnKind::of::<machine::WindowsMachineTemplate>(),
    OwnKind::of::<pool::WindowsNodePool>(),
    OwnKind::of::<pool::WindowsNodePoolTemplate>(),
    OwnKind::of::<bootstrap_config::WindowsBootstrapConfig>(),
    OwnKind::of::<bootstrap_config::WindowsBootstrapConfigTemplate>(),
    OwnKind::of::<control_plane::ExternalControlPlane>(),
    OwnKind::of::<control_plane::ExternalControlPlaneTemplate>(),
];

/// Returns the definition of each kind. Generating the schemas is slow: half a second in a build without optimization.
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    let mut crds: Vec<CustomResourceDefinition> = KINDS.iter().map(|kind| (kind.definition)()).collect();
    for crd in &mut crds {
        label(crd);
        // Set explicitly: clusterctl merges definitions, and the webhook of an earlier version would stay.
        crd.spec.conversion = Some(CustomResourceConversion { strategy: "None".into(), webhook: None });
    }
    crds
}

/// Sets the labels by which Cluster API finds our version of a contract, and `clusterctl` finds our kinds.
fn label(crd: &mut CustomResourceDefinition) {
    let provider = match crd.spec.group.split('.').next() {
        Some("bootstrap") => "bootstrap-windows",
        Some("controlplane") => "control-plane-windows",
        _ => "infrastructure-windows",
    };
    let labels = crd.metadata.labels.get_or_insert_default();
    labels.insert("cluster.x-k8s.io/provider".into(), provider.into());
    let served: Vec<&str> = crd.spec.versions.iter().filter(|version| version.served).map(|version| version.name.as_str()).collect();
    labels.insert("cluster.x-k8s.io/v1beta2".into(), served.join("_"));
    labels.insert("clusterctl.cluster.x-k8s.io".into(), String::new());
    if crd.spec.names.kind == "WindowsHypervisor" {
        // No Cluster owns a hypervisor: `clusterctl move` moves it, and the objects that it owns, because of this label.
        labels.insert("clusterctl.cluster.x-k8s.io/move-hierarchy".into(), String::new());
    }
    if ["WindowsMachineTemplate", "WindowsBootstrapConfigTemplate"].contains(&crd.spec.names.kind.as_str()) {
        // No object owns the templates that a WindowsNodePool names.
        labels.insert("clusterctl.cluster.x-k8s.io/move".into(), String::new());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    /// Returns the path of the first difference between two schemas.
    fn difference(one: &Value, other: &Value, path: &str) -> Option<String> {
        let (Some(fields), Some(others)) = (one.as_object(), other.as_object()) else { return (one != other).then(|| path.to_owned()) };
        let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
        names.into_iter().find_map(|name| difference(&one[name], &other[name], &format!("{path}/{name}")))
    }

    /// Otherwise a pool or a template would accept a spec that is refused in the objects that it creates, or the reverse.
    #[test]
    fn a_spec_has_one_schema_in_all_kinds() {
        let crds = custom_resource_definitions().into_iter();
        let definitions: HashMap<String, Value> = crds.map(|crd| (crd.spec.names.kind.clone(), serde_json::to_value(crd).unwrap())).collect();
        let schema = |kind: &str, field: &str| {
            let at = format!("/spec/versions/0/schema/openAPIV3Schema/properties/{}", field.replace('.', "/properties/"));
            let mut schema = definitions[kind].pointer(&at).unwrap_or_else(|| panic!("{kind} has no {field}")).clone();
            // These belong to the field, not to its type.
            schema.as_object_mut().unwrap().retain(|name, _| !["description", "default", "nullable"].contains(&name.as_str()));
            schema
        };
        for (kind, other, field) in [
            ("WindowsBootstrapConfig", "WindowsBootstrapConfigTemplate", "spec.template.spec"),
            ("WindowsBootstrapConfig", "WindowsNodePool", "spec.template.bootstrap"),
            ("WindowsBootstrapConfig", "WindowsNodePoolTemplate", "spec.template.spec.template.bootstrap"),
            ("WindowsMachine", "WindowsMachineTemplate", "spec.template.spec"),
            ("WindowsMachine", "WindowsNodePool", "spec.template.machine"),
            ("WindowsMachine", "WindowsNodePoolTemplate", "spec.template.spec.template.machine"),
            ("WindowsNodePool", "WindowsNodePoolTemplate", "spec.template.spec"),
            ("WindowsCluster", "WindowsClusterTemplate", "spec.template.spec"),
            ("ExternalControlPlane", "ExternalControlPlaneTemplate", "spec.template.spec"),
        ] {
            let differs = difference(&schema(kind, "spec"), &schema(other, field), "");
            assert_eq!(differs, None, "{kind}.spec and {other}.{field} differ");
        }
    }

    /// Client-side `kubectl apply` keeps a copy of the object in an annotation of at most 256 KiB, and a second version must fit beside the first.
    #[test]
    fn definitions_leave_room_for_a_second_version() {
        for crd in custom_resource_definitions() {
            let size = serde_json::to_vec(&crd).unwrap().len();
            let versions = crd.spec.versions.len();
            assert!(size / versions < 120 * 1024, "{}: {size} bytes with {versions} versions", crd.spec.names.plural);
        }
    }

    #[test]
    fn definitions_convert_nothing_and_say_which_versions_fulfil_the_contract() {
        for crd in custom_resource_definitions() {
            assert_eq!(crd.spec.conversion.unwrap().strategy, "None", "{}", crd.spec.names.kind);
            assert_eq!(crd.metadata.labels.unwrap()["cluster.x-k8s.io/v1beta2"], "v1alpha1", "{}", crd.spec.names.kind);
            assert_eq!(crd.spec.versions.iter().filter(|version| version.storage).count(), 1, "{}", crd.spec.names.kind);
        }
    }

    /// `clusterctl move` moves the objects that owner references link to the Cluster, and the kinds with a label.
    #[test]
    fn what_nothing_owns_is_moved_by_its_label() {
        let labelled = |label: &str| -> Vec<String> {
            let crds = custom_resource_definitions().into_iter();
            let with = crds.filter(|crd| crd.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label)));
            with.map(|crd| crd.spec.names.kind).collect()
        };
        assert_eq!(labelled("clusterctl.cluster.x-k8s.io/move"), ["WindowsMachineTemplate", "WindowsBootstrapConfigTemplate"]);
        assert_eq!(labelled("clusterctl.cluster.x-k8s.io/move-hierarchy"), ["WindowsHypervisor"]);
    }
}
