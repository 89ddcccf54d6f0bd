//! Calico: the settings that its operator refuses once Windows is enabled, and the features that its Windows side lacks.

use serde_json::json;

use super::limits::{LEAST_PODS, LEAST_VNI, MOST_VNI, PORT};
use crate::api::condition::Reason;
use crate::components::finding::{Finding, Patch};
use crate::components::linux_side::{Calico, Encapsulation, Pool, Setting};
use crate::components::room::in_block;

pub(super) fn finding<T>(reason: Reason, at: &Setting<T>, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { reason, object: at.object.clone(), field: at.field.clone(), message: message.into(), patch: None, remedy: remedy.into() }
}

/// Calico's own procedure, for the user: CAPW never changes a pool in use.
const NEW_POOL: &str = "CAPW never changes a pool in use. Move pods to a new one as Calico's page \"Migrate from one IP pool to another\" says: \
    make a pool with VXLAN on other addresses, disable the old one, let all pods start again, delete it";

/// Reports an encapsulation that Windows lacks. If the operator created the pool, the user must change the operator's field.
fn encapsulation(calico: &Calico, pool: &Pool) -> Option<Finding> {
    let at = &pool.encapsulation;
    let asked = calico.asked.iter().find(|asked| asked.value != at.value);
    let note = asked.map(|asked| format!("; {} asks for {}", asked.object, asked.value.as_str())).unwrap_or_default();
    match at.value {
        Encapsulation::Ipip | Encapsulation::IpipCrossSubnet => {
            let message = format!("the pool {} uses {}, and Windows has no IP-in-IP{note}", pool.network, at.value.as_str());
            Some(finding(Reason::IpipPool, at, message, NEW_POOL))
        }
        Encapsulation::VxlanCrossSubnet => {
            let message = format!(
                "the pool {} uses {}: Calico's operator refuses that as soon as Windows is switched on, and then manages Linux no more either{note}",
                pool.network,
                at.value.as_str()
            );
            Some(finding(Reason::CrossSubnet, at, message, NEW_POOL))
        }
        Encapsulation::None | Encapsulation::Vxlan => None,
    }
}

fn small_block(pool: &Pool) -> Option<Finding> {
    let room = in_block(pool);
    if room >= LEAST_PODS {
        return None;
    }
    let message = format!(
        "a node gets blocks of /{} from the pool {}, and a Windows node has only one: there is room for {room} pods",
        pool.block.value, pool.network
    );
    Some(finding(
        Reason::BlockTooSmall,
        &pool.block,
        message,
        format!("{}, with blockSize 26 or less; the size of a pool in use cannot be changed", NEW_POOL),
    ))
}

fn bgp_with_vxlan(calico: &Calico) -> Option<Finding> {
    let vxlan = calico.pools.iter().any(|pool| pool.network.is_ipv4() && pool.encapsulation.value.is_vxlan());
    if !(vxlan && calico.bgp.value) {
        return None;
    }
    let message = "BGP is on together with VXLAN, and Calico on Windows has either: Windows nodes would get routes by BGP and no tunnel";
    let patch = calico.operator.as_ref().map(|_| Patch::Merge(json!({"spec": {"calicoNetwork": {"bgp": "Disabled"}}})));
    let remedy = match patch {
        Some(_) => "apply the patch, unless BGP peers outside of the cluster are used: calico-node restarts on all Linux nodes",
        None => "set the backend to vxlan as Calico's page \"Overlay networking\" says, and take BIRD out of the probes of calico-node",
    };
    Some(Finding { patch, ..finding(Reason::BgpWithVxlan, &calico.bgp, message, remedy) })
}

/// Without BGP and VXLAN, Calico on Windows has no route to other nodes.
fn neither_bgp_nor_vxlan(calico: &Calico) -> Option<Finding> {
    let pool = calico.pool().filter(|pool| pool.encapsulation.value == Encapsulation::None && !calico.bgp.value)?;
    let message = format!("the pool {} has no encapsulation, and BGP is off: Calico on Windows has either BGP or VXLAN", pool.network);
    let remedy = "turn BGP on if the routers between the nodes know the pods' addresses by it; else make a pool with VXLAN";
    calico.operator.as_ref().map(|_| finding(Reason::NetworkUnsupported, &calico.bgp, message, remedy))
}

fn strict_affinity(calico: &Calico) -> Option<Finding> {
    let at = calico.strict_affinity.as_ref().filter(|setting| !setting.value)?;
    let (spec, how) = match calico.has_ipam_configuration {
        true => (json!({"spec": {"strictAffinity": true}}), "apply the patch"),
        // A new object would not allocate blocks by default.
        false => {
            (json!({"spec": {"strictAffinity": true, "autoAllocateBlocks": true}}), "make the object with the fields of the patch: there is none")
        }
    };
    let message =
        "nodes may take single addresses from the block of another node, and Windows nodes cannot reach those: Calico's Windows side does not start";
    let remedy = format!("{how}; from then on each node takes addresses from blocks of its own only, and nothing restarts");
    Some(Finding { patch: Some(Patch::Merge(spec)), ..finding(Reason::StrictAffinityOff, at, message, remedy) })
}

/// Checks the VNI and port of VXLAN.
fn tunnel(calico: &Calico) -> Vec<Finding> {
    let mut found = Vec::new();
    if !calico.pool().is_some_and(|pool| pool.encapsulation.value.is_vxlan()) {
        return found;
    }
    let mut add = |reason, at: &Setting<u32>, key: &str, right: u32, message: String| {
        let of_felix = at.object.kind == "FelixConfiguration";
        let remedy = match of_felix {
            true => "apply the patch: Linux pods do not reach other nodes for the seconds in which Felix makes its devices again",
            false => "change the variable where calico-node came from; its pods restart on all Linux nodes",
        };
        let patch = of_felix.then(|| Patch::Merge(json!({"spec": {key: right}})));
        found.push(Finding { patch, ..finding(reason, at, message, remedy) });
    };
    let vni = calico.vni.value;
    if vni < LEAST_VNI {
        add(Reason::VniBelow4096, &calico.vni, "vxlanVNI", LEAST_VNI, format!("Linux nodes use VNI {vni}, and Windows has none below {LEAST_VNI}"));
    }
    if vni > MOST_VNI {
        let message = format!("the VNI is {vni}, and Windows routes to other nodes by 16 bits of it: it must be {LEAST_VNI} to {MOST_VNI}");
        add(Reason::VniAbove65535, &calico.vni, "vxlanVNI", LEAST_VNI, message);
    }
    if calico.port.value != PORT {
        let message = format!("Linux nodes send VXLAN to port {}, and Windows has only {PORT}", calico.port.value);
        add(Reason::PortNot4789, &calico.port, "vxlanPort", PORT, message);
    }
    found
}

fn dataplane(calico: &Calico) -> Option<Finding> {
    let at = calico.dataplane.as_ref()?;
    let remedy = "turn it off as Calico's page \"Disable eBPF\" says: kube-proxy must run on Linux nodes again before. \
        CAPW never does it, because Services stop if the order is wrong";
    if at.value == "BPF" {
        return Some(finding(
            Reason::EbpfDataplane,
            at,
            "Linux nodes use Calico's eBPF dataplane, beside which Calico does not support Windows nodes",
            remedy,
        ));
    }
    let message = format!("Linux nodes use the dataplane {}, beside which Calico does not support Windows nodes", at.value);
    Some(finding(Reason::NetworkUnsupported, at, message, "change to Iptables or Nftables; pods lose their connections while it rolls out"))
}

/// Reports a setting of the Installation that the pools do not have, or a setting of the pools that the nodes do not use.
fn not_rolled_out(calico: &Calico) -> Option<Finding> {
    if let Some(asked) = calico.asked.first() {
        let message = format!("{} asks for {}, and the pool in use has another encapsulation", asked.object, asked.value.as_str());
        return Some(finding(Reason::NotRolledOut, asked, message, NEW_POOL));
    }
    let pool = calico.pool()?;
    let used = calico.in_use()?;
    let nodes = if used.is_ipip() { &calico.ipip_nodes } else { &calico.vxlan_nodes };
    let node = nodes.first().filter(|_| used != pool.encapsulation.value)?;
    let message = format!(
        "{} says {}, and nodes still have a tunnel of {}, e.g. {}",
        pool.encapsulation.object,
        pool.encapsulation.value.as_str(),
        used.as_str(),
        node.name
    );
    Some(finding(
        Reason::NotRolledOut,
        &pool.encapsulation,
        message,
        "wait until calico-node has taken the tunnel away; if it does not, restart its pods",
    ))
}

/// Overlay networks on Windows support IPv4 only, and so do all of Calico's networks on Windows.
fn families(calico: &Calico) -> Option<Finding> {
    let six = calico.pools.iter().find(|pool| !pool.network.is_ipv4())?;
    let at = &six.encapsulation;
    let (reason, message) = match calico.pool() {
        None => (Reason::Ipv6Only, "pods have IPv6 only, and Calico on Windows has IPv4 only"),
        Some(pool) if pool.encapsulation.value.is_vxlan() => (
            Reason::DualStack,
            "pods have IPv4 and IPv6, and overlay networks of Windows have IPv4 only: Windows pods would have no address of the second family",
        ),
        Some(_) => return None,
    };
    let field = "spec.cidr".to_owned();
    let remedy =
        "give the cluster a pod network of IPv4 alone: networks of a cluster cannot be taken away while pods use them, so make a new cluster";
    Some(Finding { field, ..finding(reason, at, format!("{message} ({})", six.network), remedy) })
}

pub fn judge(calico: &Calico) -> Vec<Finding> {
    let four: Vec<&Pool> = calico.pools.iter().filter(|pool| pool.network.is_ipv4()).collect();
    let mut found: Vec<Finding> = four.iter().filter_map(|pool| encapsulation(calico, pool)).collect();
    // If Calico does not manage the addresses, no blocks exist.
    found.extend(four.iter().filter(|_| calico.strict_affinity.is_some()).filter_map(|pool| small_block(pool)));
    found.extend(tunnel(calico));
    let others =
        [bgp_with_vxlan(calico), neither_bgp_nor_vxlan(calico), strict_affinity(calico), dataplane(calico), not_rolled_out(calico), families(calico)];
    found.extend(others.into_iter().flatten());
    found
}
