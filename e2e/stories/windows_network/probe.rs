//! The pod that probes a Windows node. The test plays the kubelet: the real agnhost.exe opens each connection from the guest, whose network
//! has the addresses that a pod would reach over its own: the addresses of a name server pod and of two Services.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::LIMIT;
use super::node::{Programs, objects};
use crate::linux_side::{PODS, SERVICES};
use crate::world::wine::WineGuest;
use crate::world::{ControlPlane, Process, Tools, text, wait_for};

const SERVER: &str = "10.244.0.5";
const DNS: &str = "10.96.0.10";
const PROGRAM: &str = r"C:\agnhost.exe";

/// Creates the name resolution of the cluster, as kubeadm does.
pub async fn name_resolution(cp: &ControlPlane) {
    let metadata = |name: &str, labels: Value| json!({"name": name, "namespace": "kube-system", "labels": labels});
    let (udp, tcp) = (json!({"name": "dns", "port": 53, "protocol": "UDP"}), json!({"name": "dns-tcp", "port": 53, "protocol": "TCP"}));
    cp.apply_objects(&[
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata("kube-dns", json!({"k8s-app": "kube-dns"})),
            "spec": {"clusterIP": DNS, "ports": [udp, tcp]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [udp, tcp],
            "metadata": metadata("kube-dns-1", json!({"k8s-app": "kube-dns", "kubernetes.io/service-name": "kube-dns"})),
            "endpoints": [{"addresses": [SERVER], "conditions": {"ready": true}, "nodeName": "linux-1"}]}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("kubelet-config", json!({})),
            "data": {"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDomain: cluster.local\n"}}),
    ])
    .await;
}

/// The servers at the probed addresses, until it is dropped.
pub struct Reachable {
    _api_server: Process,
    name_server: Process,
}

impl Reachable {
    /// Starts the API server's Service; the name resolution does not run yet, and nothing answers in the pod.
    pub async fn new(cp: &ControlPlane, guest: &WineGuest, node: &str, pod: &str) -> Self {
        let service = api_server(cp).await;
        for address in [SERVER, DNS, &service, pod] {
            inside(guest, "--net", &["ip", "address", "add", &format!("{address}/32"), "dev", "lo"]).expect("an address");
        }
        let resolver = cp.directory().join("resolv.conf");
        std::fs::write(&resolver, format!("nameserver {DNS}\n")).expect("the guest's resolver");
        inside(guest, "--mount", &["mount", "--bind", resolver.to_str().expect("a path"), "/etc/resolv.conf"]).expect("the guest's resolver");
        let run = |name: &str, words: &[&str]| {
            let (pid, directory) = (guest.pid().expect("the guest is on").to_string(), cp.directory());
            Process::new(&format!("{name}-{node}"), Path::new("nsenter"), directory).args(["--target", &pid, "--net", "--"].iter().chain(words))
        };
        let (kubectl, kubeconfig) = (Tools::ensure().kubectl.display().to_string(), cp.kubeconfig().display().to_string());
        let proxy = run("api-server-service", &[&kubectl, "--kubeconfig", &kubeconfig, "proxy", "--address", &service, "--port", "443"]);
        proxy.start();
        let (listen, record) = (format!("--listen-address={SERVER},{DNS}"), format!("--host-record=kubernetes.default.svc.cluster.local,{service}"));
        let others =
            ["--keep-in-foreground", "--bind-interfaces", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file="];
        let name_server = run("name-server", &[&["dnsmasq", &listen, &record], &others[..]].concat());
        Self { _api_server: proxy, name_server }
    }

    pub fn start_name_resolution(&self) {
        self.name_server.start();
    }
}

async fn api_server(cp: &ControlPlane) -> String {
    text(&cp.get(SERVICES, "default/kubernetes").await.expect("the Service of the API server"), "/spec/clusterIP").to_owned()
}

/// Runs a program of this host in one of the guest's namespaces; the error is its output.
fn inside(guest: &WineGuest, namespace: &str, words: &[&str]) -> Result<(), String> {
    let pid = guest.pid().expect("the guest is on").to_string();
    let output = Command::new("nsenter").args(["--target", &pid, namespace, "--"]).args(words).output().expect("nsenter runs");
    if output.status.success() { Ok(()) } else { Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr))) }
}

/// Waits for the pod of a node, opens its connections once, and reports the results as the kubelet would. False: some have failed.
pub async fn tried(cp: &ControlPlane, programs: &Programs, guest: &WineGuest, node: &str, address: &str) -> bool {
    if !guest.path(PROGRAM).exists() {
        guest.write(PROGRAM, &std::fs::read(&programs.agnhost).unwrap_or_else(|e| panic!("{}: {e}", programs.agnhost.display())));
    }
    let name = format!("capw-windows/probe-{node}");
    let pod = wait_for(&format!("{name} is bound to its node"), LIMIT, || async {
        let pod = cp.get(PODS, &name).await.ok_or("no pod")?;
        if text(&pod, "/spec/nodeName") == node { Ok(pod) } else { Err("it is not bound") }
    })
    .await;
    let service = api_server(cp).await;
    // One after the other, as the kubelet: after a failure the next container does not start.
    let mut statuses: Vec<Value> = Vec::new();
    for container in pod["spec"]["initContainers"].as_array().expect("containers") {
        statuses.push(ended(guest, container, &service));
        if !is_passed(statuses.last().expect("one")) {
            break;
        }
    }
    let is_passed = statuses.iter().all(is_passed);
    let status = json!({"phase": "Pending", "podIP": address, "podIPs": [{"ip": address}], "initContainerStatuses": statuses});
    cp.patch_status(PODS, &name, &json!({"status": status})).await.expect("the pod is there");
    is_passed
}

fn is_passed(status: &Value) -> bool {
    status["state"]["terminated"]["exitCode"] == 0
}

/// Starts the server in the pod of a node, waits until it answers, and until kube-proxy.exe routes a NodePort to its endpoint; reports both as the
/// kubelets would.
pub async fn reached(cp: &ControlPlane, guest: &WineGuest, node: &str, endpoint: &str) {
    let name = format!("capw-windows/probe-{node}");
    let pod = cp.get(PODS, &name).await.expect("the pod");
    let mut program = program(guest, &pod["spec"]["containers"][0], "").spawn().expect("agnhost starts");
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    cp.patch_status(PODS, &name, &json!({"status": ready})).await.expect("the pod is there");
    let back = format!("capw-windows/probe-back-{node}");
    let pod = wait_for("a pod for a Linux node", LIMIT, || async { cp.get(PODS, &back).await.ok_or("there is none") }).await;
    let (address, port) = text(&pod, "/spec/containers/0/args/1").rsplit_once(':').expect("address and port");
    wait_for(&format!("{address}:{port} answers"), LIMIT, || async {
        inside(guest, "--net", &["bash", "-c", &format!("exec 3<> /dev/tcp/{address}/{port}")])
    })
    .await;
    let internal: u16 = port.parse().expect("a port");
    let (_, node_port) = text(&pod, "/spec/containers/1/args/1").rsplit_once(':').expect("address and port");
    let external: u16 = node_port.parse().expect("a port");
    wait_for(&format!("kube-proxy.exe leads port {node_port} of the node to {address}"), LIMIT, || async {
        let balancers = objects(guest, "loadbalancers");
        let is_its = |balancer: &&Value| balancer["PortMappings"][0]["ExternalPort"] == external;
        let balancer = balancers.iter().find(is_its).ok_or_else(|| format!("{balancers:?}"))?;
        let is_led =
            balancer["PortMappings"][0]["InternalPort"] == internal && text(balancer, "/HostComputeEndpoints/0").eq_ignore_ascii_case(endpoint);
        if is_led { Ok(()) } else { Err(balancer.to_string()) }
    })
    .await;
    let statuses = pod["spec"]["containers"].as_array().expect("containers").iter().map(|container| status(container, 0, ""));
    let status = json!({"phase": "Succeeded", "containerStatuses": Value::from_iter(statuses)});
    cp.patch_status(PODS, &back, &json!({"status": status})).await.expect("the pod is there");
    program.kill().and_then(|()| program.wait()).expect("agnhost ends");
}

/// The command of a container. The kubelet's variables for every pod are replaced by their values.
fn program(guest: &WineGuest, container: &Value, service: &str) -> Command {
    let words = container["args"].as_array().expect("arguments").iter().map(|word| word.as_str().expect("a text"));
    let words = words.map(|word| word.replace("$(KUBERNETES_SERVICE_HOST)", service).replace("$(KUBERNETES_SERVICE_PORT)", "443"));
    let argv: Vec<String> = std::iter::once(PROGRAM.to_owned()).chain(words).collect();
    guest.program(&argv.iter().map(String::as_str).collect::<Vec<_>>()).expect("the guest is on")
}

/// The status of a container that has ended.
fn ended(guest: &WineGuest, container: &Value, service: &str) -> Value {
    let output = program(guest, container, service).output().expect("agnhost runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    status(container, output.status.code().expect("agnhost ends by itself"), &said)
}

fn status(container: &Value, code: i32, said: &str) -> Value {
    json!({"name": container["name"], "image": container["image"], "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "message": said}}})
}
