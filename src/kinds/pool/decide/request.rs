//! The request to a pool: from the MachinePool that owns the pool, or from the pool itself.

use serde_json::{Map, Value};

use crate::api::capi::{self, CLUSTER_NAME_LABEL, Machine, MachinePool, POOL_NAME_LABEL, Reference};
use crate::api::cluster_ref::ClusterRef;
use crate::api::pool::WindowsNodePool;

/// The desired state that a pool's owner requests.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// Kind and name of the requesting object, for messages.
    pub asked_by: String,
    pub replicas: i32,
    /// The number of machines follows the pool, which reports it to the MachinePool (`docs/design/cluster-api.md#replicas-managed-elsewhere`).
    pub is_scaled_by_infrastructure: bool,
    pub version: Option<String>,
    pub min_ready_seconds: i64,
    /// WindowsHypervisors over which the machines are spread; empty: the template chooses.
    pub failure_domains: Vec<String>,
    /// Time limits for the deletion of the Machines, which core does not pass on.
    pub deletion: Map<String, Value>,
    /// The configuration that the MachinePool names.
    pub bootstrap_config: Option<Reference>,
    /// The cluster that a standalone pool joins.
    pub standalone: Option<ClusterRef>,
    /// Labels by which Cluster API finds the machines of a pool. In a standalone pool they have no values, because its machines must not have them.
    pub core_labels: [(&'static str, Option<String>); 2],
}

impl PoolRequest {
    /// The request of the MachinePool that owns the pool.
    pub fn of_machine_pool(object: &WindowsNodePool, owner: &MachinePool) -> Self {
        let template = &owner.spec.template.spec;
        let name = owner.metadata.name.clone().unwrap_or_default();
        let is_scaled_by_infrastructure = owner.is_scaled_by_infrastructure();
        Self {
            replicas: if is_scaled_by_infrastructure { object.spec.replicas } else { owner.spec.replicas.unwrap_or(1) },
            is_scaled_by_infrastructure,
            version: template.version.clone().filter(|version| !version.is_empty()).or_else(|| object.spec.version.clone()),
            min_ready_seconds: template.min_ready_seconds.unwrap_or(object.spec.min_ready_seconds),
            failure_domains: first_of(&object.spec.failure_domains, &owner.spec.failure_domains),
            deletion: template.deletion.clone().unwrap_or_default(),
            bootstrap_config: template.bootstrap.config_ref.clone(),
            standalone: None,
            core_labels: [(CLUSTER_NAME_LABEL, Some(owner.spec.cluster_name.clone())), (POOL_NAME_LABEL, Some(capi::label_value(&name)))],
            asked_by: format!("MachinePool {name}"),
        }
    }

    /// The request of a standalone pool.
    pub fn standalone(object: &WindowsNodePool, cluster: ClusterRef) -> Self {
        Self {
            asked_by: format!("WindowsNodePool {}", object.metadata.name.as_deref().unwrap_or_default()),
            replicas: object.spec.replicas,
            is_scaled_by_infrastructure: false,
            version: object.spec.version.clone(),
            min_ready_seconds: object.spec.min_ready_seconds,
            failure_domains: object.spec.failure_domains.clone(),
            deletion: Map::new(),
            bootstrap_config: None,
            standalone: Some(cluster),
            core_labels: [(CLUSTER_NAME_LABEL, None), (POOL_NAME_LABEL, None)],
        }
    }

    /// The time limits that a Machine lacks.
    pub fn deletion_of(&self, machine: &Machine) -> Map<String, Value> {
        let has = machine.spec.deletion.clone().unwrap_or_default();
        self.deletion.iter().filter(|(key, value)| has.get(*key) != Some(*value)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The cluster of the pool's machines, in the format of [`ClusterRef`].
    pub fn cluster(&self) -> Option<String> {
        let labelled = self.core_labels.iter().find(|(key, _)| *key == CLUSTER_NAME_LABEL).and_then(|(_, name)| name.clone());
        self.standalone.as_ref().map(ToString::to_string).or(labelled)
    }

    pub fn is_standalone(&self) -> bool {
        self.standalone.is_some()
    }
}

fn first_of(preferred: &[String], other: &[String]) -> Vec<String> {
    if preferred.is_empty() { other.to_vec() } else { preferred.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(spec: Value) -> WindowsNodePool {
        let mut all = json!({"template": {"machine": {"image": "w"}}, "replicas": 3, "version": "v1.35.0", "failureDomains": ["own"]});
        json_patch::merge(&mut all, &spec);
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": "win", "namespace": "lab"}, "spec": all}))
        .unwrap()
    }

    fn owner(annotations: Value, spec: Value) -> MachinePool {
        serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool",
            "metadata": {"name": "mp", "annotations": annotations}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn a_machine_pool_asks_for_the_number_unless_it_follows_the_pool() {
        let spec = json!({"clusterName": "c1", "replicas": 7, "failureDomains": ["mp"], "template": {"spec": {"version": "v1.36.3"}}});
        let request = PoolRequest::of_machine_pool(&pool(json!({})), &owner(json!({}), spec.clone()));
        assert_eq!((request.replicas, request.version.as_deref(), &*request.failure_domains[0]), (7, Some("v1.36.3"), "own"));
        let request = PoolRequest::of_machine_pool(&pool(json!({"failureDomains": null})), &owner(json!({}), json!({"clusterName": "c1"})));
        assert_eq!((request.replicas, request.version.as_deref(), request.failure_domains.len()), (1, Some("v1.35.0"), 0));
        let timed = owner(json!({}), json!({"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}}}}));
        let request = PoolRequest::of_machine_pool(&pool(json!({})), &timed);
        let machine = |deletion: Value| -> Machine {
            serde_json::from_value(
                json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"}, "spec": {"deletion": deletion}}),
            )
            .unwrap()
        };
        assert_eq!(json!(request.deletion_of(&machine(json!({"nodeDeletionTimeoutSeconds": 10})))), json!({"nodeDrainTimeoutSeconds": 60}));
        assert!(request.deletion_of(&machine(json!({"nodeDeletionTimeoutSeconds": 10, "nodeDrainTimeoutSeconds": 60}))).is_empty());
        let follows = owner(json!({"cluster.x-k8s.io/replicas-managed-by": "external-autoscaler"}), spec);
        assert_eq!(PoolRequest::of_machine_pool(&pool(json!({})), &follows).replicas, 3);
    }
}
