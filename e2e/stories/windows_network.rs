//! Story *Windows network*: a cluster with Flannel, installed from its manifest. CAPW reports the settings that Windows nodes cannot share, changes
//! them, and brings the network to Windows nodes. Two real nodes join. On each, the real flanneld.exe sets up the node's part of the network.
//! containerd gets its configuration last, so that only then the Node becomes Ready. The real kube-proxy.exe programs its load balancers, and other
//! pods come once all connections work. `e2e/hns` replaces HNS: it carries no packets, so the story checks the requests to it.

mod calico;
mod cluster;
mod host_gw;
mod losses;
mod node;
mod pod;
mod probe;
mod services;
mod source_vip;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use self::cluster::Cluster;
use self::node::{Programs, annotation, leased, objects, policies};
use self::pod::{attach, reaches};
use self::probe::{Reachable, reached, tried};
use self::services::{are_served, balancer, service, services};
use crate::linux_side;
use crate::world::{self, ControlPlane, Kind, step, text, wait_for, wine};

const LIMIT: Duration = Duration::from_secs(300);
const NAMESPACE: &str = "capw-windows";
const NETWORK: &str = "flannel.4096";
/// The other nodes, seen from a Windows node: two Linux nodes and the other Windows node.
const OTHERS: usize = 3;

#[test]
fn a_network_for_windows_nodes() {
    let Some(programs) = Programs::find("windows_network") else { return };
    world::run(async {
        let cluster = Cluster::start("network", linux_side::RECORDING, 2, programs, linux_side_is_put_right, |_, _| Some(())).await;
        step("both Windows nodes are Ready");

        let (cp, nodes) = (&cluster.cp, cluster.windows_nodes().await);
        let service = service(cp).await;
        for node in &nodes {
            let (guest, name) = (cluster.guest_of(node).expect("its guest"), text(node, "/metadata/name"));
            let is_there = async || on_the_network(&cp.get(Kind::NODE, name).await.ok_or("no Node")?, &guest, &service, OTHERS);
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

        kube_proxy_ends(&cluster, &guest, &service).await;
        assert_eq!(source_vip(&guest), Some(vip), "the source VIP stays the same");
        step("kube-proxy has ended, has said so, and is back with the same source VIP");

        let served = hundred_services(&cluster, &nodes[1]).await;
        hns_loses(&cluster, &nodes[1], &served).await;
        it_is_tried_out(&cluster, &guest, text(node, "/metadata/name"), &endpoint).await;
        linux_side::cost::assert_within(cp, cluster.joins, Some(text(&nodes[1], "/metadata/name")));
        step("that took two pods and few requests");
        both_take_pods(&cluster, &nodes[1]).await;
        let logs = cluster.pods.lock().await.logs("").to_lowercase();
        let is_warning = |line: &&str| ["unknown field", "strict decoding", "deprecated"].iter().any(|words| line.contains(words));
        assert_eq!(logs.lines().find(is_warning), None, "flanneld.exe and kube-proxy.exe take each setting as it is meant");
    });
}

/// CAPW reports the settings that Windows nodes cannot share, and changes them once it is allowed to.
async fn linux_side_is_put_right(cp: &ControlPlane, name: &str) {
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {}}})).await.expect("components can be asked for");
    linux_side::says(cp, name, linux_side::COMPATIBLE, "VniBelow4096", &["VNI 1", "port 8472"]).await;
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"linuxSide": "Change"}}})).await.expect("changes can be asked for");
    linux_side::it_is_changed(cp, name).await;
    step("the Linux nodes use VNI and port of Windows");
}

/// kube-proxy ends, which is logged, and is restarted.
async fn kube_proxy_ends(cluster: &Cluster, guest: &wine::WineGuest, service: &str) {
    const ENDED: &str = "kube-proxy.exe: ended";
    let (starts, ends) = {
        let pods = cluster.pods.lock().await;
        (pods.starts("kube-proxy-"), pods.logs("kube-proxy-").matches(ENDED).count())
    };
    guest.windows(&["taskkill", "/f", "/im", "kube-proxy.exe"]).expect("kube-proxy runs");
    let is_back = async || {
        let pods = cluster.pods.lock().await;
        let has_said = pods.logs("kube-proxy-").matches(ENDED).count() > ends;
        let is_back = pods.starts("kube-proxy-") > starts && has_said && balancer(guest, service).is_some();
        if is_back { Ok(()) } else { Err("kube-proxy is not back".to_owned()) }
    };
    cluster.until("kube-proxy is started again", is_back).await;
}

/// Checks that a Service has a load balancer exactly if it has a ready endpoint.
async fn hundred_services(cluster: &Cluster, node: &Value) -> Vec<String> {
    let guest = cluster.guest_of(node).expect("its guest");
    let vip = source_vip(&guest).expect("a source VIP");
    let without = services(&cluster.cp, &["silent".to_owned()], false).await.remove(0);
    let names: Vec<String> = (0..100).map(|nth| format!("web-{nth}")).collect();
    let served = services(&cluster.cp, &names, true).await;
    cluster.until("a hundred Services have load balancers", async || are_served(&guest, &served, &vip)).await;
    assert_eq!(balancer(&guest, &without), None, "its endpoint is not ready");
    step("a hundred Services have load balancers, and one without a ready endpoint has none");
    served
}

/// HNS of a node loses its load balancers, and then all its objects.
async fn hns_loses(cluster: &Cluster, node: &Value, services: &[String]) {
    let (guest, name) = (cluster.guest_of(node).expect("its guest"), text(node, "/metadata/name"));
    let (network, vip) = (objects(&guest, "networks"), source_vip(&guest).expect("a source VIP"));
    let is_back = async |part: &str, said: &str| {
        if !cluster.pods.lock().await.logs(&format!("{part}-")).contains(said) {
            return Err(format!("{part} has not said: {said}"));
        }
        on_the_network(&cluster.cp.get(Kind::NODE, name).await.ok_or("no Node")?, &guest, &services[0], OTHERS)?;
        are_served(&guest, services, &vip)
    };
    cluster.until("its load balancers are seen", async || last_words(cluster, "kube-proxy-", SEEN).await).await;
    lose(&guest, "loadbalancers");
    cluster.until("the load balancers are back", async || is_back("kube-proxy", "HNS has 0 load balancers, and had ").await).await;
    assert_eq!(objects(&guest, "networks"), network, "it is the same network");
    let starts = cluster.pods.lock().await.logs("kube-proxy-").matches(" load balancers, and had ").count();
    assert_eq!(starts, 1, "that kube-proxy deletes what it finds when it starts is no loss");
    step("HNS has lost its load balancers, and kube-proxy has recreated them");

    for kind in ["loadbalancers", "endpoints", "networks"] {
        lose(&guest, kind);
    }
    let is_there = async || {
        is_back("flannel", &format!("HNS no longer has the network {NETWORK}: ")).await?;
        is_back("kube-proxy", &format!("HNS no longer has the network {NETWORK} with the ID {}", text(&network[0], "/ID"))).await
    };
    cluster.until("the network is back", is_there).await;
    assert_ne!(text(&objects(&guest, "networks")[0], "/ID"), text(&network[0], "/ID"), "it is another network");
    step("HNS has lost the network, flanneld has recreated it, and kube-proxy runs in it");
}

/// A message of capw-node.exe.
const SEEN: &str = "kube-proxy has made load balancers";

/// Checks that the last message of capw-node.exe in each pod whose name starts with `start` contains the given text.
async fn last_words(cluster: &Cluster, start: &str, words: &str) -> Result<(), String> {
    let lines = cluster.pods.lock().await.last_lines(start, "capw-node:");
    let other = lines.iter().find(|line| !line.contains(words));
    other.map_or(Ok(()), |line| Err(format!("the last words of a pod {start} are not `{words}`, but `{line}`")))
}

/// Removes all objects of a kind from HNS.
fn lose(guest: &wine::WineGuest, kind: &str) {
    for file in fs::read_dir(guest.path(&format!(r"C:\hns\{kind}"))).into_iter().flatten().flatten() {
        fs::remove_file(file.path()).expect("HNS has the object");
    }
}

/// The node's network is ready, and other pods come once a probe pod has reached everything that pods need.
async fn it_is_tried_out(cluster: &Cluster, guest: &wine::WineGuest, node: &str, endpoint: &Value) {
    let (cp, name, address) = (&cluster.cp, cluster.name(), text(endpoint, "/IpConfigurations/0/IpAddress"));
    let reachable = parts_are_ready(cluster, guest, node, address).await;
    assert!(!tried(cp, &cluster.programs, guest, node, address).await, "no name resolution runs");
    let words = [format!("{node}: a pod there does not reach a pod on a Linux node (10.244.0.5:53)"), "refused".to_owned()];
    linux_side::says(cp, &name, "ComponentsReady", "PartNotReady", &words.each_ref().map(String::as_str)).await;
    assert!(linux_side::is_unverified(&cp.get(Kind::NODE, node).await.expect("the Node")), "the taint stays");
    step("agnhost.exe says what it does not reach, and so does the condition");
    it_takes_pods(cluster, guest, node, endpoint, &reachable).await;
    linux_side::verified(cp, &name, "1/2").await;
    step("once it reaches everything and is reached, by a NodePort too, the taint goes, and then both pods");
}

/// Tries out the other node, where everything is reachable from the start.
async fn both_take_pods(cluster: &Cluster, node: &Value) {
    let (guest, name) = (cluster.guest_of(node).expect("its guest"), text(node, "/metadata/name"));
    let endpoint = attach(&guest, node);
    let reachable = parts_are_ready(cluster, &guest, name, text(&endpoint, "/IpConfigurations/0/IpAddress")).await;
    it_takes_pods(cluster, &guest, name, &endpoint, &reachable).await;
    linux_side::verified(&cluster.cp, &cluster.name(), "2/2").await;
    let table = cluster.cp.kubectl(&["get", "windowsclusters", "--all-namespaces"]).await;
    assert!(table.contains("flannel/vxlan") && table.contains("2/2"), "{table}");
    step("both nodes are verified, and so the table says");
}

/// Reports the parts as ready in place of the node's kubelet, which would keep reporting that the pods do not run.
async fn parts_are_ready(cluster: &Cluster, guest: &wine::WineGuest, node: &str, address: &str) -> Reachable {
    guest.stop_kubelet();
    let reachable = Reachable::new(&cluster.cp, guest, node, address).await;
    for part in ["flannel", "kube-proxy"] {
        linux_side::pod_is_ready(&cluster.cp, NAMESPACE, part, node).await;
    }
    reachable
}

/// Other pods come once a probe pod has reached everything and was reached.
async fn it_takes_pods(cluster: &Cluster, guest: &wine::WineGuest, node: &str, endpoint: &Value, reachable: &Reachable) {
    let (cp, address) = (&cluster.cp, text(endpoint, "/IpConfigurations/0/IpAddress"));
    let is_unverified = async || linux_side::is_unverified(&cp.get(Kind::NODE, node).await.expect("the Node"));
    reachable.start_name_resolution();
    wait_for("agnhost.exe has reached everything", LIMIT, || async {
        if tried(cp, &cluster.programs, guest, node, address).await { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert!(is_unverified().await, "nothing has connected to it");
    reached(cp, guest, node, text(endpoint, "/ID")).await;
    wait_for("other pods may come", LIMIT, || async { if is_unverified().await { Err("the taint is there") } else { Ok(()) } }).await;
    // No kubelet ends the first probe pod, and the second has ended.
    cp.wait_object(linux_side::PODS, &format!("{NAMESPACE}/probe-{node}"), "it is deleted", LIMIT, |pod| {
        (!pod["metadata"]["deletionTimestamp"].is_null()).then_some(())
    })
    .await;
    cp.wait_gone(linux_side::PODS, &format!("{NAMESPACE}/probe-back-{node}"), LIMIT).await;
}

/// Checks that a node has its part of the network, and routes to this number of other nodes.
fn on_the_network(node: &Value, guest: &wine::WineGuest, service: &str, others: usize) -> Result<(), String> {
    let network = leased(node, guest, "vxlan", NETWORK, "Overlay")?;
    let data: Value = serde_json::from_str(annotation(node, "backend-data")).unwrap_or_default();
    if data["VNI"] != json!(4096) || !data["VtepMAC"].is_string() {
        return Err(format!("its lease has {data}"));
    }
    let routes: Vec<&str> = policies(&network, "RemoteSubnetRoute").map(|route| text(route, "/DistributedRouterMacAddress")).collect();
    if routes.len() != others || routes.contains(&"") {
        return Err(format!("its routes are {routes:?} in {network:#}"));
    }
    let vip = source_vip(guest).ok_or("it has no source VIP")?;
    let balancer = balancer(guest, service).ok_or_else(|| format!("no load balancer for {service}"))?;
    if balancer["SourceVIP"] != json!(vip) {
        return Err(format!("the source VIP is {vip}, that of the load balancer is another one: {balancer:#}"));
    }
    Ok(())
}

/// Returns the address that host-local reserves for kube-proxy.
fn source_vip(guest: &wine::WineGuest) -> Option<String> {
    let store = guest.path(&format!(r"C:\var\lib\cni\networks\{NETWORK}"));
    let files = fs::read_dir(store).ok()?.flatten();
    let is_its = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text.starts_with("kube-proxy"));
    files.filter(|file| is_its(file.path())).find_map(|file| file.file_name().into_string().ok())
}
