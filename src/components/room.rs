//! The number of pods for which a Windows node has addresses (pure): the addresses of its block, minus the reserved ones.

use super::cidr::Cidr;
use super::linux_side::{LinuxSide, Pool, Settings};

/// Calico reserves 3 addresses at the start of a block on Windows, one of them for kube-proxy, and 1 at its end.
/// <https://docs.tigera.io/calico/latest/getting-started/kubernetes/windows-calico/limitations>
const KEPT_BY_CALICO: u64 = 4;
/// The network address, the broadcast address, the gateway, the address of host-gw's bridge, and kube-proxy's own address.
const KEPT_WITH_FLANNEL: u64 = 5;

/// The pods in a block of this Calico pool. A Windows node gets only one block, because it has one HNS network.
pub fn in_block(pool: &Pool) -> u64 {
    let addresses = 1u64.checked_shl(32u32.saturating_sub(pool.block.value)).unwrap_or(0);
    addresses.saturating_sub(KEPT_BY_CALICO)
}

/// The pods in a node's block of Flannel's network.
pub fn in_part(part: Cidr) -> u64 {
    part.addresses().saturating_sub(KEPT_WITH_FLANNEL)
}

/// The pods on any Windows node of the cluster: if the blocks differ, the smallest counts. `None`: no object contains the size, or the network
/// allocates addresses in another way.
pub fn pods_per_node(side: &LinuxSide) -> Option<u64> {
    match &side.network.settings {
        Settings::Flannel(_) => {
            let parts = side.nodes.iter().flat_map(|node| &node.blocks).filter(|part| part.is_ipv4());
            parts.map(|part| in_part(*part)).min()
        }
        // If Calico does not manage the addresses, no blocks exist.
        Settings::Calico(calico) => calico.strict_affinity.as_ref().and_then(|_| calico.pool()).map(in_block),
        Settings::Antrea(_) | Settings::Ovn(_) | Settings::Aws(_) | Settings::None | Settings::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::components::read;
    use crate::components::tests::{changed, recording};

    #[test]
    fn the_part_of_a_node_is_counted_without_what_is_kept() {
        let part = |part: &str| json!({"spec": {"podCIDR": part, "podCIDRs": [part]}});
        let pool = |block: u64| json!({"spec": {"blockSize": block}});
        let (node, pools) = ("Node linux-1", "IPPool default-ipv4-ippool");
        for (name, object, change, expected) in [
            ("flannel-vxlan-4096", node, json!({}), Some(251)),
            ("flannel-host-gw", node, json!({}), Some(251)),
            // The other node has a /24.
            ("flannel-vxlan-4096", node, part("10.244.0.0/26"), Some(59)),
            ("flannel-vxlan-4096", node, part("10.244.0.0/30"), Some(0)),
            ("flannel-vxlan-4096", node, json!({"spec": {"podCIDRs": ["fd00::/64", "10.244.0.0/25"]}}), Some(123)),
            ("calico-operator-windows", pools, pool(26), Some(60)),
            ("calico-operator-windows", pools, pool(24), Some(252)),
            ("calico-operator-windows", pools, pool(32), Some(0)),
            ("calico-operator-windows", "Installation default", json!({"spec": {"cni": {"ipam": {"type": "HostLocal"}}}}), None),
            ("antrea-encap", node, json!({}), None),
            ("cilium", node, json!({}), None),
        ] {
            let side = read(&changed(name, object, &change));
            assert_eq!(pods_per_node(&side), expected, "{name} {object} {change}");
        }
        let without_parts: Vec<Value> = recording("flannel-vxlan-4096").into_iter().filter(|object| object["kind"] != "Node").collect();
        assert_eq!(pods_per_node(&read(&without_parts)), None);
    }
}
