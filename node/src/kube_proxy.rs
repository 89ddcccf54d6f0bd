//! `capw-node kube-proxy`.

use std::net::Ipv4Addr;
use std::thread::sleep;

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

/// The network of a node, which another program creates.
pub trait NodeNetwork {
    /// The properties of the created network that kube-proxy depends on.
    type Made;

    /// The program that creates the network, and its task, for the log: `flanneld, which ...`.
    fn awaited(&self) -> String;

    /// Returns the network's properties; `None` until the network is complete.
    fn made(&self) -> Result<Option<Self::Made>, Failure>;

    /// Returns kube-proxy's source address, if the network is an overlay.
    fn source_vip(&self, made: &Self::Made) -> Result<Option<Ipv4Addr>, Failure>;

    /// Returns the reason why kube-proxy must stop, if the network has changed.
    fn changed(&self, before: &Self::Made) -> Result<Option<String>, Failure>;
}

/// Runs kube-proxy until it ends, until the node's network changes, or until HNS has lost kube-proxy's objects in it.
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
    // While a network is created, Windows moves the address from the adapter to the network's own adapter.
    node.wait_for_address()?;
    let source_vip = network.source_vip(&made)?;
    say(&source_vip.map_or_else(|| "the network needs no source VIP".to_owned(), |address| format!("the source VIP is {address}")));
    let kubeconfig = access::kubeconfig(node, PROGRAM)?;
    let config = node.written(PROGRAM, "config.json");
    write(&config, &format!("{:#}\n", configuration(settings, &node.name, &kubeconfig, source_vip)))?;
    let earlier = hcn::all(Kind::LoadBalancer)?;
    let mut kube_proxy = Child::start(&program, &[format!("--config={}", config.display()), "--v=2".into()])?;
    let mut balancers = Balancers { earlier, ..Balancers::default() };
    // The poll is frequent at first: a loss of load balancers is noticed only after they were observed.
    let changed = kube_proxy.until(PAUSE, || match network.changed(&made)? {
        None => Ok(balancers.are_seen(&hcn::all(Kind::LoadBalancer)?).then_some(None)),
        changed => Ok(Some(changed)),
    })?;
    if let Some(why) = changed {
        return Err(Failure(why));
    }
    say("kube-proxy has made load balancers");
    let why = kube_proxy.until(hcn::BETWEEN_LOOKS, || match network.changed(&made)? {
        None => Ok(balancers.lost(&hcn::all(Kind::LoadBalancer)?)),
        changed => Ok(changed),
    })?;
    Err(Failure(why))
}

/// The number of load balancers in HNS. HNS sometimes loses nearly all of them at once, and kube-proxy, which remembers that it created them, does
/// not recreate them before its next start: <https://github.com/kubernetes/kubernetes/issues/110849>,
/// <https://github.com/kubernetes/kubernetes/issues/135802>.
#[derive(Default)]
struct Balancers {
    /// The load balancers of the previous kube-proxy; the new one deletes them at its start:
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/proxy/winkernel/proxier.go> (`NewProxier`)
    earlier: Vec<u128>,
    /// The last number of kube-proxy's own load balancers.
    before: usize,
    /// The number of consecutive checks that found less than half of them.
    short: u32,
}

impl Balancers {
    /// Whether kube-proxy has created its first load balancer.
    fn are_seen(&mut self, found: &[u128]) -> bool {
        self.lost(found).is_none() && self.before > 0
    }

    /// Returns the reason to restart kube-proxy: less than half remain in two consecutive checks, since kube-proxy may be replacing some. A deleted
    /// Service removes its own, so an unnecessary restart is possible if most Services are deleted at once.
    fn lost(&mut self, found: &[u128]) -> Option<String> {
        let now = found.iter().filter(|id| !self.earlier.contains(id)).count();
        if 2 * now >= self.before {
            (self.before, self.short) = (now, 0);
            return None;
        }
        self.short += 1;
        let why = || format!("HNS has {now} load balancers, and had {} a moment ago: kube-proxy has to start again, and recreates them", self.before);
        (self.short == 2).then(why)
    }
}

fn network_name(settings: &Value) -> Result<&str, Failure> {
    let name = settings.pointer("/winkernel/networkName").and_then(Value::as_str);
    name.ok_or_else(|| Failure("config.json: winkernel.networkName: it is missing".into()))
}

/// Waits without a limit: the container that creates the network reports its own problems.
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

/// Adds the fields that differ on each node to the settings.
fn configuration(mut settings: Value, name: &str, kubeconfig: &str, source_vip: Option<Ipv4Addr>) -> Value {
    // A null removes the field.
    let own = json!({"hostnameOverride": name, "clientConnection": {"kubeconfig": kubeconfig}, "winkernel": {"sourceVip": source_vip}});
    json_patch::merge(&mut settings, &own);
    settings
}

/// flanneld's network. flanneld writes the node's block to a file once the network is complete.
struct Flannel<'a, Ask> {
    node: &'a Node,
    /// The network's name in HNS.
    name: &'a str,
    /// A function that returns all objects of a kind and name from HNS.
    ask: Ask,
}

/// The properties that kube-proxy depends on.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    subnet: Subnet,
    /// The network's ID: if HNS has lost the network, flanneld creates another one.
    id: String,
    /// Whether the network is a bridge (backend host-gw) and not an overlay (vxlan).
    is_bridge: bool,
}

impl<Ask: Fn(Kind, &str) -> Result<Vec<Value>, Failure>> NodeNetwork for Flannel<'_, Ask> {
    type Made = Made;

    fn awaited(&self) -> String {
        format!("flanneld, which makes the HNS network {}, and then writes {}", self.name, self.node.subnet_file().display())
    }

    fn made(&self) -> Result<Option<Made>, Failure> {
        let Some(subnet) = subnet::read(&self.node.subnet_file()) else { return Ok(None) };
        let networks = (self.ask)(Kind::Network, self.name)?;
        Ok(networks.first().map(|network| Made { subnet, id: hcn::id(network).to_owned(), is_bridge: hcn::is_bridge(network) }))
    }

    fn source_vip(&self, made: &Made) -> Result<Option<Ipv4Addr>, Failure> {
        if made.is_bridge {
            return Ok(None);
        }
        host_local::reserve(self.node, self.name, made.subnet, Purpose::SourceVip).map(Some)
    }

    /// A missing file is no change: flanneld removes it for a moment when it restarts, and the network stays.
    fn changed(&self, before: &Made) -> Result<Option<String>, Failure> {
        if let Some(now) = subnet::read(&self.node.subnet_file()).filter(|now| *now != before.subnet) {
            return Ok(Some(format!("pods of this node are in {now} now, no more in {}: kube-proxy has to start again", before.subnet)));
        }
        let is_there = (self.ask)(Kind::Network, self.name)?.iter().any(|network| hcn::id(network) == before.id);
        Ok((!is_there).then(|| format!("HNS no longer has the network {} with the ID {}: kube-proxy has to start again", self.name, before.id)))
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

    /// Flannel's network in an HNS with these networks.
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
    fn another_subnet_or_network_ends_kube_proxy_and_a_missing_subnet_does_not() {
        let drive = tempfile::tempdir().unwrap();
        let node = crate::node::tests::node(drive.path());
        let network = |id: &str| json!({"ID": id, "Name": "cbr0", "Type": "L2Bridge"});
        let networks = json!([network("A")]);
        let flannel = flannel(&node, &networks);
        write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.1.1/24\n").unwrap();
        let before = flannel.made().unwrap().unwrap();
        assert_eq!(flannel.changed(&before), Ok(None));
        for (networks, is_lost) in [(json!([]), true), (json!([network("B")]), true), (json!([network("B"), network("A")]), false)] {
            let why = self::flannel(&node, &networks).changed(&before).unwrap();
            assert_eq!(why.is_some_and(|why| why.contains("no longer has the network cbr0 with the ID A")), is_lost, "{networks}");
        }
        write(&node.subnet_file(), "").unwrap();
        assert_eq!(flannel.changed(&before), Ok(None));
        write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.2.1/24\n").unwrap();
        let why = flannel.changed(&before).unwrap().unwrap();
        assert!(why.contains("10.244.2.0/24 now, no more in 10.244.1.0/24"), "{why}");
    }

    #[test]
    fn load_balancers_are_lost_where_two_looks_find_less_than_half() {
        for (counts, lost) in [
            (vec![0, 0, 0], None),
            (vec![3, 0, 3, 0, 3], None),
            (vec![8, 4, 2, 1, 1], None),
            (vec![1, 0, 0], Some(2)),
            (vec![577, 577, 1, 15], Some(3)),
            (vec![5, 2, 0], Some(2)),
        ] {
            let mut balancers = Balancers::default();
            let own = |count: &u128| (0..*count).collect::<Vec<_>>();
            assert_eq!(counts.iter().position(|count| balancers.lost(&own(count)).is_some()), lost, "{counts:?}");
        }
        let mut young = Balancers { earlier: vec![1, 2], ..Balancers::default() };
        let seen: Vec<bool> = [vec![1, 2], vec![], vec![3], vec![3, 4]].iter().map(|found| young.are_seen(found)).collect();
        assert_eq!(seen, [false, false, true, true], "those of the kube-proxy before do not count");
        assert_eq!([vec![], vec![]].map(|found: Vec<u128>| young.lost(&found).is_some()), [false, true]);
        let mut restarted = Balancers { earlier: vec![1, 2, 3], ..Balancers::default() };
        for found in [&[1, 2, 3][..], &[], &[], &[4], &[4, 5]] {
            assert_eq!(restarted.lost(found), None, "kube-proxy deletes what was there before it");
        }
    }
}
