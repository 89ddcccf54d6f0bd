//! `capw-node flannel`.

use serde_json::Value;

use crate::access;
use crate::child::Child;
use crate::hcn::{self, Kind};
use crate::host_local::{self, Purpose};
use crate::node::{Failure, Node, PAUSE, remove, write};
use crate::say;
use crate::subnet;

const PROGRAM: &str = "flanneld";
/// The file that announces the network to containerd, which then reports the node's network as ready.
const CONFLIST: &str = "10-flannel.conflist";
/// The placeholder of the node's address in the settings.
const NODE_ADDRESS: &str = "$(NODE_ADDRESS)";

/// Runs flanneld until it ends, or until HNS has lost the network, because flanneld creates the network only at its start. `ask` returns all objects
/// of a kind and name from HNS.
pub fn run(node: &Node, ask: impl Fn(Kind, &str) -> Result<Vec<Value>, Failure>) -> Result<(), Failure> {
    let program = node.program(PROGRAM)?;
    let conflist = node.setting("cni.conflist")?;
    let text = |pointer| {
        let text = conflist.pointer(pointer).and_then(Value::as_str);
        text.ok_or_else(|| Failure(format!("cni.conflist: {pointer}: it is missing")))
    };
    let (network, delegate) = (text("/name")?, text("/plugins/0/delegate/type")?);
    for plugin in ["flannel", "host-local", delegate] {
        node.plugin(plugin)?;
    }
    node.wait_for_address()?;
    let kubeconfig = access::kubeconfig(node, "flannel")?;
    // A file of an earlier run, or of a network from before the last Windows start, is outdated.
    remove(&node.subnet_file())?;
    let mut flanneld = Child::start(&program, &arguments(node, &kubeconfig))?;
    let subnet = flanneld.until(PAUSE, || Ok(subnet::read(&node.subnet_file())))?;
    if delegate == "win-bridge" {
        let gateway = host_local::reserve(node, network, subnet, Purpose::Gateway)?;
        say(&format!("{gateway} is the way out to pods of this node"));
    }
    write(&node.networks().join(CONFLIST), &format!("{conflist:#}\n").replace(NODE_ADDRESS, &node.address.to_string()))?;
    say(&format!("containerd has the network; pods of this node are in {subnet}"));
    let why = flanneld.until(hcn::BETWEEN_LOOKS, || {
        let is_lost = ask(Kind::Network, network)?.is_empty();
        Ok(is_lost.then(|| format!("HNS no longer has the network {network}: flanneld has to start again, and recreates it")))
    })?;
    Err(Failure(why))
}

/// flanneld reads its own Node. The arguments name the adapter, because flanneld would otherwise query PowerShell for the default route. They omit
/// `--ip-masq`, with which the CNI plugins would translate addresses a second time, for all except the node's own pods.
fn arguments(node: &Node, kubeconfig: &str) -> Vec<String> {
    vec![
        "--kube-subnet-mgr".into(),
        format!("--kubeconfig-file={kubeconfig}"),
        format!("--net-config-path={}", node.settings.join("net-conf.json").display()),
        format!("--subnet-file={}", node.subnet_file().display()),
        format!("--iface={}", node.address),
        "--iptables-forward-rules=false".into(),
    ]
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::node::read;
    use crate::node::tests::{node, program};

    /// A drive with a flanneld that writes its subnet, if it gets so far, and a host-local that returns one address.
    fn drive(delegate: &str, makes_network: bool) -> (tempfile::TempDir, Node) {
        let drive = tempfile::tempdir().unwrap();
        let node = node(drive.path());
        for (plugin, script) in [("flannel", "exit 0"), (delegate, "exit 0"), ("host-local", r#"echo '{"ips": [{"address": "10.244.1.2/24"}]}'"#)] {
            program(&node.plugins().join(format!("{plugin}.exe")), script);
        }
        write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.9.1/24\n").unwrap();
        let settings = r#"{"name": "n", "plugins": [{"delegate": {"type": "DELEGATE", "policies": ["$(NODE_ADDRESS)/32"]}}]}"#;
        write(&node.settings.join("cni.conflist"), &settings.replace("DELEGATE", delegate)).unwrap();
        let network = format!("echo FLANNEL_SUBNET=10.244.1.1/24 > {}; sleep 1 > /dev/null 2>&1; exit 2", node.subnet_file().display());
        program(&drive.path().join("k").join("flanneld.exe"), if makes_network { &network } else { "exit 1" });
        (drive, node)
    }

    /// Simulates an HNS that has every network.
    fn has_it(_: Kind, name: &str) -> Result<Vec<Value>, Failure> {
        Ok(vec![serde_json::json!({"ID": "A", "Name": name})])
    }

    #[test]
    fn a_network_that_hns_has_lost_ends_flanneld() {
        let (_drive, node) = drive("win-overlay", true);
        let Failure(why) = run(&node, |_, _| Ok(Vec::new())).unwrap_err();
        assert_eq!(why, "HNS no longer has the network n: flanneld has to start again, and recreates it");
    }

    /// containerd learns of the network only after flanneld created it; files of an earlier run do not count.
    #[test]
    fn the_network_is_told_last_with_the_nodes_address() {
        for delegate in ["win-overlay", "win-bridge"] {
            for makes_network in [false, true] {
                let (_drive, node) = drive(delegate, makes_network);
                let Failure(why) = run(&node, has_it).unwrap_err();
                assert!(why.starts_with("flanneld.exe: ended (exit status: "), "{why}");
                let told = read(&node.networks().join(CONFLIST)).ok();
                assert_eq!(told.map(|text| text.contains(r#""127.0.0.1/32""#)), makes_network.then_some(true), "{delegate}");
            }
        }
    }

    /// Otherwise the first pod would get the gateway's address.
    #[test]
    fn no_network_is_told_whose_gateway_pods_may_get() {
        for (delegate, told) in [("win-overlay", true), ("win-bridge", false)] {
            let (_drive, node) = drive(delegate, true);
            program(&node.plugins().join("host-local.exe"), "echo 'not available'; exit 1");
            let Failure(why) = run(&node, has_it).unwrap_err();
            assert_eq!(node.networks().join(CONFLIST).exists(), told, "{why}");
            assert_eq!(why.contains("not available"), !told, "{why}");
        }
    }

    #[test]
    fn a_missing_plugin_is_named() {
        let (_drive, node) = drive("win-bridge", true);
        remove(&node.plugins().join("win-bridge.exe")).unwrap();
        let Failure(why) = run(&node, has_it).unwrap_err();
        assert!(why.contains("win-bridge.exe is missing"), "{why}");
    }
}
