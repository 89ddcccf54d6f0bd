//! WHAT USERS WRITE: the kinds, their conditions, parsed names, and the part of Cluster API that we read.
//!
//! No I/O. Validity that a schema can express is in the schema (CEL), the rest in [`name`].

pub mod bootstrap_config;
pub mod capi;
pub mod cluster;
pub mod cluster_ref;
pub mod condition;
pub mod control_plane;
pub(crate) mod documented;
pub mod fit;
pub mod hypervisor;
pub mod machine;
pub mod name;
pub mod namespaces;
pub mod pool;

#[cfg(test)]
mod explained;
#[cfg(test)]
mod readable;
#[cfg(test)]
mod samples;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The one list of kinds, in the order in which they are written to `crds/`.
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        cluster::WindowsCluster::crd(),
        cluster::WindowsClusterTemplate::crd(),
        hypervisor::WindowsHypervisor::crd(),
        machine::WindowsMachine::crd(),
        machine::WindowsMachineTemplate::crd(),
        pool::WindowsNodePool::crd(),
        pool::WindowsNodePoolTemplate::crd(),
        bootstrap_config::WindowsBootstrapConfig::crd(),
        bootstrap_config::WindowsBootstrapConfigTemplate::crd(),
        control_plane::ExternalControlPlane::crd(),
        control_plane::ExternalControlPlaneTemplate::crd(),
    ];
    for crd in &mut crds {
        label(crd);
    }
    crds
}

/// The labels by which Cluster API finds our version of a contract, and `clusterctl` our kinds.
fn label(crd: &mut CustomResourceDefinition) {
    let provider = match crd.spec.group.split('.').next() {
        Some("bootstrap") => "bootstrap-windows",
        Some("controlplane") => "control-plane-windows",
        _ => "infrastructure-windows",
    };
    let labels = crd.metadata.labels.get_or_insert_default();
    labels.insert("cluster.x-k8s.io/provider".into(), provider.into());
    labels.insert("cluster.x-k8s.io/v1beta2".into(), "v1alpha1".into());
    labels.insert("clusterctl.cluster.x-k8s.io".into(), String::new());
    if crd.spec.names.kind == "WindowsHypervisor" {
        // No Cluster owns a hypervisor: `clusterctl move` takes it, and what it owns, because of this label.
        labels.insert("clusterctl.cluster.x-k8s.io/move-hierarchy".into(), String::new());
    }
    if ["WindowsMachineTemplate", "WindowsBootstrapConfigTemplate"].contains(&crd.spec.names.kind.as_str()) {
        // Nothing owns those that a WindowsNodePool names.
        labels.insert("clusterctl.cluster.x-k8s.io/move".into(), String::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `clusterctl move` takes what owner references of the Cluster lead to, and the kinds with a label.
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
