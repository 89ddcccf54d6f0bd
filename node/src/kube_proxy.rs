//! `capw-node kube-proxy`.

use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::access;
use crate::calico::Calico;
use crate::child::Child;
use crate::hcn::{self, Kind};
use crate::host_local::{self, Purpose};
use crate::node::{Failure, Node, PAUSE, write};
use crate::say;
use crate::subnet::{self, Subnet};

const PROGRAM: &str = "kube-proxy";

/// Whose network the node is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// That of flanneld.
    #[default]
    Flannel,
    /// That of calico-node.
    Calico,
}

/// The network of a node, which another program makes.
pub trait NodeNetwork {
    /// What that program has made, as far as kube-proxy depends on it.
    type Made;

    /// Between two looks at it while kube-proxy runs.
    const BETWEEN_LOOKS: Duration;

    /// Who makes it, and what, for the log: `flanneld, which ...`.
    fn awaited(&self) -> String;

    /// `None` until all of it is there.
    fn made(&self) -> Result<Option<Self::Made>, Failure>;

    /// The address that kube-proxy sends from, if the network is an overlay.
    fn source_vip(&self, made: &Self::Made) -> Result<Option<Ipv4Addr>, Failure>;

    /// Why kube-proxy cannot go on, once it is no more what it was.
    fn changed(&self, before: &Self::Made) -> Result<Option<String>, Failure>;
}

/// Runs kube-proxy until it ends, or until the network of the node is another one.
pub fn run(node: &Node, network: Network) -> Result<(), Failure> {
    let settings = node.setting("config.json")?;
    let name = network_name(&settings)?.to_owned();
    match network {
        Network::Flannel => run_in(&Flannel { node, name: &name, ask: hcn::named }, node, settings),
        Network::Calico => run_in(&Calico { name: &name, ask: hcn::named }, node, settings),
    }
}

fn run_in<N: NodeNetwork>(network: &N, node: &Node, settings: Value) -> Result<(), Failure> {
    let program = node.program(PROGRAM)?;
    let made = wait_for(network)?;
    // While a network is made, Windows moves the address from the adapter to the network's own.
    node.wait_for_address()?;
    let source_vip = network.source_vip(&made)?;
    say(&source_vip.map_or_else(|| "the network needs no source VIP".to_owned(), |address| format!("the source VIP is {address}")));
    let kubeconfig = access::kubeconfig(node, PROGRAM)?;
    let config = node.written(PROGRAM, "config.json");
    write(&config, &format!("{:#}\n", configuration(settings, &node.name, &kubeconfig, source_vip)))?;
    let mut kube_proxy = Child::start(&program, &[format!("--config={}", config.display()), "--v=2".into()])?;
    let why = kube_proxy.until(N::BETWEEN_LOOKS, || network.changed(&made))?;
    Err(Failure(why))
}

fn network_name(settings: &Value) -> Result<&str, Failure> {
    let name = settings.pointer("/winkernel/networkName").and_then(Value::as_str);
    name.ok_or_else(|| Failure("config.json: winkernel.networkName: it is missing".into()))
}

/// Waits as long as it takes: the container that makes the network says itself what keeps it.
fn wait_for<N: NodeNetwork>(network: &N) -> Result<N::Made, Failure> {
    let mut is_told = false;
    loop {
        if let Some(made) = network.made()? {
            return Ok(made);
        }
        if !is_told {
            say(&format!("waits for {}", network.awaited()));
            is_told = true;
        }
        sleep(PAUSE);
    }
}

/// The settings with what is different on each node.
fn configuration(mut settings: Value, name: &str, kubeconfig: &str, source_vip: Option<Ipv4Addr>) -> Value {
    // A null leaves the field out.
    let own = json!({"hostnameOverride": name, "clientConnection": {"kubeconfig": kubeconfig}, "winkernel": {"sourceVip": source_vip}});
    json_patch::merge(&mut settings, &own);
    settings
}

/// The network that flanneld makes. It writes the node's part of the pod network to a file, once all of it is there.
struct Flannel<'a, Ask> {
    node: &'a Node,
    /// Its name in HNS.
    name: &'a str,
    /// Asks HNS for all objects of a kind with a name.
    ask: Ask,
}

/// What kube-proxy depends on.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    subnet: Subnet,
    /// With the backend host-gw; with vxlan it is an overlay.
    is_bridge: bool,
}

impl<Ask: Fn(Kind, &str) -> Result<Vec<Value>, Failure>> NodeNetwork for Flannel<'_, Ask> {
    type Made = Made;

    const BETWEEN_LOOKS: Duration = PAUSE;

    fn awaited(&self) -> String {
        format!("flanneld, which makes the HNS network {}, and then writes {}", self.name, self.node.subnet_file().display())
    }

    fn made(&self) -> Result<Option<Made>, Failure> {
        let Some(subnet) = subnet::read(&self.node.subnet_file()) else { return Ok(None) };
        let networks = (self.ask)(Kind::Network, self.name)?;
        Ok(networks.first().map(|network| Made { subnet, is_bridge: hcn::is_bridge(network) }))
    }

    fn source_vip(&self, made: &Made) -> Result<Option<Ipv4Addr>, Failure> {
        if made.is_bridge {
            return Ok(None);
        }
        host_local::reserve(self.node, self.name, made.subnet, Purpose::SourceVip).map(Some)
    }

    /// While flanneld starts again its file is gone for a moment. HNS is not asked: another backend comes with other settings, and these start both
    /// programs again.
    fn changed(&self, before: &Made) -> Result<Option<String>, Failure> {
        let other = subnet::read(&self.node.subnet_file()).filter(|now| *now != before.subnet);
        Ok(other.map(|now| format!("pods of this node are in {now} now, no more in {}: kube-proxy has to start again", before.subnet)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_get_what_is_different_on_each_node() {
        let settings = json!({"kind": "KubeProxyConfiguration", "winkernel": {"networkName": "flannel.4096", "enableDSR": true}});
        assert_eq!(network_name(&settings), Ok("flannel.4096"));
        let mut expected = json!({"kind": "KubeProxyConfiguration", "hostnameOverride": "win-1", "clientConnection": {"kubeconfig": "file"},
            "winkernel": {"networkName": "flannel.4096", "enableDSR": true}});
        assert_eq!(configuration(settings.clone(), "win-1", "file", None), expected);
        expected["winkernel"]["sourceVip"] = json!("10.244.1.2");
        assert_eq!(configuration(settings, "win-1", "file", Some(Ipv4Addr::new(10, 244, 1, 2))), expected);
        assert!(network_name(&json!({})).unwrap_err().0.contains("networkName"));
    }

    /// Flannel's network in an HNS that has these.
    fn flannel<'a>(node: &'a Node, networks: &'a Value) -> Flannel<'a, impl Fn(Kind, &str) -> Result<Vec<Value>, Failure> + 'a> {
        let of_name = |name: &str| networks.as_array().unwrap().iter().filter(|network| network["Name"] == name).cloned().collect();
        Flannel { node, name: "cbr0", ask: move |kind, name: &str| Ok(if kind == Kind::Network { of_name(name) } else { Vec::new() }) }
    }

    #[test]
    fn flannels_network_is_there_with_its_subnet_and_needs_a_source_vip_unless_it_is_a_bridge() {
        let drive = tempfile::tempdir().unwrap();
        let node = crate::node::tests::node(drive.path());
        let network = |name: &str, kind: &str| json!([{"ID": "A", "Name": name, "Type": kind}]);
        assert_eq!(flannel(&node, &network("cbr0", "L2Bridge")).made(), Ok(None), "no subnet");
        write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.1.1/24\n").unwrap();
        write(&node.addresses("cbr0").join("10.244.1.3"), "kube-proxy\r\nsource-vip").unwrap();
        let vip = Ipv4Addr::new(10, 244, 1, 3);
        for (networks, expected) in [
            (json!([]), None),
            (network("flannel.4096", "Overlay"), None),
            (network("cbr0", "L2Bridge"), Some(None)),
            (network("cbr0", "l2bridge"), Some(None)),
            (network("cbr0", "Overlay"), Some(Some(vip))),
        ] {
            let flannel = flannel(&node, &networks);
            let made = flannel.made().unwrap();
            assert_eq!(made.map(|made| flannel.source_vip(&made).unwrap()), expected, "{networks}");
        }
    }

    #[test]
    fn another_subnet_ends_kube_proxy_and_a_missing_one_does_not() {
        let drive = tempfile::tempdir().unwrap();
        let node = crate::node::tests::node(drive.path());
        let networks = json!([{"ID": "A", "Name": "cbr0", "Type": "L2Bridge"}]);
        let flannel = flannel(&node, &networks);
        write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.1.1/24\n").unwrap();
        let before = flannel.made().unwrap().unwrap();
        assert_eq!(flannel.changed(&before), Ok(None));
        write(&node.subnet_file(), "").unwrap();
        assert_eq!(flannel.changed(&before), Ok(None));
        write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.2.1/24\n").unwrap();
        let why = flannel.changed(&before).unwrap().unwrap();
        assert!(why.contains("10.244.2.0/24 now, no more in 10.244.1.0/24"), "{why}");
    }
}
