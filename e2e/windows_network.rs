//! Story *Windows network*: a cluster with Flannel in an overlay. CAPW brings the network to Windows nodes; two real Windows nodes
//! join, and on each the real flanneld.exe takes the node's part of the network, containerd learns of it last, so that the Node turns Ready only then,
//! and the real kube-proxy.exe programs its load balancers. In place of HNS they ask what `e2e/hns` is; it carries no packets, and what it was
//! asked for is what is judged.

mod calico;
mod cluster;
mod host_gw;
mod node;
mod pod;
mod probe;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use self::cluster::Cluster;
use self::node::{Programs, annotation, balancer, leased, policies, service};
use self::pod::{attach, reaches};
use self::probe::{Reachable, reached, tried};
use crate::linux_side;
use crate::world::{self, Kind, step, text, wait_for, wine};

const LIMIT: Duration = Duration::from_secs(300);
const RECORDING: &str = "src/components/fixtures/flannel-vxlan-4096.yaml";
const NAMESPACE: &str = "capw-windows";
const NETWORK: &str = "flannel.4096";

#[test]
fn a_network_for_windows_nodes() {
    let Some(programs) = Programs::find("windows_network") else { return };
    world::run(async {
        let cluster = Cluster::start("network", RECORDING, 2, programs, |_, _| Some(())).await;
        step("both Windows nodes are Ready");

        let (cp, nodes) = (&cluster.cp, cluster.windows_nodes().await);
        let service = service(cp).await;
        for node in &nodes {
            let (guest, name) = (cluster.guest_of(node).expect("its guest"), text(node, "/metadata/name"));
            let is_there = async || on_the_network(&cp.get(Kind::NODE, name).await.ok_or("no Node")?, &guest, &service);
            cluster.until(&format!("{name} is on the network"), is_there).await;
        }
        cp.wait_object(Kind::WINDOWS_CLUSTER, &cluster.name(), "both parts are for two nodes", LIMIT, |object| {
            let parts = object["status"]["components"]["parts"].as_array()?;
            (parts.len() == 2 && parts.iter().all(|part| part["desired"] == json!(2))).then_some(())
        })
        .await;
        step("both have their lease, routes to all other nodes, and load balancers for the Services");

        let (node, guest) = (&nodes[0], cluster.guest_of(&nodes[0]).expect("its guest"));
        let (endpoint, vip) = (attach(&guest, node), source_vip(&guest).expect("a source VIP"));
        assert_ne!(endpoint["IpConfigurations"][0]["IpAddress"], json!(vip), "a pod has the source VIP");
        assert_eq!(reaches(&endpoint), (vec!["10.244.0.0/16", "10.96.0.0/16"], vec!["10.96.0.0/16"]), "{endpoint:#}");
        step("win-overlay.exe has made an endpoint as the network's file says");

        let starts = cluster.pods.lock().await.starts("kube-proxy-");
        guest.windows(&["taskkill", "/f", "/im", "kube-proxy.exe"]).expect("kube-proxy runs");
        let is_back = async || {
            let pods = cluster.pods.lock().await;
            let has_said = pods.logs("kube-proxy-").contains("kube-proxy.exe: ended");
            let is_back = pods.starts("kube-proxy-") > starts && has_said && balancer(&guest, &service).is_some();
            if is_back { Ok(()) } else { Err("kube-proxy is not back".to_owned()) }
        };
        cluster.until("kube-proxy is started again", is_back).await;
        assert_eq!(source_vip(&guest), Some(vip), "the source VIP stays the same");
        step("kube-proxy has ended, has said so, and is back with the same source VIP");

        it_is_tried_out(&cluster, &guest, text(node, "/metadata/name"), &endpoint).await;
    });
}

/// Its network is ready, and other pods come once one has reached what they need.
async fn it_is_tried_out(cluster: &Cluster, guest: &wine::WineGuest, node: &str, endpoint: &Value) {
    let (cp, name, address) = (&cluster.cp, cluster.name(), text(endpoint, "/IpConfigurations/0/IpAddress"));
    // It would say again and again that the pods do not run.
    guest.service(&["stop", "kubelet"]).expect("the kubelet runs");
    let reachable = Reachable::new(cp, guest, address).await;
    for part in ["flannel", "kube-proxy"] {
        linux_side::pod_is_ready(cp, NAMESPACE, part, node).await;
    }
    assert!(!tried(cp, &cluster.programs, guest, node, address).await, "no name resolution runs");
    let words = [format!("{node}: a pod there does not reach a pod on a Linux node (10.244.0.5:53)"), "refused".to_owned()];
    linux_side::says(cp, &name, "ComponentsReady", "PartNotReady", &words.each_ref().map(String::as_str)).await;
    let is_unverified = async || linux_side::is_unverified(&cp.get(Kind::NODE, node).await.expect("the Node"));
    assert!(is_unverified().await, "the taint stays");
    step("agnhost.exe says what it does not reach, and so does the condition");

    reachable.start_name_resolution();
    wait_for("agnhost.exe has reached everything", LIMIT, || async {
        if tried(cp, &cluster.programs, guest, node, address).await { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert!(is_unverified().await, "nothing has connected to it");
    reached(cp, guest, node, text(endpoint, "/ID")).await;
    wait_for("other pods may come", LIMIT, || async { if is_unverified().await { Err("the taint is there") } else { Ok(()) } }).await;
    // No kubelet ends the one, and the other has ended.
    cp.wait_object(linux_side::PODS, &format!("{NAMESPACE}/probe-{node}"), "it is deleted", LIMIT, |pod| {
        (!pod["metadata"]["deletionTimestamp"].is_null()).then_some(())
    })
    .await;
    cp.wait_gone(linux_side::PODS, &format!("{NAMESPACE}/probe-back-{node}"), LIMIT).await;
    cp.wait_object(Kind::WINDOWS_CLUSTER, &name, "one node of two is verified", LIMIT, |object| {
        (object["status"]["components"]["verified"] == "1/2").then_some(())
    })
    .await;
    step("once it reaches everything and is reached, by a NodePort too, the taint goes, and then both pods");
}

/// Whether a node has its part of the network and everything that leads to others.
fn on_the_network(node: &Value, guest: &wine::WineGuest, service: &str) -> Result<(), String> {
    let network = leased(node, guest, "vxlan", NETWORK, "Overlay")?;
    let data: Value = serde_json::from_str(annotation(node, "backend-data")).unwrap_or_default();
    if data["VNI"] != json!(4096) || !data["VtepMAC"].is_string() {
        return Err(format!("its lease has {data}"));
    }
    let routes: Vec<&str> = policies(&network, "RemoteSubnetRoute").map(|route| text(route, "/DistributedRouterMacAddress")).collect();
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
