//! Story *Windows network*: a cluster with Flannel in an overlay. CAPW brings the network to Windows nodes; two real Windows nodes
//! join, and on each the real flanneld.exe takes the node's part of the network, containerd learns of it last, so that the Node turns Ready only then,
//! and the real kube-proxy.exe programs its load balancers. In place of HNS they ask what `e2e/hns` is; it carries no packets, and what it was
//! asked for is what is judged.

mod calico;
mod node;

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::node::{Programs, address, balancer, guest_of, objects, policies, service};
use crate::linux_side;
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, HostProcesses, Kind, Options, step, text, wait_for, wine};

const LIMIT: Duration = Duration::from_secs(300);
const RECORDING: &str = "src/components/fixtures/flannel-vxlan-4096.yaml";
const NAMESPACE: &str = "capw-windows";
const NETWORK: &str = "flannel.4096";
/// The network namespace of a pod.
const POD_NETWORK: &str = "C0FFEE00-0000-4000-8000-000000000001";

#[test]
fn a_network_for_windows_nodes() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(lacks) => return wine::skip("windows_network", &lacks),
    };
    world::run(async {
        let options = Options { scheduler: true, ..Options::default() };
        let cp = ControlPlane::start(options.named("windows-network")).await;
        linux_side::apply(&cp, RECORDING).await;
        let capw = Capw::start(&cp, &[&format!("--wine-programs={}", wine::programs().display()), "--image=registry.example.com/capw:v0"]).await;
        let mut workers =
            Workers { replicas: 0, driver: json!({"simulated": {"guest": "Wine"}}), bootstrap: json!({}), ..Workers::new("network", &cp).await };
        workers.apply(&cp).await;
        let windows_cluster = workers.name(&workers.cluster);
        let auto = json!({"spec": {"components": {"mode": "Auto"}}});
        cp.patch(Kind::WINDOWS_CLUSTER, &windows_cluster, &auto).await.expect("the network can be brought");
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &windows_cluster, "ComponentsReady", "True", LIMIT).await;
        workers.replicas = 2;
        cp.apply_objects(&[workers.machine_deployment()]).await;
        let pods = Mutex::new(HostProcesses::new(NAMESPACE, &programs.node));
        let guest_of = |node: &Value| guest_of(&capw, node);
        // The part of the kubelets and of containerd that Wine has no containers for.
        let play = async || {
            let nodes = cp.list(Kind::NODE, None).await;
            let guest = |name: &str| {
                let node = nodes.iter().find(|node| text(node, "/metadata/name") == name)?;
                let guest = guest_of(node)?;
                programs.put_into(&guest, address(node)?);
                Some(guest)
            };
            pods.lock().await.run(&cp, guest).await;
        };
        wait_for("two real Windows nodes are Ready", LIMIT, || async {
            play().await;
            let logs = pods.lock().await.logs("");
            workers.settled(&cp, &cp).await.map_err(|why| format!("{why}; {logs}"))
        })
        .await;
        step("both Windows nodes are Ready");

        let nodes: Vec<Value> = cp.list(Kind::NODE, None).await.into_iter().filter(|node| text(node, "/metadata/name").starts_with("win-")).collect();
        let service = service(&cp).await;
        for node in &nodes {
            let guest = guest_of(node).expect("its guest");
            wait_for(&format!("{} is on the network", text(node, "/metadata/name")), LIMIT, || async {
                play().await;
                let node = cp.get(Kind::NODE, text(node, "/metadata/name")).await.ok_or("no Node")?;
                let logs = pods.lock().await.logs("");
                on_the_network(&node, &guest, &service).map_err(|why| format!("{why}; {logs}"))
            })
            .await;
        }
        cp.wait_object(Kind::WINDOWS_CLUSTER, &windows_cluster, "both parts are for two nodes", LIMIT, |object| {
            let parts = object["status"]["components"]["parts"].as_array()?;
            (parts.len() == 2 && parts.iter().all(|part| part["desired"] == json!(2))).then_some(())
        })
        .await;
        step("both have their lease, routes to all other nodes, and load balancers for the Services");

        let (node, guest) = (&nodes[0], guest_of(&nodes[0]).expect("its guest"));
        let endpoint = a_pod_is_attached(&guest, node);
        step(format!("win-overlay.exe has made the endpoint {endpoint} as the network's file says"));

        let (vip, starts) = (source_vip(&guest).expect("a source VIP"), pods.lock().await.starts("kube-proxy-"));
        guest.windows(&["taskkill", "/f", "/im", "kube-proxy.exe"]).expect("kube-proxy runs");
        wait_for("kube-proxy is started again", LIMIT, || async {
            play().await;
            let pods = pods.lock().await;
            let logs = pods.logs("kube-proxy-");
            if pods.starts("kube-proxy-") > starts && logs.contains("kube-proxy.exe: ended") && balancer(&guest, &service).is_some() {
                return Ok(());
            }
            Err(logs)
        })
        .await;
        assert_eq!(source_vip(&guest), Some(vip), "the source VIP stays the same");
        step("kube-proxy has ended, has said so, and is back with the same source VIP");
    });
}

/// Whether a node has its part of the network and everything that leads to others.
fn on_the_network(node: &Value, guest: &wine::WineGuest, service: &str) -> Result<(), String> {
    let annotation = |key: &str| node["metadata"]["annotations"][format!("flannel.alpha.coreos.com/{key}")].as_str().unwrap_or_default();
    let data: Value = serde_json::from_str(annotation("backend-data")).unwrap_or_default();
    let lease = (annotation("backend-type"), annotation("kube-subnet-manager"), Some(annotation("public-ip")), &data["VNI"]);
    if lease != ("vxlan", "true", address(node), &json!(4096)) || !data["VtepMAC"].is_string() {
        return Err(format!("its lease is {lease:?}"));
    }
    // No kubelet says of the pods here that they are ready.
    if !linux_side::is_unverified(node) {
        return Err("it has no taint".to_owned());
    }
    let networks = objects(guest, "networks");
    let [network] = networks.as_slice() else { return Err(format!("its networks are {networks:?}")) };
    let subnet = &network["Ipams"][0]["Subnets"][0]["IpAddressPrefix"];
    let (name, kind) = (&network["Name"], &network["Type"]);
    if (name, kind, subnet) != (&json!(NETWORK), &json!("Overlay"), &node["spec"]["podCIDR"]) {
        return Err(format!("its network is {network:#}"));
    }
    let routes: Vec<&str> = policies(network, "RemoteSubnetRoute").map(|route| text(route, "/DistributedRouterMacAddress")).collect();
    // To two Linux nodes and the other Windows node.
    if routes.len() != 3 || routes.contains(&"") {
        return Err(format!("its routes are {routes:?} in {network:#}"));
    }
    let vip = source_vip(guest).ok_or("it has no source VIP")?;
    let balancer = balancer(guest, service).ok_or_else(|| format!("no load balancer for {service}"))?;
    if balancer["SourceVIP"] != json!(vip) {
        return Err(format!("the source VIP is {vip}, that of the load balancer is another one: {balancer:#}"));
    }
    Ok(())
}

/// The address that host-local keeps for kube-proxy.
fn source_vip(guest: &wine::WineGuest) -> Option<String> {
    let store = guest.path(&format!(r"C:\var\lib\cni\networks\{NETWORK}"));
    let files = fs::read_dir(store).ok()?.flatten();
    let is_its = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text.starts_with("kube-proxy"));
    files.filter(|file| is_its(file.path())).find_map(|file| file.file_name().into_string().ok())
}

/// What Flannel's CNI plugin hands to the plugin that it delegates to: the same, with the network's name and the node's part of it.
/// <https://github.com/flannel-io/cni-plugin/blob/v1.9.1-flannel3/flannel_windows.go>
fn delegated(conflist: &Value, subnet: &str) -> Value {
    let mut request = conflist["plugins"][0]["delegate"].clone();
    request["name"] = conflist["name"].clone();
    request["cniVersion"] = conflist["cniVersion"].clone();
    request["ipam"] = json!({"type": "host-local", "ranges": [[{"subnet": subnet}]]});
    request
}

/// Attaches a pod as containerd would, and says with which address.
fn a_pod_is_attached(guest: &wine::WineGuest, node: &Value) -> String {
    let conflist = guest.read(r"C:\etc\cni\net.d\10-flannel.conflist").expect("containerd knows the network");
    let conflist: Value = serde_json::from_str(&conflist).expect("JSON");
    let subnet = text(node, "/spec/podCIDR");
    let file = r"C:\hns\request.json";
    guest.write(file, delegated(&conflist, subnet).to_string().as_bytes());
    // containerd makes it before it calls a plugin.
    guest.write(&format!(r"C:\hns\namespaces\{POD_NETWORK}.json"), json!({"ID": POD_NETWORK}).to_string().as_bytes());
    let mut plugin = guest.program(&[r"C:\opt\cni\bin\win-overlay.exe"]).expect("the guest is on");
    let pod = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;IgnoreUnknown=1";
    for (name, value) in [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "web-1"),
        ("CNI_NETNS", POD_NETWORK),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", r"C:\opt\cni\bin"),
        ("CNI_ARGS", pod),
    ] {
        plugin.env(name, value);
    }
    let output = plugin.stdin(File::open(guest.path(file)).expect("the request")).output().expect("the plugin runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{said}: {e}"));
    let address = text(&answer, "/ips/0/address").split('/').next().expect("an address").to_owned();
    let endpoints = objects(guest, "endpoints");
    let endpoint = endpoints.iter().find(|endpoint| endpoint["IpConfigurations"][0]["IpAddress"] == json!(address));
    let endpoint = endpoint.unwrap_or_else(|| panic!("no endpoint with {address}: {endpoints:#?}"));
    let nat: Vec<&Value> = policies(endpoint, "OutBoundNAT").collect();
    assert_eq!(nat.len(), 1, "{endpoint:#}");
    let exceptions = nat[0]["Exceptions"].as_array().expect("exceptions");
    for network in ["10.244.0.0/16", "10.96.0.0/16"] {
        assert!(exceptions.contains(&json!(network)), "{network}: {endpoint:#}");
    }
    let route = policies(endpoint, "SDNRoute").next().expect("a route to Services");
    assert_eq!((&route["DestinationPrefix"], &route["NeedEncap"]), (&json!("10.96.0.0/16"), &json!(true)), "{endpoint:#}");
    assert_ne!(source_vip(guest), Some(address.clone()), "a pod has the source VIP");
    address
}
