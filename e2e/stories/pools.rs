//! Story *pool*: a MachinePool with a WindowsNodePool: nodes are created, scaled up and down, replaced and deleted, as Cluster API's own conditions
//! report. The contract is `docs/design/cluster-api.md#machine-pools`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cost::AUDIT_POLICY;
use crate::cost_of_a_machine;
use crate::workers::{self, Workers, is_ready};
use crate::world::{self, Capw, ControlPlane, Kind, Options, simulated_vms, step, text};

/// The limit for one wait. No wait takes nearly as long on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);
const DELETE: &str = "cluster.x-k8s.io/delete-machine";

/// A MachinePool, its WindowsNodePool and its WindowsBootstrapConfig, all named `pool`, in the cluster of `workers`.
pub struct Pool {
    pub workers: Workers,
    /// Additional fields of the WindowsNodePool's spec.
    pub spec: Value,
    /// The labels of the MachinePool's template.
    pub labels: Value,
}

impl Pool {
    pub async fn new(namespace: &str, replicas: usize, cp: &ControlPlane) -> Self {
        Self { workers: Workers { replicas, ..Workers::new(namespace, cp).await }, spec: json!({}), labels: json!({}) }
    }

    fn own(&self) -> Value {
        json!({"name": "pool", "namespace": self.workers.namespace})
    }

    pub fn machine_pool(&self) -> Value {
        let name = |group: &str, kind: &str| json!({"apiGroup": format!("{group}.cluster.x-k8s.io"), "kind": kind, "name": "pool"});
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": self.own(),
            "spec": {
                "clusterName": self.workers.cluster, "replicas": self.workers.replicas,
                "template": {"metadata": {"labels": self.labels}, "spec": {
                    "clusterName": self.workers.cluster, "version": self.workers.version,
                    "bootstrap": {"configRef": name("bootstrap", "WindowsBootstrapConfig")},
                    "infrastructureRef": name("infrastructure", "WindowsNodePool"),
                    "deletion": {"nodeDrainTimeoutSeconds": 600},
                }},
            },
        })
    }

    pub fn node_pool(&self) -> Value {
        let mut spec = self.spec.clone();
        spec["template"]["machine"] = self.workers.machine.clone();
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "metadata": self.own(), "spec": spec})
    }

    pub fn config(&self) -> Value {
        json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig", "metadata": self.own(), "spec": self.workers.bootstrap})
    }

    /// Returns the three objects of the pool: configuration, WindowsNodePool, MachinePool.
    pub fn objects(&self) -> [Value; 3] {
        [self.config(), self.node_pool(), self.machine_pool()]
    }

    pub async fn apply(&self, cp: &ControlPlane) {
        let mut objects = self.workers.objects();
        objects.retain(|object| !["MachineDeployment", "WindowsMachineTemplate", "WindowsBootstrapConfigTemplate"].contains(&text(object, "/kind")));
        objects.extend(self.objects());
        cp.apply_objects(&objects).await;
    }

    pub fn name(&self) -> String {
        self.workers.name("pool")
    }

    /// Waits until exactly the desired number of Machines are Running with Ready Nodes, and core reports that on the MachinePool.
    pub async fn wait_settled(&self, cp: &ControlPlane) -> Vec<Value> {
        let machines = self.workers.wait_settled(cp, cp, LIMIT).await;
        cp.wait_object(Kind::MACHINE_POOL, &self.name(), "phase Running with every Node", LIMIT, |pool| {
            let nodes = pool.pointer("/status/nodeRefs").and_then(Value::as_array).map_or(0, Vec::len);
            let provisioned = pool.pointer("/status/initialization/infrastructureProvisioned") == Some(&json!(true));
            (text(pool, "/status/phase") == "Running" && nodes == self.workers.replicas && provisioned).then_some(())
        })
        .await;
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, &self.name(), "Ready", "True", LIMIT).await;
        machines
    }

    /// Scales the pool as a user does.
    pub async fn scale(&mut self, cp: &ControlPlane, replicas: usize) {
        self.workers.replicas = replicas;
        let replicas = format!("--replicas={replicas}");
        cp.kubectl(&["-n", &self.workers.namespace, "scale", "machinepools.cluster.x-k8s.io", "pool", &replicas]).await;
    }

    pub async fn windows_machines(&self, cp: &ControlPlane) -> Vec<Value> {
        cp.list(Kind::WINDOWS_MACHINE, Some(&self.workers.namespace)).await
    }
}

pub fn names(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(|object| text(object, "/metadata/name").to_owned()).collect()
}

#[test]
fn a_machine_pool_of_cluster_api() {
    world::run(async {
        let cp = ControlPlane::start(Options { audit_policy: AUDIT_POLICY, ..Options::default().named("pools") }).await;
        let capw = Capw::start(&cp, &[]).await;
        let mut pool = Pool::new("pool", 3, &cp).await;
        pool.apply(&cp).await;
        let machines = pool.wait_settled(&cp).await;
        step("3 nodes are Ready");
        rule_4_1_the_fields(&cp, &pool).await;
        rule_4_2_the_two_traps(&cp, &pool).await;
        rule_4_3_a_machine_each(&cp, &pool, &machines).await;

        let before = names(&machines);
        spread(&cp, &pool).await;
        pool.scale(&cp, 5).await;
        let machines = pool.wait_settled(&cp).await;
        assert_eq!(machines.len(), 5);
        for vm in simulated_vms(capw.state()) {
            let place = if before.contains(&vm.name) { "pool.lab" } else { "pool.west" };
            assert_eq!(vm.datacenter, place, "{} is not where the fewest are", vm.name);
        }
        step("3 -> 5, on the hypervisor that has none yet");
        rule_4_3_the_annotated_one_goes_first(&cp, &mut pool, &machines).await;
        cost_of_a_machine::assert_within(&cost_of_a_machine::OF_POOL, &cp, &capw).await;
        rule_4_3_a_health_check_replaces(&cp, &capw, &pool).await;
        rule_4_3_a_lost_instance_is_replaced(&cp, &capw, &pool).await;
        rule_4_4_replicas_of_the_infrastructure(&cp, &mut pool).await;

        let mark = cp.audit_mark();
        cp.delete(Kind::CLUSTER, &pool.workers.name("c1")).await;
        pool.workers.wait_gone(&cp, LIMIT).await;
        cp.wait_gone(Kind::WINDOWS_NODE_POOL, &pool.name(), LIMIT).await;
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        let forced = cp.audit_since(mark).into_iter().find(|event| event.user == "kubernetes-super-admin" && event.verb == "patch");
        assert!(forced.is_none(), "{forced:?}");
        let refused: Vec<String> =
            cp.audit().iter().filter(|event| event.user == Capw::USER && event.code == 403).map(|event| event.uri.clone()).collect();
        assert!(refused.is_empty(), "CAPW was refused: {refused:#?}");
        step("the Cluster is gone, and nothing is left");
    });
}

/// Gives the MachinePool a second WindowsHypervisor as a failure domain. No existing machine moves.
async fn spread(cp: &ControlPlane, pool: &Pool) {
    let west = json!({"apiVersion": Kind::WINDOWS_HYPERVISOR.api_version, "kind": "WindowsHypervisor", "metadata": {"name": "west", "namespace": "pool"},
        "spec": {"simulated": {}}});
    cp.apply_objects(&[west]).await;
    cp.wait_condition(Kind::WINDOWS_HYPERVISOR, "pool/west", "Ready", "True", LIMIT).await;
    pool.workers.admit(cp, "west").await;
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &json!({"spec": {"failureDomains": ["lab", "west"]}})).await.expect("failure domains");
}

/// `spec.providerIDList` is sorted and current, `status.replicas` is the observed number, and core copied both.
async fn rule_4_1_the_fields(cp: &ControlPlane, pool: &Pool) {
    let object = cp.get(Kind::WINDOWS_NODE_POOL, &pool.name()).await.expect("the WindowsNodePool");
    let mut ids: Vec<Value> = cp.list(Kind::NODE, None).await.iter().map(|node| node["spec"]["providerID"].clone()).collect();
    ids.sort_by_key(ToString::to_string);
    assert_eq!(object["spec"]["providerIDList"], json!(ids));
    for (field, expected) in [("replicas", 3), ("readyReplicas", 3), ("availableReplicas", 3), ("upToDateReplicas", 3), ("desiredReplicas", 3)] {
        assert_eq!(object["status"][field], json!(expected), "{field}: {:#}", object["status"]);
    }
    assert_eq!(object["status"]["nodeInfo"], json!({"architecture": "amd64", "operatingSystem": "windows"}));
    assert_eq!(object["status"]["capacity"], json!({"cpu": "4", "memory": "8Gi", "pods": "30"}));
    let core = cp.get(Kind::MACHINE_POOL, &pool.name()).await.expect("the MachinePool");
    assert_eq!((&core["spec"]["providerIDList"], &core["status"]["replicas"]), (&json!(ids), &json!(3)));
    let selected = cp.kubectl(&["-n", "pool", "get", "windowsmachines", "-o", "name", "-l", text(&object, "/status/selector")]).await;
    assert_eq!(selected.lines().count(), 3, "the selector of the scale subresource: {selected}");
}

/// Both readiness marks are written, and a failure never is (core's MachinePool controller would panic on it).
async fn rule_4_2_the_two_traps(cp: &ControlPlane, pool: &Pool) {
    let object = cp.get(Kind::WINDOWS_NODE_POOL, &pool.name()).await.expect("the WindowsNodePool");
    assert_eq!((&object["status"]["ready"], object.pointer("/status/initialization/provisioned")), (&json!(true), Some(&json!(true))));
    let definition = cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, "windowsnodepools.infrastructure.cluster.x-k8s.io").await.expect("the definition");
    for never in ["failureReason", "failureMessage"] {
        let field = definition.pointer(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/{never}"));
        assert!(field.is_none(), "{never} can be written");
    }
    // This stays true while the pool is not ready.
    let log = cp.core().log();
    assert!(!log.contains("Observed a panic"), "core panicked");
}

/// A Machine of the same name exists for each WindowsMachine, and `kubectl get machines` shows it.
async fn rule_4_3_a_machine_each(cp: &ControlPlane, pool: &Pool, machines: &[Value]) {
    let own = pool.windows_machines(cp).await;
    assert_eq!(names(&own), names(machines));
    for object in &own {
        assert_eq!(text(object, "/metadata/labels/cluster.x-k8s.io~1pool-name"), "pool");
        assert_eq!(text(object, "/metadata/labels/cluster.x-k8s.io~1cluster-name"), "c1");
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let controllers: Vec<&Value> = owners.iter().filter(|o| o["controller"] == json!(true)).map(|o| &o["kind"]).collect();
        assert_eq!(controllers, [&json!("Machine")], "{owners:?}");
        assert!(owners.iter().any(|o| o["kind"] == "WindowsNodePool"), "{owners:?}");
    }
    let listed = cp.kubectl(&["-n", "pool", "get", "machines.cluster.x-k8s.io", "-o", "name"]).await;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let configs = cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, Some("pool")).await;
    assert_eq!(names(&configs).len(), 4, "one for each machine, and the pattern: {:?}", names(&configs));
    assert!(cp.list(Kind::NODE, None).await.iter().all(is_ready));
}

/// The annotation selects the machine, and the deletion of its Machine deletes the WindowsMachine.
async fn rule_4_3_the_annotated_one_goes_first(cp: &ControlPlane, pool: &mut Pool, machines: &[Value]) {
    // Choose another machine than the policy would, which takes the newest.
    let mut sorted = machines.to_vec();
    sorted.sort_by_key(|machine| text(machine, "/metadata/creationTimestamp").to_owned());
    let victim = text(&sorted[0], "/metadata/name").to_owned();
    cp.patch(Kind::MACHINE, &pool.workers.name(&victim), &json!({"metadata": {"annotations": {DELETE: "yes"}}})).await.expect("an annotation");
    let mark = cp.audit_mark();
    pool.scale(cp, 4).await;
    let left = pool.wait_settled(cp).await;
    let mut expected = names(machines);
    expected.remove(&victim);
    assert_eq!(names(&left), expected, "only {victim} had to go");
    let deleted = |resource: &str, by: &str| -> Vec<String> {
        let events = cp.audit_since(mark).into_iter().filter(|e| e.verb == "delete" && e.resource == resource && e.user == by);
        events.map(|e| e.name).collect()
    };
    assert_eq!(deleted("machines", Capw::USER), [victim]);
    assert!(deleted("windowsmachines", Capw::USER).is_empty(), "a WindowsMachine was deleted over the head of its Machine");
    step("5 -> 4: the annotated one");
}

/// The pool replaces a machine that a MachineHealthCheck finds unhealthy.
async fn rule_4_3_a_health_check_replaces(cp: &ControlPlane, capw: &Capw, pool: &Pool) {
    let health_check = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": "pool", "namespace": "pool"},
        "spec": {
            "clusterName": "c1",
            "selector": {"matchLabels": {"cluster.x-k8s.io/pool-name": "pool"}},
            "checks": {"nodeStartupTimeoutSeconds": 3600},
            "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "100%"}},
        },
    });
    cp.apply_objects(&[health_check]).await;
    let before = pool.wait_settled(cp).await;
    let victim = text(&before[1], "/metadata/name").to_owned();
    let annotation = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
    cp.patch(Kind::MACHINE, &pool.workers.name(&victim), &annotation).await.expect("an annotation");
    replaced(cp, capw, pool, &before, &victim).await;
    cp.delete(Kind::new("cluster.x-k8s.io/v1beta2", "machinehealthchecks"), "pool/pool").await;
    step("a MachineHealthCheck had a machine replaced");
}

/// When a VM disappears, its Machine is deleted and another one is created.
async fn rule_4_3_a_lost_instance_is_replaced(cp: &ControlPlane, capw: &Capw, pool: &Pool) {
    let before = pool.wait_settled(cp).await;
    let victim = text(&before[0], "/metadata/name").to_owned();
    let vm = simulated_vms(capw.state()).into_iter().find(|vm| vm.name == victim).expect("the VM");
    let home = capw.state().join(&vm.datacenter).join(&vm.directory);
    std::fs::rename(home, cp.directory().join("taken-away")).expect("the VM's directory can be taken away");
    replaced(cp, capw, pool, &before, &victim).await;
    step("a VM that was taken away was replaced");
}

async fn replaced(cp: &ControlPlane, capw: &Capw, pool: &Pool, before: &[Value], victim: &str) {
    cp.wait_gone(Kind::WINDOWS_MACHINE, &pool.workers.name(victim), LIMIT).await;
    let after = names(&pool.wait_settled(cp).await);
    let kept: BTreeSet<String> = names(before).intersection(&after).cloned().collect();
    assert_eq!((kept.len(), kept.contains(victim)), (before.len() - 1, false), "exactly {victim} was replaced");
    let vms: BTreeSet<String> = simulated_vms(capw.state()).into_iter().map(|vm| vm.name).collect();
    assert_eq!(vms, after);
}

/// With the annotation, the pool's own number counts, and CAPW writes it to the MachinePool.
async fn rule_4_4_replicas_of_the_infrastructure(cp: &ControlPlane, pool: &mut Pool) {
    let annotation = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/replicas-managed-by": value}}});
    cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &json!({"spec": {"replicas": 4}})).await.expect("a number");
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &annotation(json!("the-infrastructure"))).await.expect("an annotation");
    cp.kubectl(&["-n", "pool", "scale", "windowsnodepools.infrastructure.cluster.x-k8s.io", "pool", "--replicas=2"]).await;
    pool.workers.replicas = 2;
    pool.wait_settled(cp).await;
    let replicas = |pool: &Value| (pool["spec"]["replicas"] == json!(2)).then_some(());
    cp.wait_object(Kind::MACHINE_POOL, &pool.name(), "2 replicas in its spec", LIMIT, replicas).await;
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &annotation(json!("false"))).await.expect("an annotation");
    pool.scale(cp, 1).await;
    pool.wait_settled(cp).await;
    step("replicas managed by the infrastructure, then by the MachinePool again");
}
