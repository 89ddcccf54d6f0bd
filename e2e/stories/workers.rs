//! A cluster with Windows workers as a user would write it, and the few checks of it that several stories share. Expectations of a single story do
//! not belong here.

use std::collections::BTreeMap;
use std::time::Duration;

use capw::api::name::VmUuid;
use serde_json::{Value, json};

use crate::world::{AuditEvent, Capw, ControlPlane, Kind, Product, SimulatedVm, Simulator, Tools, manifests, simulated_vms, text, wait_for};

/// The manifests that users apply in a workload cluster.
const WORKLOAD: &str = concat!(
    include_str!("../../config/workload/account.yaml"),
    "---\n",
    include_str!("../../config/workload/nodes.yaml"),
    "---\n",
    include_str!("../../config/workload/network.yaml"),
    "---\n",
    include_str!("../../config/workload/cluster-api.yaml"),
);
/// The account of the kubeconfigs that CAPW gets, so that the audit log distinguishes its requests from ours.
pub const REMOTE_USER: &str = "system:serviceaccount:kube-system:capw-remote";

/// Whether CAPW sent a request, in the management cluster or, with the kubeconfig that it was given, in the workload cluster. There, Cluster API core
/// uses the same kubeconfig with its own user agent.
pub fn by_capw(event: &AuditEvent) -> bool {
    event.user == Capw::USER || (event.user == REMOTE_USER && !event.user_agent.contains("cluster-api"))
}

/// Returns verb and resource of a request, or the URL if it has no resource, e.g. `patch windowsmachines/status`. CAPW's requests to the workload
/// cluster end in ` (workload)`.
pub fn asked(event: &AuditEvent) -> String {
    let resource = if event.resource.is_empty() { &event.uri } else { &event.resource };
    let slash = if event.subresource.is_empty() { "" } else { "/" };
    let place = if event.user == REMOTE_USER { " (workload)" } else { "" };
    format!("{} {resource}{slash}{}{place}", event.verb, event.subresource)
}

/// A Cluster, its MachineDeployment and all objects that they name. All objects of a kind have the same name, unless a field overrides it.
#[derive(Debug, Clone)]
pub struct Workers {
    /// The namespace of all objects.
    pub namespace: String,
    /// Name of the Cluster, its ExternalControlPlane, its WindowsCluster and the MachineDeployment.
    pub cluster: String,
    /// Name of the WindowsHypervisor.
    pub hypervisor: String,
    /// The hypervisor's `spec`: one driver.
    pub driver: Value,
    /// Name of the WindowsMachineTemplate. An applied template is immutable: a change needs another name.
    pub template: String,
    /// The `spec` of the machines.
    pub machine: Value,
    /// Name of the WindowsBootstrapConfigTemplate. An applied template is immutable: a change needs another name.
    pub bootstrap_template: String,
    /// The `spec` of the bootstrap configurations.
    pub bootstrap: Value,
    /// The number of machines.
    pub replicas: usize,
    /// The Kubernetes version of the machines.
    pub version: String,
    /// The kubeconfig of the workload cluster.
    pub kubeconfig: String,
}

impl Workers {
    /// Returns three machines of the usual size, `win-*` of the Cluster `c1` on the hypervisor `lab`, for the workload cluster `to`.
    pub async fn new(namespace: &str, to: &ControlPlane) -> Self {
        Self {
            namespace: namespace.to_owned(),
            cluster: "c1".to_owned(),
            hypervisor: "lab".to_owned(),
            driver: json!({"simulated": {}}),
            template: "first".to_owned(),
            machine: json!({"image": "windows-server-2022", "cpus": 4, "memory": "8Gi"}),
            bootstrap_template: "first".to_owned(),
            bootstrap: json!({"kubelet": {"nodeLabels": {"example.com/pool": "windows"}}}),
            replicas: 3,
            version: Tools::ensure().kubernetes_version.clone(),
            kubeconfig: remote_kubeconfig(to).await,
        }
    }

    /// Returns the objects that a user applies, in the order that a careful reader expects.
    pub fn objects(&self) -> Vec<Value> {
        let own = |name: &str| json!({"name": name, "namespace": self.namespace});
        let secret = format!("{}-external-kubeconfig", self.cluster);
        vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}),
            json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor", "metadata": own(&self.hypervisor),
                "spec": self.driver,
            }),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": own(&secret), "stringData": {"value": self.kubeconfig}}),
            json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "ExternalControlPlane", "metadata": own(&self.cluster),
                "spec": {},
            }),
            self.windows_cluster(),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": own(&self.cluster),
                "spec": {
                    "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "ExternalControlPlane", "name": self.cluster},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsCluster", "name": self.cluster},
                },
            }),
            self.machine_template(),
            self.bootstrap_template(),
            self.machine_deployment(),
        ]
    }

    /// Returns the WindowsCluster.
    pub fn windows_cluster(&self) -> Value {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
            "metadata": {"name": self.cluster, "namespace": self.namespace},
            "spec": {"hypervisors": [{"name": self.hypervisor}]},
        })
    }

    /// Returns the WindowsMachineTemplate.
    pub fn machine_template(&self) -> Value {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineTemplate",
            "metadata": {"name": self.template, "namespace": self.namespace},
            "spec": {"template": {"spec": self.machine}},
        })
    }

    /// Returns the WindowsBootstrapConfigTemplate.
    pub fn bootstrap_template(&self) -> Value {
        json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfigTemplate",
            "metadata": {"name": self.bootstrap_template, "namespace": self.namespace},
            "spec": {"template": {"spec": self.bootstrap}},
        })
    }

    /// Returns the MachineDeployment.
    pub fn machine_deployment(&self) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": self.cluster, "namespace": self.namespace},
            "spec": {
                "clusterName": self.cluster,
                "replicas": self.replicas,
                "machineNaming": {"template": "win-{{ .random }}"},
                "template": {"spec": self.machine_spec()},
            },
        })
    }

    /// Returns the `spec` of a Machine that uses the two templates.
    pub fn machine_spec(&self) -> Value {
        json!({
            "clusterName": self.cluster,
            "version": self.version,
            "bootstrap": {"configRef": {
                "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "WindowsBootstrapConfigTemplate", "name": self.bootstrap_template,
            }},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachineTemplate", "name": self.template,
            },
        })
    }

    /// Applies everything. Namespaces must exist before their objects, so they come first.
    pub async fn apply(&self, cp: &ControlPlane) {
        cp.apply_objects(&self.objects()).await;
    }

    /// Uses a simulator of that product for the VMs, if a product is named, and gives its login to CAPW.
    pub async fn go_to(&mut self, product: Option<Product>, cp: &ControlPlane, capw: &Capw) -> Option<Simulator> {
        let simulator = Simulator::start(product?, cp, capw, &self.name(&self.hypervisor));
        self.be_made_by(&simulator);
        self.log_in(cp, simulator.login(&self.namespace)).await;
        Some(simulator)
    }

    /// Uses a simulator for the VMs, which may serve other clusters too.
    pub fn be_made_by(&mut self, simulator: &Simulator) {
        self.driver = simulator.driver();
        self.bootstrap["channel"] = json!(simulator.channel());
    }

    /// Applies the login of a simulator.
    pub async fn log_in(&self, cp: &ControlPlane, login: Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        cp.apply_objects(&[namespace, login]).await;
    }

    /// Allows machines on that hypervisor too. The WindowsCluster must name every hypervisor that its machines use.
    pub async fn admit(&self, cp: &ControlPlane, other: &str) {
        let both = json!({"spec": {"hypervisors": [{"name": self.hypervisor}, {"name": other}]}});
        cp.patch(Kind::WINDOWS_CLUSTER, &self.name(&self.cluster), &both).await.expect("a WindowsCluster with two hypervisors");
    }

    /// Returns `NAMESPACE/NAME`, as the methods of [`ControlPlane`] expect it.
    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Waits until there are exactly `replicas` Machines, all Running and all with the current `machine` and `version`, and a Ready Node for each.
    /// Returns the Machines.
    pub async fn wait_settled(&self, cp: &ControlPlane, to: &ControlPlane, deadline: Duration) -> Vec<Value> {
        wait_for(&format!("{} machines of {} are Running with Ready Nodes", self.replicas, self.name(&self.cluster)), deadline, || async {
            self.settled(cp, to).await
        })
        .await
    }

    /// Checks once whether the cluster is settled. Returns the Machines, or what is missing.
    pub async fn settled(&self, cp: &ControlPlane, to: &ControlPlane) -> Result<Vec<Value>, String> {
        let mut machines = cp.list(Kind::MACHINE, Some(&self.namespace)).await;
        machines.retain(|machine| text(machine, "/spec/clusterName") == self.cluster);
        let phases: Vec<&str> = machines.iter().map(|machine| text(machine, "/status/phase")).collect();
        // Nearly every poll ends here, at the cost of one list.
        if phases.len() != self.replicas || phases.iter().any(|phase| *phase != "Running") {
            return Err(format!("{} machines: {}", phases.len(), phases.join(", ")));
        }
        let infrastructure = cp.list(Kind::WINDOWS_MACHINE, Some(&self.namespace)).await;
        let nodes = to.list(Kind::NODE, None).await;
        let state = |machine: &Value| {
            let own = infrastructure.iter().find(|own| text(own, "/metadata/name") == text(machine, "/spec/infrastructureRef/name"));
            let node = nodes.iter().find(|node| text(node, "/metadata/name") == text(machine, "/status/nodeRef/name"));
            let current = own.is_some_and(|own| contains(&own["spec"], &self.machine)) && text(machine, "/spec/version") == self.version;
            let leaving = !text(machine, "/metadata/deletionTimestamp").is_empty();
            match (current, node) {
                (true, Some(node)) if is_ready(node) && !leaving => Ok(()),
                (current, node) => Err(format!(
                    "{}: Running, as wanted: {current}, Node: {}",
                    text(machine, "/metadata/name"),
                    node.map_or("none", |node| if is_ready(node) { "Ready" } else { "not Ready" })
                )),
            }
        };
        let missing: Vec<String> = machines.iter().filter_map(|machine| state(machine).err()).collect();
        if missing.is_empty() { Ok(machines) } else { Err(missing.join("; ")) }
    }

    /// Waits until the namespace contains only the objects of the Cluster that the user keeps: hypervisor, its login, and kubeconfig.
    pub async fn wait_gone(&self, cp: &ControlPlane, deadline: Duration) {
        wait_for(&format!("nothing is left of {}", self.name(&self.cluster)), deadline, || async {
            let left = self.left_in_namespace(cp).await;
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
    }

    /// Returns the remaining objects of the first kind that has any.
    async fn left_in_namespace(&self, cp: &ControlPlane) -> Vec<String> {
        const KINDS: [Kind; 10] = [
            Kind::CLUSTER,
            Kind::MACHINE_DEPLOYMENT,
            Kind::MACHINE_SET,
            Kind::MACHINE,
            Kind::WINDOWS_MACHINE,
            Kind::WINDOWS_BOOTSTRAP_CONFIG,
            Kind::WINDOWS_CLUSTER,
            Kind::EXTERNAL_CONTROL_PLANE,
            Kind::WINDOWS_MACHINE_TEMPLATE,
            Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE,
        ];
        for kind in KINDS {
            let objects = cp.list(kind, Some(&self.namespace)).await;
            if !objects.is_empty() {
                return objects.iter().map(|object| format!("{} {}", kind.plural, text(object, "/metadata/name"))).collect();
            }
        }
        let given = [format!("{}-external-kubeconfig", self.cluster), text(&self.driver, "/credentialsRef/name").to_owned()];
        let secrets = cp.list(Kind::SECRET, Some(&self.namespace)).await;
        let names = secrets.iter().map(|secret| text(secret, "/metadata/name")).filter(|name| !given.iter().any(|given| given == name));
        names.map(|name| format!("secret {name}")).collect()
    }
}

/// Returns a kubeconfig for the account [`REMOTE_USER`], which has the rights of `config/workload` in the workload cluster.
pub async fn remote_kubeconfig(to: &ControlPlane) -> String {
    to.apply_objects(&manifests::documents(WORKLOAD)).await;
    let path = to.kubeconfig_for("kube-system", "capw-remote").await;
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the objects that joins have left in a workload cluster: Nodes, their Leases, our tokens, certificate requests.
pub async fn left_in_workload(to: &ControlPlane) -> Vec<String> {
    let mut left = Vec::new();
    for (kind, namespace) in [(Kind::NODE, None), (Kind::LEASE, Some("kube-node-lease")), (Kind::CERTIFICATE_SIGNING_REQUEST, None)] {
        let objects = to.list(kind, namespace).await;
        left.extend(objects.iter().map(|object| format!("{} {}", kind.plural, text(object, "/metadata/name"))));
    }
    left.extend(tokens(to).await.into_iter().map(|name| format!("secret kube-system/{name}")));
    left
}

/// Returns the names of our bootstrap tokens in a workload cluster.
pub async fn tokens(to: &ControlPlane) -> Vec<String> {
    let mut secrets = to.list(Kind::SECRET, Some("kube-system")).await;
    secrets.retain(|secret| text(secret, "/type") == "bootstrap.kubernetes.io/token");
    secrets.retain(|secret| text(secret, "/metadata/labels/app.kubernetes.io~1managed-by") == "capw");
    secrets.iter().map(|secret| text(secret, "/metadata/name").to_owned()).collect()
}

/// Waits until a workload cluster contains nothing of any node, and the simulated hypervisors of `capw` contain no VM.
pub async fn wait_nothing_left(to: &ControlPlane, capw: &Capw, deadline: Duration) {
    wait_for("no Node, token, request or VM is left", deadline, || async {
        let vms: Vec<SimulatedVm> = simulated_vms(capw.state());
        let left = left_in_workload(to).await;
        if left.is_empty() && vms.is_empty() { Ok(()) } else { Err(format!("{left:?}, {vms:?}")) }
    })
    .await;
}

/// Checks continuously, and fails if a machine has two VMs or a VM has no machine. Does not return. Files may show a VM for up to `lag` after its
/// deletion.
pub async fn watch_vms(cp: &ControlPlane, capw: &Capw, lag: Duration) {
    loop {
        let vms = simulated_vms(capw.state());
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for vm in vms.iter().filter(|vm| !vm.name.is_empty()) {
            names.entry(&vm.name).or_default().push(vm.directory.split('.').next().unwrap_or_default());
        }
        for (name, ids) in &mut names {
            ids.dedup();
            assert_eq!(ids.len(), 1, "two VMs for WindowsMachine {name}: {vms:?}");
        }
        let machines = cp.list(Kind::WINDOWS_MACHINE, None).await;
        let later = simulated_vms(capw.state());
        let mut gone_later = Vec::new();
        for vm in vms.iter().filter(|vm| later.iter().any(|now| now.directory == vm.directory)) {
            let id = vm.directory.split('.').next().unwrap_or_default();
            let owned = machines.iter().any(|machine| VmUuid::of(text(machine, "/metadata/uid")).to_string() == id);
            assert!(owned || !lag.is_zero(), "a VM without its WindowsMachine: {vm:?}");
            gone_later.extend((!owned).then_some(&vm.directory));
        }
        if !gone_later.is_empty() {
            wait_for("the files of VMs without a WindowsMachine are gone", lag, || async {
                let left: Vec<SimulatedVm> = simulated_vms(capw.state()).into_iter().filter(|vm| gone_later.contains(&&vm.directory)).collect();
                if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
            })
            .await;
        }
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// Whether a Node is Ready.
pub fn is_ready(node: &Value) -> bool {
    crate::world::condition(node, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Whether `whole` contains everything in `part`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value))),
        _ => whole == part,
    }
}
