//! The Machine that one of our objects is made for, with all that decisions read of it. Core leaves some of it to the pool when the
//! Machine belongs to a MachinePool: version and bootstrap data (`capi-contract.md` §1.8 step 6, §4.3).

use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, GROUP, Machine, MachinePool};
use crate::api::machine::WindowsMachine;
use crate::lifecycle::bootstrap_config::data_secret;

/// Version of Kubernetes that a machine of a pool was made for. Core knows it only once the Node is there.
pub const VERSION_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/kubernetes-version";

/// Group of WindowsMachine, as in owner references.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// The MachinePool that a Machine belongs to.
pub fn machine_pool_of(machine: &Machine) -> Option<&str> {
    capi::owner(machine.metadata.owner_references.as_ref(), GROUP, "MachinePool").map(|o| o.name.as_str())
}

/// The Machine of a MachinePool as if it were one of a MachineDeployment. `config` is that of this very machine, if there is one;
/// without it, the data of the MachinePool is for all of its machines.
pub fn completed(machine: &Machine, object: &WindowsMachine, pool: Option<&MachinePool>, config: Option<&WindowsBootstrapConfig>) -> Machine {
    let mut machine = machine.clone();
    if let Some(version) = object.metadata.annotations.as_ref().and_then(|a| a.get(VERSION_ANNOTATION)) {
        machine.spec.version = Some(version.clone());
    }
    let of_pool = pool.map(|p| &p.spec.template.spec.bootstrap);
    machine.spec.bootstrap.data_secret_name = match config {
        Some(config) => data_secret(config).map(str::to_owned),
        // With a configuration of ours, each machine gets one of its own; it is not there yet.
        None if of_pool.and_then(|b| b.config_ref.as_ref()).is_some_and(|r| r.kind == "WindowsBootstrapConfig") => None,
        None => of_pool.and_then(|b| b.data_secret_name.clone()),
    };
    machine
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn machine() -> Machine {
        serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "mp", "uid": "u"}]},
            "spec": {"clusterName": "c1", "bootstrap": {"dataSecretName": ""}}}))
        .unwrap()
    }

    fn pool(bootstrap: Value) -> MachinePool {
        serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": {"name": "mp"},
            "spec": {"clusterName": "c1", "template": {"spec": {"bootstrap": bootstrap}}}}))
        .unwrap()
    }

    fn object() -> WindowsMachine {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "m", "annotations": {VERSION_ANNOTATION: "v1.36.3"}}, "spec": {"image": "w"}}))
        .unwrap()
    }

    fn config(status: Value) -> WindowsBootstrapConfig {
        serde_json::from_value(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
            "metadata": {"name": "m"}, "spec": {}, "status": status}))
        .unwrap()
    }

    #[test]
    fn rule_1_8_6_the_empty_data_secret_name_of_a_machine_of_a_pool_is_filled_in() {
        assert_eq!(machine_pool_of(&machine()), Some("mp"));
        let ours = pool(
            json!({"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "WindowsBootstrapConfig", "name": "c"}, "dataSecretName": "c"}),
        );
        let foreign = pool(json!({"dataSecretName": "shared"}));
        let secret = |pool, status: Option<Value>| {
            let config = status.map(config);
            completed(&machine(), &object(), Some(pool), config.as_ref()).spec.bootstrap.data_secret_name
        };
        assert_eq!(secret(&ours, None), None, "the Secret of the pool's own configuration joins nobody");
        assert_eq!(secret(&ours, Some(json!({}))), None);
        assert_eq!(secret(&ours, Some(json!({"dataSecretName": "m"}))).as_deref(), Some("m"));
        assert_eq!(secret(&foreign, None).as_deref(), Some("shared"));
        assert_eq!(completed(&machine(), &object(), None, None).spec.version.as_deref(), Some("v1.36.3"));
    }
}
