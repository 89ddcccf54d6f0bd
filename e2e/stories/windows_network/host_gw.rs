//! Story *host-gw*: the Windows network where Flannel uses no tunnel. On a real Windows node the real flanneld.exe creates a bridge, and PowerShell
//! routes packets over the other nodes; the real win-bridge.exe gives pods addresses, never the gateway's, and kube-proxy.exe needs no source VIP.

use std::process::Command;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::node::{Programs, address, leased, objects, policies};
use super::pod::{attach, reaches};
use super::services::{balancer, service};
use crate::world::wine::WineGuest;
use crate::world::{self, step, text};

const RECORDING: &str = "src/components/fixtures/flannel-host-gw.yaml";
const NETWORK: &str = "cbr0";
/// The routes to the Linux nodes of the recording.
const ROUTES: [(&str, &str); 2] = [("10.244.0.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.12")];

#[test]
fn a_network_without_a_tunnel() {
    let Some(programs) = Programs::find("windows_network::host_gw") else { return };
    world::run(async {
        let cluster = Cluster::start("host-gw", RECORDING, 1, programs, async |_, _| {}, adapter).await;
        let service = service(&cluster.cp).await;
        let node = cluster.windows_nodes().await.remove(0);
        let guest = cluster.guest_of(&node).expect("its guest");
        let is_there = async || on_the_network(&cluster.windows_nodes().await[0], &guest, &service);
        cluster.until("the node is on the network", is_there).await;
        step("it has its lease, a bridge, routes over the Linux nodes, and a load balancer without a source VIP");

        let endpoint = attach(&guest, &node);
        let (gateway, own) = (gateway(&node).expect("a gateway"), format!("{}/32", address(&node).expect("an address")));
        assert_ne!(endpoint["IpConfigurations"][0]["IpAddress"], json!(gateway), "a pod has the gateway's address");
        assert_eq!(endpoint["Routes"][0]["NextHop"], json!(gateway), "{endpoint:#}");
        let expected = (vec!["10.244.0.0/16", "10.96.0.0/16", own.as_str()], vec!["10.96.0.0/16", own.as_str()]);
        assert_eq!(reaches(&endpoint), expected, "{endpoint:#}");
        let itself = json!([endpoint["IpConfigurations"][0]["IpAddress"]]);
        assert!(policies(&endpoint, "OutBoundNAT").any(|policy| policy["Destinations"] == itself), "a pod reaches itself by Services: {endpoint:#}");
        step("win-bridge.exe has made an endpoint behind the gateway, as the network's file says");

        let bridge = objects(&guest, "networks");
        let starts = cluster.pods.lock().await.starts("flannel-");
        guest.windows(&["taskkill", "/f", "/im", "flanneld.exe"]).expect("flanneld runs");
        let is_back = async || {
            let pods = cluster.pods.lock().await;
            let is_new = pods.starts("flannel-") > starts && pods.logs("flannel-").matches("containerd has the network").count() == 2;
            if is_new { Ok(()) } else { Err("flanneld is not started again".to_owned()) }
        };
        cluster.until("flanneld is started again", is_back).await;
        cluster.until("the node is on the network", is_there).await;
        assert_eq!(objects(&guest, "networks"), bridge, "it is the same network");
        step("flanneld has ended, is back, and has found its network");
    });
}

/// The address of the node in its bridge.
fn gateway(node: &Value) -> Option<String> {
    let subnet = node["spec"]["podCIDR"].as_str()?;
    Some(format!("{}.2", subnet.rsplit_once('.')?.0))
}

/// Creates the adapter with the gateway's address. On Windows it exists once flanneld has attached the bridge's endpoint to the node.
fn adapter(guest: &WineGuest, node: &Value) -> Option<()> {
    let file = r"C:\hns\adapter";
    if guest.path(file).exists() {
        return Some(());
    }
    let name = "cbr0_ep";
    let commands = [
        format!("link add {name} type veth peer name {name}-far"),
        format!("address add {}/24 dev {name}", gateway(node)?),
        format!("link set {name} up"),
        format!("link set {name}-far up"),
    ];
    guest.write(file, (commands.join("\n") + "\n").as_bytes());
    let mut ip = Command::new("nsenter");
    ip.args(["--target", &guest.pid().expect("the guest is on").to_string(), "--net", "ip", "-batch"]).arg(guest.path(file));
    let output = ip.output().expect("ip runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Whether the node has its part of the network and all routes and load balancers to others.
fn on_the_network(node: &Value, guest: &WineGuest, service: &str) -> Result<(), String> {
    leased(node, guest, "host-gw", NETWORK, "L2Bridge")?;
    let gateway = gateway(node).ok_or("it has no subnet")?;
    let holder = guest.read(&format!(r"C:\var\lib\cni\networks\{NETWORK}\{gateway}"))?;
    if !holder.lines().map(str::trim).eq(["flannel", "gateway"]) {
        return Err(format!("{gateway} is reserved for {holder}"));
    }
    let text_of = |file: &str| guest.read(&format!(r"C:\hns\{file}"));
    let forwarding = text_of("powershell.log")?.lines().filter(|line| line.ends_with("-Forwarding Enabled")).count();
    let routes: Vec<Value> = serde_json::from_str(&text_of("host-routes.json")?).map_err(|error| error.to_string())?;
    let mut found: Vec<_> = routes.iter().map(|route| (text(route, "/DestinationPrefix"), text(route, "/NextHop"))).collect();
    found.sort_unstable();
    if found != ROUTES || forwarding < 2 {
        return Err(format!("its routes are {found:?}, and it forwards on {forwarding} adapters"));
    }
    let balancer = balancer(guest, service).ok_or_else(|| format!("no load balancer for {service}"))?;
    if balancer["SourceVIP"].is_null() { Ok(()) } else { Err(format!("it has a source VIP: {balancer:#}")) }
}
