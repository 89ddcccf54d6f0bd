//! Rules about reserves, addresses, kubeadm, containerd, kube-proxy and delivery: L7, L9 to L14, L18, L25 to L27.

use serde_json::Value;

use super::findings::Findings;
use super::input::Node;
use crate::api::bootstrap_config::{Channel, ContainerdLine, ProxyNetwork, WindowsRelease};
use crate::bootstrap::facts::BootstrapFacts;

/// The least memory that Windows itself uses, in MiB.
const WINDOWS_MIB: u64 = 2048;

pub(super) fn check(node: &Node<'_>, findings: &mut Findings) {
    check_delivery(node.facts, findings);
    check_installers(node.facts, findings);
    check_node_networks(node.facts, findings);
    // Whether the reserves fit into the machine is checked where they are computed.
    let reserves = &node.documents.reserves;
    let kept = reserves.system.memory_mib + reserves.kube.memory_mib;
    if kept < WINDOWS_MIB {
        let remedy = format!("Windows and the node's own programs take {WINDOWS_MIB}Mi and more: the node would page instead of evicting");
        findings.warning("L7", "spec.kubelet.systemReserved.memory", format!("{kept}Mi with kubeReserved"), remedy);
    }
    let pods = node.config.get("maxPods").and_then(Value::as_u64).unwrap_or(110);
    let networks = node.facts.pod_networks.iter().map(String::as_str).chain(node.config.get("podCIDR").and_then(Value::as_str));
    for network in networks {
        let share = u32::try_from(node.facts.spec.network.node_cidr_mask_size).unwrap_or(24);
        let Some(addresses) = ipv4_addresses(network, share) else { continue };
        // Three addresses are not for pods: the network and broadcast addresses, and the address of kube-proxy or the host.
        if pods > addresses.saturating_sub(3) {
            let remedy = format!(
                "of the network {network} a node gets {addresses} addresses (spec.network.nodeCIDRMaskSize is {share}), 3 of which are not for pods: lower maxPods, or give each node a larger network"
            );
            findings.error("L18", "spec.kubelet.maxPods", pods.to_string(), remedy);
        }
    }
    if let Some(room) = node.facts.pods_per_node.filter(|room| pods > *room) {
        let remedy = format!(
            "of the cluster's pod network a Windows node gets addresses for {room} pods (status.components.network.podsPerNode of the WindowsCluster), and further pods would hang on the node: set maxPods to {room} or less, or give nodes larger parts of the network, as docs/pod-network.md says"
        );
        findings.error("L18", "spec.kubelet.maxPods", pods.to_string(), remedy);
    }
    for field in ["containerRuntimeEndpoint", "imageServiceEndpoint"] {
        if let Some(socket) = node.config.get(field).and_then(Value::as_str).filter(|socket| !socket.is_empty() && !socket_ok(socket)) {
            findings.error("L11", format!("KubeletConfiguration.{field}"), socket, SOCKET);
        }
    }
}

/// Checks L25: without our drive the secrets are part of the script.
fn check_delivery(facts: &BootstrapFacts, findings: &mut Findings) {
    // Another infrastructure provider names the machine, and passes on only the user data.
    let given = match (facts.spec.channel, &facts.host_name) {
        (Channel::GuestInfo, _) => "guestinfo has no files",
        (_, None) => "another infrastructure provider hands on no files",
        _ => return,
    };
    let remedy = format!(
        "{given}, so the join token is in the text of the script, which Windows keeps in its event log (Microsoft-Windows-PowerShell/Operational, event 4104) if the image switches script block logging on: use ConfigDrive, NoCloud or Unattend with a WindowsMachine, or restrict who reads that log"
    );
    findings.warning("L25", "spec.channel", facts.spec.channel.name(), remedy);
}

/// Checks L26: exit code 1641 means that the installer has begun a restart, while the plan continues.
fn check_installers(facts: &BootstrapFacts, findings: &mut Findings) {
    let steps = &facts.spec.steps;
    for (list, steps) in [("beforeJoin", &steps.before_join), ("afterJoin", &steps.after_join)] {
        for (index, step) in steps.iter().enumerate() {
            let Some(command) = &step.command else { continue };
            let program = command.argv.first().and_then(|program| program.rsplit(['\\', '/']).next()).unwrap_or_default().to_ascii_lowercase();
            let words = command.argv.iter().map(String::as_str).chain(command.raw_arguments.iter().flat_map(|raw| raw.split_whitespace()));
            let calm = |word: &str| word.eq_ignore_ascii_case("/norestart") || word.to_ascii_uppercase().starts_with("REBOOT=R");
            if !["msiexec", "msiexec.exe"].contains(&program.as_str()) || words.into_iter().any(calm) {
                continue;
            }
            let remedy = "it may restart Windows by itself (exit code 1641) while the plan goes on: add /norestart, and 3010 to exitCodes.restart";
            findings.warning("L26", format!("spec.steps.{list}[{index}].command.argv"), &step.name, remedy);
        }
    }
}

/// Checks L27: a proxy, without settings for the addresses of the nodes.
fn check_node_networks(facts: &BootstrapFacts, findings: &mut Findings) {
    let network = &facts.spec.network;
    if network.node_networks.is_empty() && network.proxy.as_ref().is_some_and(|proxy| proxy.no_proxy.is_empty()) {
        let remedy = "with a proxy, containerd and the node's other programs reach addresses of other nodes, e.g. a registry mirror, through it: name the networks of your nodes, e.g. 10.0.0.0/16";
        findings.warning("L27", "spec.network.nodeNetworks", "none", remedy);
    }
}

/// Returns the addresses that a node gets of an IPv4 network such as `10.244.0.0/16`: a part of length `share`, or all of a smaller network.
fn ipv4_addresses(network: &str, share: u32) -> Option<u64> {
    let (address, length) = network.split_once('/')?;
    address.parse::<std::net::Ipv4Addr>().ok()?;
    let length: u32 = length.parse().ok().filter(|length| *length <= 32)?;
    Some(1 << 32_u32.saturating_sub(length.max(share)))
}

const SOCKET: &str = "expected the URL of a pipe, e.g. npipe:////./pipe/containerd-containerd";

fn socket_ok(socket: &str) -> bool {
    socket.strip_prefix("npipe:////./pipe/").or_else(|| socket.strip_prefix("npipe://./pipe/")).is_some_and(|name| !name.is_empty())
}

/// Checks L9 to L11: kubeadm's JoinConfiguration.
pub(super) fn check_join(minor: u32, join: &Value, findings: &mut Findings) {
    let version = join.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let known: &[&str] = match minor {
        ..=30 => &["kubeadm.k8s.io/v1beta3"],
        31..=36 => &["kubeadm.k8s.io/v1beta3", "kubeadm.k8s.io/v1beta4"],
        _ => &["kubeadm.k8s.io/v1beta4"],
    };
    if !known.contains(&version) {
        findings.error("L9", "JoinConfiguration.apiVersion", version, format!("kubeadm 1.{minor} reads {}", known.join(" and ")));
    }
    let node = join.get("nodeRegistration");
    if let Some(arguments) = node.and_then(|node| node.get("kubeletExtraArgs")) {
        let list = arguments.as_array().is_some_and(|list| list.iter().all(|one| one.get("name").is_some() && one.get("value").is_some()));
        if list != version.ends_with("v1beta4") {
            let remedy = "v1beta4 has a list of name and value, v1beta3 an object";
            findings.error("L10", "JoinConfiguration.nodeRegistration.kubeletExtraArgs", version, remedy);
        }
    }
    let socket = node.and_then(|node| node.get("criSocket")).and_then(Value::as_str).unwrap_or_default();
    if !socket_ok(socket) {
        findings.error("L11", "JoinConfiguration.nodeRegistration.criSocket", socket, SOCKET);
    }
    let skipped = join.get("skipPhases").and_then(Value::as_array);
    if skipped.is_some_and(|phases| phases.iter().any(|phase| phase.as_str().is_some_and(|phase| phase.starts_with("preflight")))) {
        let remedy = "the preflight checks report what is missing before anything is changed: do not skip them";
        findings.error("L9", "JoinConfiguration.skipPhases", "preflight", remedy);
    }
}

/// Checks L12 and L13: containerd's `config.toml`.
pub(super) fn check_containerd(line: ContainerdLine, toml: &toml::Table, findings: &mut Findings) {
    let version = toml.get("version").and_then(toml::Value::as_integer).unwrap_or(1);
    let newest = match line {
        ContainerdLine::V1 => 2,
        // containerd 2.0 to 2.2 support schema 3, and 2.3 supports 4.
        ContainerdLine::V2 => 3,
    };
    if !(2..=newest).contains(&version) {
        let remedy = format!("this release line of containerd reads versions 2 to {newest} and exits with a newer one");
        findings.error("L12", "config.toml: version", version.to_string(), remedy);
    }
    let plugins = toml.get("plugins").and_then(toml::Value::as_table);
    for (name, plugin) in plugins.into_iter().flatten() {
        let Some(cni) = plugin.get("cni") else { continue };
        if cni.get("bin_dir").is_some() == cni.get("bin_dirs").is_some() {
            findings.error("L13", format!("config.toml: {name}.cni"), "bin_dir, bin_dirs", "containerd takes exactly one of the two");
        }
    }
}

/// Checks L14: kube-proxy exits without a source VIP in an overlay network, and ignores it elsewhere.
pub(super) fn check_proxy(release: WindowsRelease, network: ProxyNetwork, proxy: &Value, findings: &mut Findings) {
    let address = proxy.pointer("/winkernel/sourceVip").and_then(Value::as_str).unwrap_or_default();
    let parses = address.parse::<std::net::IpAddr>().is_ok();
    match network {
        ProxyNetwork::Overlay if !parses => {
            let remedy = "expected an IP address of the node's own pod network, which an overlay needs and which differs from node to node; for more than one node run kube-proxy as a HostProcess DaemonSet, which finds it itself";
            findings.error("L14", "spec.kubeProxy.sourceVIP", address, remedy);
        }
        ProxyNetwork::L2Bridge if !address.is_empty() => {
            findings.error(
                "L14",
                "spec.kubeProxy.sourceVIP",
                address,
                "a network of type L2Bridge has no source VIP: remove it, or set networkType to Overlay",
            );
        }
        _ => {}
    }
    let forward = proxy.pointer("/winkernel/forwardHealthCheckVip").and_then(Value::as_bool).unwrap_or_default();
    if forward && release == WindowsRelease::Server2019 {
        let remedy = "Windows Server 2019 refuses the rule for 0.0.0.0:10256 (0x803b0013): leave it out, or use a newer release";
        findings.error("L14", "spec.kubeProxy.forwardHealthCheckVip", "true", remedy);
    }
}
