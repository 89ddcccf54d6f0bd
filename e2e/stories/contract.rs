//! Story *contract*: CAPW keeps Cluster API's contract for providers. A Cluster becomes Available by core's own condition, a ClusterClass creates the
//! same cluster, a MachineHealthCheck replaces a machine that never joins or loses its VM, and pausing stops everything.

use std::time::Duration;

use serde_json::{Value, json};

use crate::workers::Workers;
use crate::world::{self, AuditMark, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for};

/// The limit for one wait. No wait takes nearly as long on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);
/// Core's lower limit for `nodeStartupTimeoutSeconds`.
const STARTUP: u64 = 30;

#[test]
fn the_contract_with_cluster_api() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("contract")).await;
        let capw = Capw::start(&cp, &[]).await;
        let mut witness = Workers { replicas: 1, ..Workers::new("available", &cp).await };
        tokio::join!(available(&cp, &witness), topology(&cp), health(&cp, &capw));
        paused(&cp, &capw, &mut witness).await;
    });
}

/// Checks core's conditions of a Cluster, a Machine and their parts, and the values that core copied from us.
async fn available(cp: &ControlPlane, workers: &Workers) {
    workers.apply(cp).await;
    let machines = workers.wait_settled(cp, cp, LIMIT).await;
    let cluster = workers.name("c1");
    for kind in ["InfrastructureReady", "ControlPlaneInitialized", "ControlPlaneAvailable", "RemoteConnectionProbe", "WorkersAvailable", "Available"]
    {
        cp.wait_condition(Kind::CLUSTER, &cluster, kind, "True", LIMIT).await;
    }
    let cluster = cp.get(Kind::CLUSTER, &cluster).await.expect("the Cluster");
    assert_eq!(text(&cluster, "/status/phase"), "Provisioned", "{:#}", cluster["status"]);
    assert_eq!(
        format!("https://{}:{}", text(&cluster, "/spec/controlPlaneEndpoint/host"), cluster["spec"]["controlPlaneEndpoint"]["port"]),
        cp.server()
    );
    let domains = cluster.pointer("/status/failureDomains/0").cloned().unwrap_or_default();
    assert_eq!((text(&domains, "/name"), &domains["controlPlane"]), ("lab", &json!(false)), "core took our failure domains: {domains}");
    let machine = &machines[0];
    let node = cp.get(Kind::NODE, text(machine, "/status/nodeRef/name")).await.expect("the Machine's Node");
    assert_eq!(text(machine, "/spec/providerID"), text(&node, "/spec/providerID"));
    let addresses = machine["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let kinds: Vec<&str> = addresses.iter().map(|address| text(address, "/type")).collect();
    assert!(kinds.contains(&"InternalIP") && kinds.contains(&"Hostname"), "{addresses:?}");
    let machine = workers.name(text(machine, "/metadata/name"));
    for kind in ["BootstrapConfigReady", "InfrastructureReady", "NodeReady", "NodeHealthy", "Ready", "Available"] {
        cp.wait_condition(Kind::MACHINE, &machine, kind, "True", LIMIT).await;
    }
    step("the Cluster is Available");
}

/// Applies the ClusterClass of our release and a Cluster of that class. Its machines equal the machines of a MachineDeployment.
async fn topology(cp: &ControlPlane) {
    let namespace = "class";
    let mut kubeconfig = Workers { cluster: "classy".to_owned(), ..Workers::new(namespace, cp).await }.objects();
    kubeconfig.retain(|object| matches!(object["kind"].as_str(), Some("Namespace" | "Secret")));
    cp.apply_objects(&kubeconfig).await;
    cp.kubectl(&["-n", namespace, "apply", "-f", "config/clusterctl/templates/clusterclass-windows.yaml"]).await;
    cp.kubectl(&["-n", namespace, "apply", "-f", "config/samples/topology.yaml"]).await;
    let cluster = format!("{namespace}/classy");
    for kind in ["TopologyReconciled", "Available"] {
        cp.wait_condition(Kind::CLUSTER, &cluster, kind, "True", LIMIT).await;
    }
    let machines = wait_for("the machines of the topology are Running: two of a MachineDeployment, one of a MachinePool", LIMIT, || async {
        let machines = cp.list(Kind::MACHINE, Some(namespace)).await;
        let running = machines.iter().filter(|machine| text(machine, "/status/phase") == "Running").count();
        if (machines.len(), running) == (3, 3) { Ok(machines) } else { Err(format!("{running} of {}", machines.len())) }
    })
    .await;
    for machine in &machines {
        let made = cp.get(Kind::WINDOWS_MACHINE, &format!("{namespace}/{}", text(machine, "/spec/infrastructureRef/name"))).await;
        let spec = made.map(|mut made| made["spec"].take()).unwrap_or_default();
        // The class sets the CPUs, the Cluster the memory.
        assert_eq!((&spec["cpus"], &spec["memory"], &spec["image"]), (&json!(4), &json!("4Gi"), &json!("windows-server-2022")), "{spec:#}");
        let node = cp.get(Kind::NODE, text(machine, "/status/nodeRef/name")).await.expect("the Machine's Node");
        assert_eq!(text(&node, "/metadata/labels/kubernetes.io~1os"), "windows");
        assert_eq!(text(&node, "/spec/providerID"), text(&spec, "/providerID"));
    }
    cp.delete(Kind::CLUSTER, &cluster).await;
    cp.wait_gone(Kind::CLUSTER, &cluster, LIMIT).await;
    step("the Cluster of a ClusterClass came and went");
}

/// One machine never reports, and its successor loses its VM. Each is replaced completely.
async fn health(cp: &ControlPlane, capw: &Capw) {
    let mut workers = Workers { replicas: 1, ..Workers::new("health", cp).await };
    workers.driver = json!({"simulated": {"faults": [{"names": "*", "fault": "NoBoot", "count": 1}]}});
    workers.apply(cp).await;
    let first = wait_for("the first machine is made", LIMIT, || async {
        let machines = cp.list(Kind::WINDOWS_MACHINE, Some("health")).await;
        machines.first().map(|machine| text(machine, "/metadata/name").to_owned())
    })
    .await;
    // Only this machine gets the short deadline, because its successors may be slow on a busy machine.
    cp.patch(Kind::WINDOWS_MACHINE, &workers.name(&first), &json!({"spec": {"joinDeadlineSeconds": 10}})).await.expect("a shorter deadline");
    let never = |machine: &Value| condition(machine, "NodeJoined").filter(|joined| joined["reason"] == "NodeNeverJoined").map(drop);
    cp.wait_object(Kind::WINDOWS_MACHINE, &workers.name(&first), "it never joined", LIMIT, never).await;
    check_health(cp, &first, json!({"nodeStartupTimeoutSeconds": STARTUP})).await;
    let second = replaced(cp, capw, &workers, &first).await;
    step("a machine that never joined was replaced");

    let vm = simulated_vms(capw.state()).into_iter().find(|vm| vm.name == second).expect("the VM of the second machine");
    let home = capw.state().join(&vm.datacenter).join(&vm.directory);
    std::fs::rename(home, cp.directory().join("taken-away")).expect("the VM's directory can be taken away");
    let gone = [json!({"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 5})];
    check_health(cp, &second, json!({"unhealthyMachineConditions": gone})).await;
    replaced(cp, capw, &workers, &second).await;
    step("a machine whose VM was taken away was replaced");
}

/// A MachineHealthCheck for one machine, because it would time out for machines that are still being created.
async fn check_health(cp: &ControlPlane, machine: &str, checks: Value) {
    let label = json!({"example.com/checked": machine});
    cp.patch(Kind::MACHINE, &format!("health/{machine}"), &json!({"metadata": {"labels": label}})).await.expect("a label");
    let health_check = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": machine, "namespace": "health"},
        "spec": {
            "clusterName": "c1",
            "selector": {"matchLabels": label},
            "checks": checks,
            "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "100%"}},
        },
    });
    cp.apply_objects(&[health_check]).await;
}

/// Waits until another machine runs and nothing of `before` is left. Returns the name of the new machine.
async fn replaced(cp: &ControlPlane, capw: &Capw, workers: &Workers, before: &str) -> String {
    cp.wait_gone(Kind::WINDOWS_MACHINE, &workers.name(before), LIMIT).await;
    let machines = workers.wait_settled(cp, cp, LIMIT).await;
    let now = text(&machines[0], "/metadata/name").to_owned();
    assert_ne!(now, before);
    let vms: Vec<String> = simulated_vms(capw.state()).into_iter().filter(|vm| vm.datacenter == "health.lab").map(|vm| vm.name).collect();
    assert_eq!(vms, [now.as_str()]);
    assert_eq!(cp.get(Kind::NODE, before).await, None, "the Node of the machine that was replaced");
    now
}

/// While a Cluster or one object is paused, CAPW writes no object of it and does nothing to its VMs, whatever users request. After that it does all
/// of it. `witness` is a cluster that is not paused; its growth shows that CAPW had enough time.
async fn paused(cp: &ControlPlane, capw: &Capw, witness: &mut Workers) {
    let workers = Workers { replicas: 2, ..Workers::new("paused", cp).await };
    workers.apply(cp).await;
    let machines = workers.wait_settled(cp, cp, LIMIT).await;
    let names: Vec<String> = machines.iter().map(|machine| workers.name(text(machine, "/metadata/name"))).collect();
    pause(cp, true).await;
    for (kind, name) in ours(&names) {
        cp.wait_condition(kind, &name, "Paused", "True", LIMIT).await;
    }
    let before = vms(capw);
    let mark = cp.audit_mark();
    // Trigger every kind of action: change a spec, delete an object, remove a hypervisor of the cluster.
    cp.patch(Kind::WINDOWS_MACHINE, &names[0], &json!({"spec": {"joinDeadlineSeconds": 77}})).await.expect("the spec can be changed");
    cp.patch(Kind::WINDOWS_CLUSTER, "paused/c1", &json!({"spec": {"hypervisors": []}})).await.expect("the spec can be changed");
    cp.patch(Kind::EXTERNAL_CONTROL_PLANE, "paused/c1", &json!({"spec": {"version": "v1.30.0"}})).await.expect("the spec can be changed");
    cp.delete(Kind::WINDOWS_MACHINE, &names[0]).await;
    witness.replicas += 1;
    cp.apply_objects(&[witness.machine_deployment()]).await;
    witness.wait_settled(cp, cp, LIMIT).await;
    assert_untouched(cp, mark, "paused");
    assert_eq!(vms(capw), before, "VMs of a paused cluster");

    let mark = cp.audit_mark();
    pause(cp, false).await;
    cp.wait_gone(Kind::WINDOWS_MACHINE, &names[0], LIMIT).await;
    assert!(written(cp, mark, "paused") > 0, "the audit log does not show our writes: the look before proves nothing");
    step("a paused Cluster was left alone, then served");

    // Now only one object is paused.
    let annotate = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    cp.patch(Kind::WINDOWS_MACHINE, &names[1], &annotate(json!(""))).await.expect("the object can be annotated");
    let said = cp.wait_condition(Kind::WINDOWS_MACHINE, &names[1], "Paused", "True", LIMIT).await;
    assert!(text(&said, "/message").contains("annotation cluster.x-k8s.io/paused"), "{said}");
    let mark = cp.audit_mark();
    cp.delete(Kind::WINDOWS_MACHINE, &names[1]).await;
    witness.replicas += 1;
    cp.apply_objects(&[witness.machine_deployment()]).await;
    witness.wait_settled(cp, cp, LIMIT).await;
    let name = names[1].trim_start_matches("paused/");
    let writes: Vec<_> = ours_since(cp, mark).into_iter().filter(|event| event.name == name && event.resource == "windowsmachines").collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(vms(capw).iter().any(|vm| vm.name == name), "the VM of a paused machine");
    cp.patch(Kind::WINDOWS_MACHINE, &names[1], &annotate(Value::Null)).await.expect("the annotation can be removed");
    cp.wait_gone(Kind::WINDOWS_MACHINE, &names[1], LIMIT).await;
    wait_for("its VM is gone", LIMIT, || async { (!vms(capw).iter().any(|vm| vm.name == name)).then_some(()) }).await;
    step("a paused machine was left alone, then removed");
}

async fn pause(cp: &ControlPlane, paused: bool) {
    cp.patch(Kind::CLUSTER, "paused/c1", &json!({"spec": {"paused": paused}})).await.expect("a Cluster can be paused");
}

/// Returns our objects of the paused cluster.
fn ours(machines: &[String]) -> Vec<(Kind, String)> {
    let one = [Kind::WINDOWS_CLUSTER, Kind::EXTERNAL_CONTROL_PLANE].map(|kind| (kind, "paused/c1".to_owned()));
    let each = machines.iter().flat_map(|name| [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG].map(|kind| (kind, name.clone())));
    one.into_iter().chain(each).collect()
}

fn vms(capw: &Capw) -> Vec<world::SimulatedVm> {
    simulated_vms(capw.state()).into_iter().filter(|vm| vm.datacenter == "paused.lab").collect()
}

fn ours_since(cp: &ControlPlane, mark: AuditMark) -> Vec<world::AuditEvent> {
    cp.audit_since(mark).into_iter().filter(|event| event.is_write() && event.user == Capw::USER).collect()
}

fn written(cp: &ControlPlane, mark: AuditMark, namespace: &str) -> usize {
    ours_since(cp, mark).iter().filter(|event| event.namespace == namespace).count()
}

fn assert_untouched(cp: &ControlPlane, mark: AuditMark, namespace: &str) {
    // The WindowsHypervisor belongs to no Cluster, so pausing a Cluster does not pause it.
    let writes: Vec<_> =
        ours_since(cp, mark).into_iter().filter(|event| event.namespace == namespace && event.resource != "windowshypervisors").collect();
    assert!(writes.is_empty(), "{writes:#?}");
}
