//! `capw-node kube-proxy`.

use std::net::Ipv4Addr;
use std::thread::sleep;

use serde_json::{Value, json};

use crate::access;
use crate::child::Child;
use crate::node::{Failure, Node, PAUSE, write};
use crate::say;
use crate::source_vip;
use crate::subnet::{self, Subnet};

const PROGRAM: &str = "kube-proxy";

/// Runs kube-proxy until it ends, or until the node's part of the pod network is another one.
pub fn run(node: &Node) -> Result<(), Failure> {
    let program = node.program(PROGRAM)?;
    let settings = node.setting("config.json")?;
    let network = network(&settings)?.to_owned();
    node.wait_for_address()?;
    let subnet = wait_for_network(node);
    let source_vip = source_vip::reserve(node, &network, subnet)?;
    say(&format!("the source VIP in {network} is {source_vip}"));
    let kubeconfig = access::kubeconfig(node, PROGRAM)?;
    let config = node.written(PROGRAM, "config.json");
    write(&config, &format!("{:#}\n", configuration(settings, &node.name, &kubeconfig, source_vip)))?;
    let mut kube_proxy = Child::start(&program, &[format!("--config={}", config.display()), "--v=2".into()])?;
    // While flanneld starts again its file is gone for a moment.
    let other = || Ok(subnet::read(&node.subnet_file()).filter(|now| *now != subnet));
    let now = kube_proxy.until(other)?;
    Err(Failure(format!("pods of this node are in {now} now, no more in {subnet}: kube-proxy needs another source VIP")))
}

fn network(settings: &Value) -> Result<&str, Failure> {
    let name = settings.pointer("/winkernel/networkName").and_then(Value::as_str);
    name.ok_or_else(|| Failure("config.json: winkernel.networkName: it is missing".into()))
}

/// Waits for flanneld on this node, as long as it takes: its own container says what keeps it.
fn wait_for_network(node: &Node) -> Subnet {
    let file = node.subnet_file();
    if subnet::read(&file).is_none() {
        say(&format!("waits for flanneld, which writes {} once its network is there", file.display()));
    }
    loop {
        if let Some(subnet) = subnet::read(&file) {
            return subnet;
        }
        sleep(PAUSE);
    }
}

/// The settings with what is different on each node.
fn configuration(mut settings: Value, name: &str, kubeconfig: &str, source_vip: Ipv4Addr) -> Value {
    let own = json!({"hostnameOverride": name, "clientConnection": {"kubeconfig": kubeconfig}, "winkernel": {"sourceVip": source_vip}});
    json_patch::merge(&mut settings, &own);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_get_what_is_different_on_each_node() {
        let settings = json!({"kind": "KubeProxyConfiguration", "winkernel": {"networkName": "flannel.4096", "enableDSR": true}});
        assert_eq!(network(&settings), Ok("flannel.4096"));
        let expected = json!({"kind": "KubeProxyConfiguration", "hostnameOverride": "win-1", "clientConnection": {"kubeconfig": "file"},
            "winkernel": {"networkName": "flannel.4096", "enableDSR": true, "sourceVip": "10.244.1.2"}});
        assert_eq!(configuration(settings, "win-1", "file", Ipv4Addr::new(10, 244, 1, 2)), expected);
        assert!(network(&json!({})).unwrap_err().0.contains("networkName"));
    }
}
