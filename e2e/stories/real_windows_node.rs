//! Story *real Windows node*: the Windows programs of Kubernetes and containerd, run by Wine, carry out the rendered plan and join. The real kubelet
//! sets the values that the API server then shows, and the story compares them with the spec.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capw::api::name::VmUuid;
use serde_json::{Value, json};

use crate::program_logs::faultless;
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, SimulatedVm, condition, simulated_vms, step, text, wait_for, wine};

/// The limit for one wait: Wine's first start alone takes a while on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// The reserved resources on each node.
const SYSTEM: (u64, u64) = (300, 1024);
const KUBE: (u64, u64) = (200, 512);
const EVICTION_MIB: u64 = 500;
const PODS: u64 = 60;

/// The configuration of a network, without which containerd reports the node's network as not ready.
pub const CNI: (&str, &str) = (
    r"C:\etc\cni\net.d\10-flannel.conf",
    r#"{"cniVersion": "1.0.0", "name": "flannel.4096", "type": "flannel", "delegate": {"type": "sdnoverlay"}}"#,
);

/// A secret that a user puts into a file: it stays, and shows that the search works.
const LICENCE: (&str, &str) = (r"C:\k\licence.key", "canary-5e9c1f0d7b2a4c3e");
/// The password in the proxy's URL. Services read it where Windows keeps their environment variables.
const PROXY: &str = "canary-proxy-9c1f0d7b";

#[test]
fn real_windows_node() {
    if let Some(lacks) = wine::lacks(&[&wine::kubernetes()]) {
        return wine::skip("real_windows_node", &lacks);
    }
    world::run(async {
        let from = Instant::now();
        let cp = ControlPlane::start(Options::default().named("real-windows")).await;
        let programs = format!("--wine-programs={}", wine::programs().display());
        let capw = Capw::start(&cp, &[&programs]).await;
        let workers = Workers {
            replicas: 2,
            driver: json!({"simulated": {"guest": "Wine"}}),
            // The file that the network's DaemonSet would write on a node that runs containers.
            bootstrap: json!({"files": [{"path": CNI.0, "content": CNI.1}, {"path": LICENCE.0, "contentFrom": from_secret("licence")}],
                "network": {"proxy": {"urlFrom": from_secret("proxy")}}, "kubeProxy": {"networkName": "cbr0"}, "kubelet": {
                "maxPods": PODS,
                "nodeLabels": {"example.com/pool": "real"},
                "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
                "priorityClass": "HIGH_PRIORITY_CLASS",
                "systemReserved": {"cpu": format!("{}m", SYSTEM.0), "memory": format!("{}Mi", SYSTEM.1)},
                "kubeReserved": {"cpu": format!("{}m", KUBE.0), "memory": format!("{}Mi", KUBE.1)},
            }}),
            ..Workers::new("real", &cp).await
        };
        let before = cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await.len();
        workers.apply(&cp).await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "canary", "namespace": workers.namespace},
            "stringData": {"licence": LICENCE.1, "proxy": format!("http://capw:{PROXY}@192.0.2.1:3128")}});
        cp.apply(&secret.to_string()).await;
        let tokens = tokens(&cp, &workers).await;
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        step(format!("2 real Windows nodes are Ready after {:.0} s", from.elapsed().as_secs_f32()));
        let vms = simulated_vms(capw.state());
        for machine in &machines {
            let (vm, node) = (vm_of(&cp, &vms, machine).await, finished(&cp, machine).await);
            look(machine, &vm, &node);
            inside(&guest(&capw, &vm), &node);
            nothing_secret_is_left(&guest(&capw, &vm), &tokens);
        }
        let requests = requests(&cp).await;
        assert_eq!(requests.len(), before + 2, "one certificate for each node: {requests:?}");
        step("a restart of the kubelet keeps its certificate");
        restart_kubelet(&cp, &guest(&capw, &vms[0]), &vms[0]).await;
        assert_eq!(self::requests(&cp).await, requests);

        let pids: Vec<u32> = vms.iter().filter_map(|vm| guest(&capw, vm).pid()).collect();
        assert_eq!(pids.len(), 2, "both machines are on");
        cp.delete(Kind::CLUSTER, &workers.name(&workers.cluster)).await;
        cp.delete(Kind::SECRET, &workers.name("canary")).await;
        workers.wait_gone(&cp, LIMIT).await;
        // The certificate request belongs to the kubelet and is deleted an hour later.
        wait_for("no Node, VM, process or cable is left", LIMIT, || async {
            let mut left: Vec<String> = cp.list(Kind::NODE, None).await.iter().map(|node| text(node, "/metadata/name").to_owned()).collect();
            left.extend(workers::tokens(&cp).await);
            left.extend(simulated_vms(capw.state()).into_iter().map(|vm| vm.directory));
            left.extend(pids.iter().map(|pid| format!("/proc/{pid}")).filter(|path| std::path::Path::new(path).exists()));
            left.extend(vms.iter().map(cable).filter(|path| path.exists()).map(|path| path.display().to_string()));
            left.extend(processes_of(capw.state()));
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
        step(format!("nothing is left, {:.0} s after the start", from.elapsed().as_secs_f32()));
    });
}

/// Returns the Node of a Machine when all writers have finished. A Node is Ready earlier: the plan's last items follow, and other controllers remove
/// the taints that they set.
async fn finished(cp: &ControlPlane, machine: &Value) -> Value {
    let own = format!("{}/{}", text(machine, "/metadata/namespace"), text(machine, "/spec/infrastructureRef/name"));
    let name = text(machine, "/status/nodeRef/name");
    wait_for(&format!("the plan of {own} is at its end, and its Node as it stays"), LIMIT, || async {
        let own = cp.get(Kind::WINDOWS_MACHINE, &own).await.ok_or("no WindowsMachine")?;
        let node = cp.get(Kind::NODE, name).await.ok_or("no Node")?;
        let theirs = |taint: &&Value| ["node.kubernetes.io/", "node.cluster.x-k8s.io/"].iter().any(|start| text(taint, "/key").starts_with(start));
        let taints: Vec<&Value> = node["spec"]["taints"].as_array().into_iter().flatten().filter(theirs).collect();
        let handlers = node["status"]["runtimeHandlers"].as_array().is_some_and(|handlers| !handlers.is_empty());
        if text(&own, "/status/bootstrap/state") == "finished" && taints.is_empty() && handlers {
            return Ok(node);
        }
        Err(format!("{}, taints {taints:?}, handlers reported: {handlers}", own["status"]["bootstrap"]))
    })
    .await
}

/// Returns the VM of a Machine.
async fn vm_of(cp: &ControlPlane, vms: &[SimulatedVm], machine: &Value) -> SimulatedVm {
    let name = format!("{}/{}", text(machine, "/metadata/namespace"), text(machine, "/spec/infrastructureRef/name"));
    let own = cp.get(Kind::WINDOWS_MACHINE, &name).await.expect("its WindowsMachine");
    let id = VmUuid::of(text(&own, "/metadata/uid")).to_string();
    vms.iter().find(|vm| vm.directory == id).expect("its VM").clone()
}

fn guest(capw: &Capw, vm: &SimulatedVm) -> wine::WineGuest {
    wine::WineGuest::of(capw.state(), &vm.datacenter, &vm.directory)
}

fn from_secret(key: &str) -> Value {
    json!({"secretKeyRef": {"name": "canary", "key": key}})
}

/// Returns the secret halves of the tokens of all machines from their Secrets. The guests have them too, because they join.
pub async fn tokens(cp: &ControlPlane, workers: &Workers) -> Vec<String> {
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    wait_for("each machine has its token", LIMIT, || async {
        let secrets = cp.list(Kind::SECRET, Some(&workers.namespace)).await;
        let tokens = secrets.iter().filter_map(|secret| STANDARD.decode(secret["data"]["token"].as_str()?).ok());
        seen.borrow_mut().extend(tokens.filter_map(|token| Some(String::from_utf8(token).ok()?.split_once('.')?.1.to_owned())));
        let seen: Vec<String> = seen.borrow().iter().cloned().collect();
        if seen.len() == workers.replicas { Ok(seen) } else { Err(format!("{} tokens were seen", seen.len())) }
    })
    .await
}

/// No token is left on the machine, and a secret from the spec is only where the spec put it.
fn nothing_secret_is_left(guest: &wine::WineGuest, tokens: &[String]) {
    // The search finds a token that exists.
    let control = guest.path(r"C:\k\control.txt");
    for token in tokens {
        std::fs::write(&control, format!("token: {token}")).unwrap_or_else(|e| panic!("{}: {e}", control.display()));
        assert_eq!(guest.files_with(token), ["wine/drive_c/k/control.txt"], "the token is still there");
    }
    std::fs::remove_file(&control).unwrap_or_else(|e| panic!("{}: {e}", control.display()));
    assert_eq!(guest.files_with(LICENCE.1), ["wine/drive_c/k/licence.key"]);
    // Wine writes its registry periodically.
    let found = guest.files_with(PROXY);
    assert!(found.iter().all(|file| file == "wine/system.reg"), "{found:?}");
    for service in ["containerd", "kubelet"] {
        let key = format!(r"HKLM\SYSTEM\CurrentControlSet\Services\{service}");
        let shown = guest.windows(&["reg", "query", &key, "/v", "Environment"]).expect("the service has variables").join("\n");
        assert!(shown.contains(PROXY), "{service} does not know the proxy:\n{shown}");
    }
}

/// Checks the values that the API server shows.
fn look(machine: &Value, vm: &SimulatedVm, node: &Value) {
    let labels = &node["metadata"]["labels"];
    for (name, value) in [
        ("kubernetes.io/os", "windows"),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/windows-build", "10.0.20348"),
        ("example.com/pool", "real"),
        ("kubernetes.io/hostname", text(node, "/metadata/name")),
    ] {
        assert_eq!(labels[name], value, "{name} of {labels}");
    }
    assert_eq!(node["spec"]["taints"], json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]), "Cluster API took its own away");
    assert_eq!(text(node, "/spec/providerID"), text(machine, "/spec/providerID"));
    assert!(text(node, "/spec/providerID").ends_with(&vm.directory), "{node}");

    let info = &node["status"]["nodeInfo"];
    assert_eq!(text(info, "/systemUUID").to_lowercase(), vm.directory);
    assert_eq!(text(info, "/kubeletVersion"), format!("v{}", wine::kubernetes()));
    assert_eq!(text(info, "/osImage"), "Windows Server 2022 Datacenter");
    assert!(text(info, "/kernelVersion").starts_with("10.0.20348."), "{info}");
    assert!(text(info, "/containerRuntimeVersion").starts_with("containerd://"), "{info}");

    let amount = |kind: &str, name: &str| node["status"][kind][name].as_str().unwrap_or_else(|| panic!("{kind}.{name} of {node}")).to_owned();
    let bytes = |kind: &str| amount(kind, "memory").trim_end_matches("Ki").parse::<u64>().expect("Ki") * 1024;
    assert_eq!(bytes("capacity") - bytes("allocatable"), (SYSTEM.1 + KUBE.1 + EVICTION_MIB) * 1024 * 1024);
    assert_eq!(milli(&amount("capacity", "cpu")) - milli(&amount("allocatable", "cpu")), SYSTEM.0 + KUBE.0);

    assert_eq!(amount("capacity", "pods"), PODS.to_string());
    assert_eq!(amount("allocatable", "pods"), PODS.to_string());

    // The handlers that containerd reported to the kubelet, from which pods choose with a RuntimeClass.
    let handlers = node["status"]["runtimeHandlers"].as_array().into_iter().flatten();
    let handlers: Vec<&str> = handlers.map(|handler| text(handler, "/name")).collect();
    for handler in ["runhcs-wcow-process", "runhcs-wcow-hypervisor"] {
        assert!(handlers.contains(&handler), "{handler} is not among {handlers:?}");
    }

    let [_, x, y, z] = *uuid::Uuid::parse_str(&vm.directory).expect("a UUID").as_bytes().last_chunk::<4>().expect("16 bytes");
    let internal = node["status"]["addresses"].as_array().into_iter().flatten().find(|address| address["type"] == "InternalIP");
    assert_eq!(internal.map(|address| text(address, "/address").to_owned()), Some(format!("10.{}.{y}.{}", 160 + x % 80, 1 + z % 254)));
    assert_eq!(condition(node, "Ready").expect("Ready")["status"], "True");
}

/// Converts a CPU quantity to thousandths.
fn milli(text: &str) -> u64 {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().expect("a number"),
        None => text.parse::<u64>().expect("a number") * 1000,
    }
}

/// Checks the state inside the guest.
fn inside(guest: &wine::WineGuest, node: &Value) {
    let log = guest.read(r"C:\var\log\kubelet\kubelet.log").expect("the kubelet's log");
    let priority = r#""Creating a Windows job object and adding kubelet process to it" windowsPriorityClass="HIGH_PRIORITY_CLASS""#;
    assert!(log.contains(priority), "the kubelet says nothing of its priority class:\n{log}");
    faultless(&log);
    let shown = guest.service(&["show", "kubelet"]).expect("the service manager knows the kubelet");
    assert_eq!(shown[..3], ["running", "auto", "900 5000,10000,60000"], "{shown:?}");
    assert!(shown[3].starts_with(r"C:\k\kube-log-runner.exe ") && shown[3].contains(text(node, "/metadata/name")), "{shown:?}");
    assert_eq!(shown[4..], ["containerd"]);
    // Wine has no network for kube-proxy, so kube-proxy ends and is restarted. Until then, its log only concerns its configuration.
    let shown = guest.service(&["show", "kube-proxy"]).expect("the service manager knows kube-proxy");
    assert_eq!(shown[1..3], ["auto", "900 5000,10000,60000"], "{shown:?}");
    let log = guest.read(r"C:\var\log\kube-proxy\kube-proxy.log").expect("kube-proxy's log");
    assert!(log.contains(r#"--windows-service="true""#) && log.contains("kube-proxy"), "{log}");
    faultless(&log);
    for secret in [r"C:\ProgramData\capw\secret", r"C:\etc\kubernetes\bootstrap-kubelet.conf"] {
        assert!(!guest.path(secret).exists(), "{secret} is still there");
    }
    faultless(&guest.said("join").expect("what kubeadm printed"));
    let kubeconfig = guest.read(r"C:\etc\kubernetes\kubelet.conf").expect("kubelet.conf");
    assert!(kubeconfig.contains(r"C:\var\lib\kubelet-pki\kubelet-client-current.pem"), "{kubeconfig}");
}

/// Returns the names of all certificate requests.
async fn requests(cp: &ControlPlane) -> Vec<String> {
    let mut names: Vec<String> =
        cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await.iter().map(|request| text(request, "/metadata/name").to_owned()).collect();
    names.sort();
    names
}

/// Restarts the service, and waits until the new kubelet has reported to the API server.
async fn restart_kubelet(cp: &ControlPlane, guest: &wine::WineGuest, vm: &SimulatedVm) {
    let started = |log: &str| log.matches("\"Kubelet version\"").count();
    let path = r"C:\var\log\kubelet\kubelet.log";
    let before = started(&guest.read(path).expect("the kubelet's log"));
    guest.stop_kubelet();
    guest.service(&["start", "kubelet"]).expect("it starts");
    wait_for(&format!("the kubelet of {} has started again and uses its certificate", vm.name), LIMIT, || async {
        let log = guest.read(path)?;
        let registered = log.rfind("\"Successfully registered node\"") > log.rfind("\"Kubelet version\"")
            || log.rfind("\"Node was previously registered\"") > log.rfind("\"Kubelet version\"");
        if started(&log) > before && registered { Ok(()) } else { Err(log.lines().last().unwrap_or_default().to_owned()) }
    })
    .await;
    assert!(cp.list(Kind::NODE, None).await.iter().all(workers::is_ready));
}

/// Returns the host's end of a machine's cable.
fn cable(vm: &SimulatedVm) -> std::path::PathBuf {
    std::path::Path::new("/sys/class/net").join(format!("capw{}", &vm.directory[..8]))
}

/// Returns the processes whose environment has a Wine prefix below a directory.
pub fn processes_of(state: &std::path::Path) -> Vec<String> {
    let wanted = format!("WINEPREFIX={}", state.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let of = |process: &std::path::Path| std::fs::read(process.join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&wanted));
    processes.map(|entry| entry.path()).filter(|process| of(process)).map(|process| process.display().to_string()).collect()
}
