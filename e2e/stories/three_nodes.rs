//! Story *three nodes*: a MachineDeployment becomes Windows nodes, grows, shrinks, is replaced, changes its version and is deleted. The story checks
//! Cluster API's own conditions and the objects on the hypervisor.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use capw::api::name::VmUuid;
use serde_json::{Value, json};

use crate::cost::AUDIT_POLICY;
use crate::cost_of_a_machine;
use crate::workers::{self, Workers, is_ready};
use crate::world::{self, AuditEvent, Capw, ControlPlane, Kind, Options, Product, condition, simulated_vms, step, text, wait_for};

/// A release older than the control plane's, for machines that are upgraded later.
const OLDER: &str = "v1.35.6";
/// The limit for one wait. No wait takes nearly as long on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);

/// The reserved resources on each node. They are set, so that the test need not compute them as the program does.
const SYSTEM: (u64, u64) = (500, 1024);
const KUBE: (u64, u64) = (250, 512);
/// The kubelet's eviction threshold on a machine of 4 to 16 GiB.
const EVICTION_MIB: u64 = 500;

#[test]
fn three_nodes() {
    story("three-nodes", None);
}

/// The story with VMs on a vCenter.
#[test]
fn three_nodes_on_vsphere() {
    story("three-on-vsphere", Some(Product::Vsphere));
}

/// The story with VMs on a Proxmox VE cluster.
#[test]
fn three_nodes_on_proxmox() {
    story("three-on-proxmox", Some(Product::Proxmox));
}

fn story(name: &str, on: Option<Product>) {
    world::run(async {
        let mut times = Times::new();
        let cp = ControlPlane::start(Options { audit_policy: AUDIT_POLICY, ..Options::default().named(name) }).await;
        let mark = cp.audit_mark();
        let capw = Capw::start(&cp, &[]).await;
        times.note("control plane, core and capw are up");
        let mut workers = Workers {
            version: OLDER.to_owned(),
            bootstrap: json!({"kubelet": {
                "nodeLabels": {"example.com/pool": "windows"},
                "systemReserved": {"cpu": "500m", "memory": "1Gi"},
                "kubeReserved": {"cpu": "250m", "memory": "512Mi"},
            }}),
            ..Workers::new("plant", &cp).await
        };
        let _simulator = workers.go_to(on, &cp, &capw).await;
        workers.apply(&cp).await;

        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        times.note("3 nodes are Ready");
        available(&cp, &workers).await;
        times.note("Cluster and MachineDeployment are Available");
        look(&cp, &capw, &workers, &machines).await;
        scrape(&capw, &cp.audit_since(mark));
        let first = vm_ids(&machines);

        scale(&cp, &mut workers, 5).await;
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        times.note("3 -> 5");
        look(&cp, &capw, &workers, &machines).await;
        assert!(vm_ids(&machines).is_superset(&first), "a VM was replaced by scaling up");

        scale(&cp, &mut workers, 1).await;
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        wait_vms(&capw, 1).await;
        times.note("5 -> 1");
        cost_of_a_machine::assert_within(&cost_of_a_machine::of_deployment(on), &cp, &capw).await;
        look(&cp, &capw, &workers, &machines).await;

        scale(&cp, &mut workers, 3).await;
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        times.note("1 -> 3");
        let before = vm_ids(&machines);
        workers.template = "second".to_owned();
        workers.machine = json!({"image": "windows-server-2025", "cpus": 2, "memory": "8Gi"});
        // A machine refuses a plan for another release of Windows.
        workers.bootstrap_template = "second".to_owned();
        workers.bootstrap["windowsRelease"] = json!("2025");
        let machines = roll(&cp, &workers, &[workers.machine_template(), workers.bootstrap_template(), workers.machine_deployment()]).await;
        wait_vms(&capw, 3).await;
        times.note("another template: 3 replaced one by one");
        look(&cp, &capw, &workers, &machines).await;
        assert!(vm_ids(&machines).is_disjoint(&before), "a VM outlived the change of its template");
        for vm in simulated_vms(capw.state()) {
            assert_eq!((vm.image.as_str(), vm.cpus), ("windows-server-2025", 2), "{vm:?}");
        }

        scale(&cp, &mut workers, 1).await;
        let before = vm_ids(&workers.wait_settled(&cp, &cp, LIMIT).await);
        times.note("3 -> 1");
        workers.version = world::Tools::ensure().kubernetes_version.clone();
        let machines = roll(&cp, &workers, &[workers.machine_deployment()]).await;
        wait_vms(&capw, 1).await;
        times.note("another version of Kubernetes: 1 replaced");
        look(&cp, &capw, &workers, &machines).await;
        assert!(vm_ids(&machines).is_disjoint(&before), "a VM outlived the change of its version");

        let mark = cp.audit_mark();
        cp.delete(Kind::CLUSTER, &workers.name(&workers.cluster)).await;
        workers.wait_gone(&cp, LIMIT).await;
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        times.note("the Cluster is gone, and nothing is left");
        // Our finalizer on an object that the user keeps would block its deletion.
        let hypervisor = workers.name(&workers.hypervisor);
        cp.delete(Kind::WINDOWS_HYPERVISOR, &hypervisor).await;
        cp.wait_gone(Kind::WINDOWS_HYPERVISOR, &hypervisor, LIMIT).await;
        // Core and CAPW complete the deletion: nobody else removed a finalizer.
        let forced = cp.audit_since(mark).into_iter().find(|event| event.user == "kubernetes-super-admin" && event.verb == "patch");
        assert!(forced.is_none(), "{forced:?}");
        let refused: Vec<String> =
            cp.audit().iter().filter(|event| event.user == Capw::USER && event.code == 403).map(|event| event.uri.clone()).collect();
        assert!(refused.is_empty(), "CAPW was refused: {refused:#?}");
        times.print();
    });
}

/// Checks the metrics after three machines became nodes.
fn scrape(capw: &Capw, asked: &[AuditEvent]) {
    assert_eq!(capw.metric("capw_leader", &[]), 1.0, "a process without election works");
    assert_eq!(capw.metric("capw_machines", &["phase=\"joined\""]), 3.0, "{}", capw.metrics());
    assert_eq!(capw.metric("capw_machines", &[]), 3.0, "a machine is in one phase");
    for phase in ["provisioning", "joining"] {
        let label = format!("phase=\"{phase}\"");
        assert_eq!(capw.metric("capw_machine_phase_duration_seconds_count", &[&label]), 3.0, "{}", capw.metrics());
    }
    assert_eq!(capw.metric("capw_hypervisor_up", &[]), 1.0, "{}", capw.metrics());
    assert_eq!(capw.metric("capw_build_info", &[concat!("version=\"v", env!("CARGO_PKG_VERSION"), "\"")]), 1.0);
    let agent = concat!("capw/v", env!("CARGO_PKG_VERSION"), " (linux/");
    let ours: Vec<_> = asked.iter().filter(|event| event.user == Capw::USER).collect();
    assert!(!ours.is_empty() && ours.iter().all(|event| event.user_agent.starts_with(agent)), "the audit log names the version");
}

async fn scale(cp: &ControlPlane, workers: &mut Workers, replicas: usize) {
    workers.replicas = replicas;
    let replicas = format!("--replicas={replicas}");
    cp.kubectl(&["-n", &workers.namespace, "scale", "machinedeployments.cluster.x-k8s.io", &workers.cluster, &replicas]).await;
}

/// Waits for Cluster API's own Available condition, as a script would.
async fn available(cp: &ControlPlane, workers: &Workers) {
    for object in ["machinedeployments.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"] {
        let object = format!("{object}/{}", workers.cluster);
        let wait = ["-n", &workers.namespace, "wait", "--for=condition=Available", &object, "--timeout=10s"];
        wait_for(&format!("{object} is Available"), LIMIT, || cp.try_kubectl(&wait)).await;
    }
}

/// Applies objects that replace the machines one by one, and waits. The Ready Nodes never fall below the desired number.
async fn roll(cp: &ControlPlane, workers: &Workers, objects: &[Value]) -> Vec<Value> {
    let ready = cp.fewest(Kind::NODE, is_ready).await;
    cp.apply_objects(objects).await;
    let machines = wait_for("all machines are replaced", LIMIT, || async { workers.settled(cp, cp).await }).await;
    let fewest = ready.so_far(cp).await;
    assert!(fewest >= workers.replicas, "only {fewest} Ready Nodes during a rolling replacement of {}", workers.replicas);
    available(cp, workers).await;
    machines
}

async fn wait_vms(capw: &Capw, count: usize) {
    wait_for(&format!("{count} VMs"), LIMIT, || async {
        let vms = simulated_vms(capw.state());
        if vms.len() == count { Ok(()) } else { Err(format!("{vms:?}")) }
    })
    .await;
}

/// Returns the VM IDs from the provider IDs of the machines.
fn vm_ids(machines: &[Value]) -> BTreeSet<String> {
    machines.iter().map(|machine| text(machine, "/spec/providerID").rsplit('/').next().unwrap_or_default().to_owned()).collect()
}

/// Checks everything that belongs to Running machines: WindowsMachine, VM, Node.
async fn look(cp: &ControlPlane, capw: &Capw, workers: &Workers, machines: &[Value]) {
    let vms = simulated_vms(capw.state());
    for machine in machines {
        let own = workers.name(text(machine, "/spec/infrastructureRef/name"));
        let own = cp.get(Kind::WINDOWS_MACHINE, &own).await.unwrap_or_else(|| panic!("WindowsMachine {own} is not there"));
        let uuid = VmUuid::of(text(&own, "/metadata/uid")).to_string();
        let id = format!("windows://{}/{uuid}", workers.hypervisor);
        assert_eq!(text(&own, "/spec/providerID"), id);
        assert_eq!(text(machine, "/spec/providerID"), id);
        assert_eq!(own.pointer("/status/initialization/provisioned"), Some(&json!(true)));
        let vm = vms.iter().find(|vm| vm.directory == uuid).unwrap_or_else(|| panic!("no VM {uuid} among {vms:?}"));
        assert_eq!((vm.name.as_str(), vm.power.as_str()), (text(&own, "/metadata/name"), "On"));
        assert_eq!(vm.datacenter, format!("{}.{}", workers.namespace, workers.hypervisor));

        let name = text(machine, "/status/nodeRef/name").to_owned();
        assert_eq!(text(&own, "/status/hostName"), name);
        let has_address =
            |machine: &Value| machine["status"]["addresses"].as_array()?.iter().any(|address| address["type"] == "InternalIP").then_some(());
        // A Running simulated machine has an address. A vCenter may report it after the node has joined; CAPW reads none from Proxmox VE.
        if workers.driver.get("simulated").is_some() {
            assert!(has_address(machine).is_some(), "{:#}", machine["status"]);
        } else if workers.driver.get("vsphere").is_some() {
            cp.wait_object(Kind::MACHINE, &workers.name(text(machine, "/metadata/name")), "an InternalIP", LIMIT, has_address).await;
        }
        // Cluster API removes its taint only after the Machine's labels are on the Node.
        let node = cp
            .wait_object(Kind::NODE, &name, "only the taint os=windows", LIMIT, |node| {
                let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                (taints == [json!({"key": "os", "value": "windows", "effect": "NoSchedule"})]).then(|| node.clone())
            })
            .await;
        look_at_node(workers, &node, &id, &name);
        let joined = cp.wait_condition(Kind::WINDOWS_MACHINE, &workers.name(text(&own, "/metadata/name")), "NodeJoined", "True", LIMIT).await;
        assert!(text(&joined, "/message").contains(&name), "{joined}");
    }
}

fn look_at_node(workers: &Workers, node: &Value, id: &str, name: &str) {
    assert_eq!(text(node, "/spec/providerID"), id);
    let labels = &node["metadata"]["labels"];
    for (label, value) in
        [("kubernetes.io/os", "windows"), ("kubernetes.io/arch", "amd64"), ("kubernetes.io/hostname", name), ("example.com/pool", "windows")]
    {
        assert_eq!(labels[label], value, "label {label} of Node {name}: {labels}");
    }
    assert_eq!(text(node, "/status/nodeInfo/kubeletVersion"), workers.version);
    assert_eq!(text(node, "/status/nodeInfo/operatingSystem"), "windows");
    let cpus = workers.machine["cpus"].as_u64().expect("the story names processors") * 1000;
    let capacity = (milli(node, "/status/capacity/cpu"), mebibytes(node, "/status/capacity/memory"));
    assert_eq!(capacity, (cpus, 8192));
    let allocatable = (milli(node, "/status/allocatable/cpu"), mebibytes(node, "/status/allocatable/memory"));
    assert_eq!(allocatable, (cpus - SYSTEM.0 - KUBE.0, 8192 - SYSTEM.1 - KUBE.1 - EVICTION_MIB));
    let ready = condition(node, "Ready").expect("the Node is Ready");
    assert_eq!(ready["status"], "True");
}

/// Returns a CPU quantity in thousandths.
fn milli(object: &Value, pointer: &str) -> u64 {
    let quantity = text(object, pointer);
    let (number, factor) = quantity.strip_suffix('m').map_or((quantity, 1000), |number| (number, 1));
    number.parse::<u64>().unwrap_or_else(|e| panic!("{pointer} {quantity:?}: {e}")) * factor
}

/// Returns a memory quantity in whole MiB.
fn mebibytes(object: &Value, pointer: &str) -> u64 {
    let quantity = text(object, pointer);
    let unit = quantity.find(|c: char| !c.is_ascii_digit()).unwrap_or(quantity.len());
    let number: u64 = quantity[..unit].parse().unwrap_or_else(|e| panic!("{pointer} {quantity:?}: {e}"));
    match &quantity[unit..] {
        "" => number >> 20,
        "Ki" => number >> 10,
        "Mi" => number,
        "Gi" => number << 10,
        _ => panic!("{pointer}: {quantity:?} is not an amount of memory"),
    }
}

/// The durations of the parts of the story.
struct Times {
    since: Instant,
    noted: Vec<(Duration, &'static str)>,
}

impl Times {
    fn new() -> Self {
        Self { since: Instant::now(), noted: Vec::new() }
    }

    fn note(&mut self, what: &'static str) {
        let took = self.since.elapsed();
        step(format!("{:5.1} s: {what}", took.as_secs_f32()));
        self.noted.push((took, what));
        self.since = Instant::now();
    }

    fn print(&self) {
        println!("three nodes, by part:");
        for (took, what) in &self.noted {
            println!("{:6.1} s  {what}", took.as_secs_f32());
        }
    }
}
