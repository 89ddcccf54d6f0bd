//! Story *Linux side*: a cluster whose pod network is Flannel, installed from its manifest. A WindowsCluster names the network and reports the
//! settings that Windows nodes cannot share, with a command for each. The commands and a restart of flanneld fix them. CAPW applies these changes
//! only on request, once, and leaves alone settings that a tool manages or that were changed back. On request, it also brings the network and
//! RuntimeClasses for Windows nodes, as it reported before, keeps them unchanged, and removes them, also when the Cluster is deleted.

pub mod cost;
pub mod gone;
mod policies;
pub mod probes;
mod pull_secrets;
mod report;
mod runtime_classes;
mod second_writer;

use std::time::Duration;

use serde_json::{Value, json};

use crate::workers::{REMOTE_USER, Workers};
use crate::world::{self, AuditEvent, AuditMark, Capw, ControlPlane, Kind, Options, condition, step, text, wait_for};

/// CAPW checks a cluster within seconds of a change, and otherwise every five minutes.
pub const LIMIT: Duration = Duration::from_secs(120);
/// The objects of a cluster that kubeadm and Flannel's manifest created.
pub const RECORDING: &str = "src/components/fixtures/flannel-manifest.yaml";
pub const COMPATIBLE: &str = "NetworkCompatible";
pub const LINUX_SIDE: &str = "LinuxSideReady";
pub const COMPONENTS: &str = "ComponentsReady";
/// The namespace of the objects for Windows nodes.
pub const BROUGHT: &str = "capw-windows";
/// The taint that keeps pods off a node until its network works.
pub const UNVERIFIED: &str = "startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified";
const CONFIG: &str = "kube-flannel/kube-flannel-cfg";
pub const PODS: Kind = Kind::new("v1", "pods");
pub const SERVICES: Kind = Kind::new("v1", "services");
pub const DAEMON_SETS: Kind = Kind::new("apps/v1", "daemonsets");

#[test]
fn the_linux_side_is_named_and_put_right() {
    world::run(async {
        let options = Options { scheduler: true, ..Options::default() };
        let cp = ControlPlane::start(options.named("linux-side")).await;
        let _capw = Capw::start(&cp, &["--image=registry.example.com/capw:v0"]).await;
        let workers = Workers { replicas: 0, ..Workers::new("vxlan", &cp).await };
        workers.apply(&cp).await;
        let name = workers.name(&workers.cluster);
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, "Ready", "True", LIMIT).await;
        let unasked = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster");
        assert!(unasked["status"]["components"].is_null() && condition(&unasked, "NetworkCompatible").is_none(), "{:#}", unasked["status"]);

        let mark = cp.audit_mark();
        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {}}})).await.expect("components can be asked for");
        says(&cp, &name, COMPATIBLE, "NoLinuxNodes", &["add a Linux node"]).await;
        step("without a Linux node nothing shows the network");

        cp.apply_recording(RECORDING).await;
        says(&cp, &name, COMPATIBLE, "VniBelow4096", &["ConfigMap kube-flannel/kube-flannel-cfg", "VNI 1", "port 8472", "kubectl rollout restart"])
            .await;
        let table = cp.kubectl(&["-n", &workers.namespace, "get", "windowsclusters"]).await;
        assert!(table.lines().any(|line| line.contains("flannel/vxlan") && line.contains("VniBelow4096")), "{table}");
        let events = cp.events(&workers.namespace, &workers.cluster).await;
        assert!(events.iter().any(|event| event.starts_with("Warning VniBelow4096: ")), "{events:#?}");
        let network = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster")["status"]["components"]["network"].clone();
        assert_eq!((&network["vni"], &network["port"], &network["role"]), (&json!(1), &json!(8472), &json!("Run")), "{network:#}");
        assert_eq!(network["podNetworks"], json!(["10.244.0.0/16"]));
        step("VNI and port of Linux nodes are not those of Windows");

        let unchanged = cp.get(Kind::CONFIG_MAP, CONFIG).await.expect("Flannel's settings")["data"].clone();
        let status = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster")["status"]["components"].clone();
        let command = text(&status, "/findings/0/command").to_owned();
        run(&cp, &command).await;
        says(&cp, &name, COMPATIBLE, "NotRolledOut", &["VNI 4096", "VNI 1", "linux-1"]).await;
        step("the command was taken; Linux nodes still use the old settings");

        flanneld_uses(&cp, 4096).await;
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, "NetworkCompatible", "True", probes::SOON).await;
        let table = cp.kubectl(&["-n", &workers.namespace, "get", "windowsclusters"]).await;
        assert!(table.lines().any(|line| line.contains("flannel/vxlan") && line.contains("NetworkUsable")), "{table}");
        step("Windows nodes can be on the network");

        assert_eq!(written_since(&cp, mark), [""; 0], "CAPW only reads");

        let mark = cp.audit_mark();
        let of_helm = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "flannel"}}, "data": unchanged});
        cp.patch(Kind::CONFIG_MAP, CONFIG, &of_helm).await.expect("Flannel's settings");
        flanneld_uses(&cp, 1).await;
        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"linuxSide": "Change"}}})).await.expect("changes can be asked for");
        says(&cp, &name, LINUX_SIDE, "ManagedElsewhere", &["ConfigMap kube-flannel/kube-flannel-cfg", "Helm release flannel"]).await;
        assert_eq!(written_since(&cp, mark), [""; 0], "what Helm manages is left alone");
        step("what Helm manages is left alone");

        cp.patch(Kind::CONFIG_MAP, CONFIG, &json!({"metadata": {"annotations": {"meta.helm.sh/release-name": null}}}))
            .await
            .expect("Flannel's settings");
        it_is_changed(&cp, &name).await;
        let expected =
            ["/api/v1/namespaces/kube-flannel/configmaps/kube-flannel-cfg", "/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel-ds"];
        let written = writes_since(&cp, mark, 2).await;
        let is_right = written.len() == 2 && written.iter().zip(expected).all(|(is, expected)| is.starts_with(&format!("patch {expected}")));
        assert!(is_right, "{written:#?}");
        step("CAPW has changed the settings and restarted flanneld, with one write each");

        it_brings_the_network(&cp, workers, &name).await;
        let compatible = cp.get(Kind::CONFIG_MAP, CONFIG).await.expect("Flannel's settings")["data"].clone();

        let mark = cp.audit_mark();
        cp.patch(Kind::CONFIG_MAP, CONFIG, &json!({"data": unchanged})).await.expect("Flannel's settings");
        says(&cp, &name, LINUX_SIDE, "ManagedElsewhere", &["has changed it back", "correct it at its source"]).await;
        assert_eq!(written_since(&cp, mark), [""; 0], "what was changed back is left alone");
        step("what was changed back is left alone");

        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"mode": "Off"}}})).await.expect("components can be left out");
        cp.wait_object(Kind::WINDOWS_CLUSTER, &name, "nothing is said of the network", LIMIT, |object| {
            let is_silent = object["status"]["components"].is_null()
                && [COMPATIBLE, LINUX_SIDE, COMPONENTS].iter().all(|type_| condition(object, type_).is_none());
            is_silent.then_some(())
        })
        .await;

        cp.patch(Kind::CONFIG_MAP, CONFIG, &json!({"data": compatible})).await.expect("Flannel's settings");
        gone::it_goes_with_its_cluster(&cp).await;
        gone::it_is_told_where_the_cluster_cannot_be_reached(&cp).await;
    });
}

/// CAPW brings the components for Windows nodes on request, keeps them unchanged, and removes them.
async fn it_brings_the_network(cp: &ControlPlane, mut workers: Workers, name: &str) {
    let foreign = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BROUGHT}});
    cp.apply_objects(&[foreign]).await;
    report::it_says_what_is_in_the_way(cp, name).await;
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
    says(cp, name, COMPONENTS, "NameTaken", &["Namespace capw-windows is there already", "app.kubernetes.io/managed-by: capw"]).await;
    assert!(cp.list(DAEMON_SETS, Some(BROUGHT)).await.is_empty(), "nothing is applied where something is not ours");
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Report"}}})).await.expect("components can be reported");
    cp.patch(Kind::NAMESPACE, BROUGHT, &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "capw"}}})).await.expect("a label");
    report::it_is_as_it_was_said(cp, name).await;

    // No Windows node exists yet.
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    let parts = cp.get(Kind::WINDOWS_CLUSTER, name).await.expect("the WindowsCluster")["status"]["components"]["parts"].clone();
    assert_eq!(parts, json!([{"name": "flannel", "ready": 0, "desired": 0}, {"name": "kube-proxy", "ready": 0, "desired": 0}]));
    step("the network is brought to Windows nodes");

    policies::they_are_switched_by_themselves(cp, name).await;
    pull_secrets::they_come_and_go(cp, name).await;

    let joins = cp.audit_mark();
    workers.replicas = 1;
    cp.apply_objects(&[workers.machine_deployment()]).await;
    says(cp, name, COMPONENTS, "PartNotReady", &["flannel: 0 of 1 pods are ready", "kube-proxy: 0 of 1"]).await;
    let node = unverified_node(cp).await;
    verified(cp, name, "0/1").await;
    // The story reports the pod's status in place of the kubelet.
    pod_is_ready(cp, BROUGHT, "flannel", &node).await;
    says(cp, name, COMPONENTS, "PartNotReady", &["kube-proxy: 0 of 1"]).await;
    the_taint_stays_in_a_report(cp, name, &node).await;
    assert!(cp.get(Kind::NODE, &node).await.is_some_and(|node| is_unverified(&node)), "the taint stays until both are ready");
    pod_is_ready(cp, BROUGHT, "kube-proxy", &node).await;
    probes::it_reaches_what_pods_need(cp, name, &node).await;
    verified(cp, name, "1/1").await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    cost::assert_within(cp, joins, None);
    step("a new node takes pods once its network works");
    runtime_classes::they_come_with_a_pool(cp, &workers, name, &node).await;
    workers.replicas = 0;
    cp.apply_objects(&[workers.machine_deployment()]).await;
    verified(cp, name, "0/0").await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    runtime_classes::they_go_with_their_last_pod(cp, name).await;

    second_writer::it_is_named(cp, name).await;

    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Off"}}})).await.expect("components can be taken away");
    wait_for("what was brought is gone", LIMIT, || async {
        let mut left = gone::left(cp, name).await;
        let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.ok_or("no WindowsCluster")?;
        left.extend(object["status"]["components"]["parts"].as_array().into_iter().flatten().map(Value::to_string));
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Report"}}})).await.expect("components can be reported");
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, LINUX_SIDE, "True", LIMIT).await;
    step("what was brought is gone");
}

/// CAPW reports the taint with the command to a user who does all writes by hand.
async fn the_taint_stays_in_a_report(cp: &ControlPlane, name: &str, node: &str) {
    let removed = format!("{UNVERIFIED}-");
    let command = ["taint", "nodes", node, &removed];
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Report"}}})).await.expect("components can be reported");
    says(cp, name, COMPONENTS, "TaintNotRemoved", &[&format!("`kubectl {}`", command.join(" "))]).await;
    cp.kubectl(&[&command[..], &["--dry-run=server"]].concat()).await;
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
    says(cp, name, COMPONENTS, "PartNotReady", &["kube-proxy: 0 of 1"]).await;
    step("a taint that nothing takes away is told with the command");
}

/// Whether a Node has the taint that keeps pods off it until its network works.
pub fn is_unverified(node: &Value) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|taint| taint["key"] == UNVERIFIED)
}

/// Waits for a Windows node that has the taint, and returns its name.
pub async fn unverified_node(cp: &ControlPlane) -> String {
    wait_for("a Windows node has the taint", LIMIT, || async {
        let nodes = cp.list(Kind::NODE, None).await;
        let node = nodes.into_iter().find(|node| text(node, "/metadata/name").starts_with("win-")).ok_or("no Windows node")?;
        if is_unverified(&node) { Ok(text(&node, "/metadata/name").to_owned()) } else { Err("no taint") }
    })
    .await
}

pub async fn verified(cp: &ControlPlane, name: &str, expected: &str) {
    cp.wait_object(Kind::WINDOWS_CLUSTER, name, &format!("{expected} nodes are verified"), LIMIT, |object| {
        (object["status"]["components"]["verified"] == expected).then_some(())
    })
    .await;
}

/// Waits until a part's pod is bound to the node, and reports it as ready in place of the kubelet.
pub async fn pod_is_ready(cp: &ControlPlane, namespace: &str, part: &str, node: &str) {
    wait_for(&format!("the pod of {part} is on {node}"), LIMIT, || async {
        let pods = cp.list(PODS, Some(namespace)).await;
        let is_its = |pod: &&Value| text(pod, "/metadata/name").starts_with(part) && text(pod, "/spec/nodeName") == node;
        let pod = pods.iter().find(is_its).ok_or("no such pod")?;
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        cp.patch_status(PODS, &format!("{namespace}/{}", text(pod, "/metadata/name")), &ready).await.map_err(|_| "it is gone again")
    })
    .await;
}

/// Writes the annotation that flanneld writes on its node when it starts.
pub async fn flanneld_uses(cp: &ControlPlane, vni: u32) {
    let data = format!("{{\"VNI\":{vni},\"VtepMAC\":\"46:7f:5c:1c:0b:01\"}}");
    for node in ["linux-1", "linux-2"] {
        cp.patch(Kind::NODE, node, &json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-data": data}}})).await.expect("a Node");
    }
}

/// CAPW changes the settings, and flanneld starts with them.
pub async fn it_is_changed(cp: &ControlPlane, name: &str) {
    says(cp, name, LINUX_SIDE, "ChangingLinuxSide", &[]).await;
    pods_restart(cp).await;
    flanneld_uses(cp, 4096).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, LINUX_SIDE, "True", LIMIT).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPATIBLE, "True", LIMIT).await;
}

/// Waits until the DaemonSet controller has recreated the pods, and reports them as running in place of the kubelet.
async fn pods_restart(cp: &ControlPlane) {
    wait_for("all pods of Flannel are new and run", LIMIT, || async {
        let set = cp.get(DAEMON_SETS, "kube-flannel/kube-flannel-ds").await.ok_or("no DaemonSet")?;
        let digest = &set["spec"]["template"]["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/linux-side-settings"];
        let pods = cp.list(PODS, Some("kube-flannel")).await;
        for pod in pods.iter().filter(|pod| &pod["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/linux-side-settings"] == digest) {
            let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            // The pod may have been deleted already.
            let _ = cp.patch_status(PODS, &format!("kube-flannel/{}", text(pod, "/metadata/name")), &running).await;
        }
        let status = &set["status"];
        let is_new = digest.is_string() && status["observedGeneration"] == set["metadata"]["generation"];
        let is_done = is_new && [&status["updatedNumberScheduled"], &status["numberAvailable"]].iter().all(|count| **count == json!(2));
        if is_done { Ok(()) } else { Err(format!("{digest} {status:#}")) }
    })
    .await;
}

/// Returns CAPW's writes in the workload cluster.
pub fn written_since(cp: &ControlPlane, mark: AuditMark) -> Vec<String> {
    effects_since(cp, mark).iter().map(|event| format!("{} {}", event.verb, event.uri)).collect()
}

/// Returns the requests of CAPW that wrote in the workload cluster.
fn effects_since(cp: &ControlPlane, mark: AuditMark) -> Vec<AuditEvent> {
    // The access reviews only query rights. A write with a conflict is refused and repeated.
    let is_write =
        |event: &AuditEvent| event.user == REMOTE_USER && event.is_write() && event.code != 409 && event.resource != "selfsubjectaccessreviews";
    cp.audit_since(mark).into_iter().filter(is_write).collect()
}

/// Waits for this many writes of CAPW, because the API server logs a request after its answer.
pub async fn writes_since(cp: &ControlPlane, mark: AuditMark, count: usize) -> Vec<String> {
    wait_for(&format!("{count} writes are in the audit log"), LIMIT, || async {
        let written = written_since(cp, mark);
        if written.len() >= count { Ok(written) } else { Err(format!("{written:#?}")) }
    })
    .await
}

/// Waits until a condition is False for this reason, with these parts in its message.
pub async fn says(cp: &ControlPlane, name: &str, type_: &str, reason: &str, parts: &[&str]) {
    wait_for(&format!("{name} says {reason} {parts:?}"), LIMIT, || async {
        let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.ok_or("no WindowsCluster")?;
        let found = condition(&object, type_).cloned().unwrap_or_default();
        let is_right = found["status"] == "False" && found["reason"] == reason && parts.iter().all(|part| text(&found, "/message").contains(part));
        if is_right { Ok(()) } else { Err(format!("{found:#}")) }
    })
    .await;
}

/// Runs a command from a finding, split as a shell splits it.
async fn run(cp: &ControlPlane, command: &str) {
    let words = shell_words(command);
    assert_eq!(words.first().map(String::as_str), Some("kubectl"), "{command}");
    cp.kubectl(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>()).await;
}

/// Splits a command with a real shell.
fn shell_words(command: &str) -> Vec<String> {
    let script = format!("printf '%s\\0' {command}");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh runs");
    assert!(output.status.success(), "{command}");
    String::from_utf8(output.stdout).expect("text").split_terminator('\0').map(str::to_owned).collect()
}
