//! The source of the pod network of the Windows nodes of a cluster, from the status of its WindowsCluster.

use crate::api::cluster::WindowsCluster;
use crate::api::components::ComponentsMode;
use crate::components::Role;

/// The source of the pod network of the Windows nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodNetwork {
    /// CAPW or kube-proxy provides it: new nodes begin with the taint. A temporary obstacle (wrong settings of the Linux side, an unknown image)
    /// changes nothing, because pods have no network then either.
    Brought,
    /// No component can provide it: new nodes have the taint and keep it.
    Refused,
    /// Others provide it.
    ByOthers,
}

/// Returns the source. `None`: CAPW must provide it and has not read yet which network it is.
pub fn pod_network(object: &WindowsCluster) -> Option<PodNetwork> {
    if object.components_mode() != ComponentsMode::Auto {
        return Some(PodNetwork::ByOthers);
    }
    let role = object.status.as_ref()?.components.as_ref()?.network.as_ref()?.role.as_deref();
    let is = |one: Role| role == Some(one.as_str());
    Some(if is(Role::Run) || is(Role::Ask) {
        PodNetwork::Brought
    } else if is(Role::Refuse) {
        PodNetwork::Refused
    } else {
        PodNetwork::ByOthers
    })
}

/// Returns how many pods have an address on a Windows node of the cluster, if that was read.
pub fn pods_per_node(object: &WindowsCluster) -> Option<u64> {
    u64::try_from(object.status.as_ref()?.components.as_ref()?.network.as_ref()?.pods_per_node?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_the_network_comes_from_is_known_once_it_was_read() {
        let seen = |role: &str| json!({"components": {"network": {"name": "n", "role": role}}});
        for (mode, status, expected) in [
            (Some("Auto"), json!({}), None),
            (Some("Auto"), json!({"components": {"parts": [{"name": "flannel", "ready": 0, "desired": 0}]}}), None),
            (Some("Auto"), seen("Run"), Some(PodNetwork::Brought)),
            (Some("Auto"), seen("Ask"), Some(PodNetwork::Brought)),
            (Some("Auto"), seen("Refuse"), Some(PodNetwork::Refused)),
            (Some("Auto"), seen("Check"), Some(PodNetwork::ByOthers)),
            (Some("Report"), seen("Refuse"), Some(PodNetwork::ByOthers)),
            (Some("Off"), json!({}), Some(PodNetwork::ByOthers)),
            (None, json!({}), Some(PodNetwork::ByOthers)),
        ] {
            let components = mode.map(|mode| json!({"mode": mode}));
            let object = serde_json::from_value(json!({"metadata": {"name": "c1"}, "spec": {"components": components}, "status": status})).unwrap();
            assert_eq!(pod_network(&object), expected, "{mode:?} {status}");
        }
    }
}
