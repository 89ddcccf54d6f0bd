//! Describes the Linux side for people.

use std::fmt::Write;

use super::cidr::listed;
use super::finding::{Finding, is_warning};
use super::linux_side::{LinuxSide, Network};
use super::role::role;
use super::room::pods_per_node;

/// Formats the network: `flannel 0.28.9, vxlan, VNI 4096, port 4789`.
fn network(network: &Network) -> String {
    let name = network.version.as_ref().map_or_else(|| network.kind.to_string(), |version| format!("{} {version}", network.kind));
    let vni = network.vni.map(|vni| format!("VNI {vni}"));
    let port = network.port.map(|port| format!("port {port}"));
    [Some(name), network.mode.clone(), vni, port].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn kube_proxy(side: &LinuxSide) -> String {
    let Some(proxy) = &side.kube_proxy else {
        return "no DaemonSet: the network does its work, or nodes run it themselves".into();
    };
    [proxy.version.clone(), proxy.mode.map(str::to_owned), Some(format!("({})", proxy.from))].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn dns(side: &LinuxSide) -> String {
    let Some(dns) = &side.dns else { return "no Service of it was found".into() };
    let addresses = dns.addresses.iter().map(ToString::to_string);
    addresses.chain(dns.domain.clone()).collect::<Vec<_>>().join(" ")
}

/// Describes the Linux side, the sources of these facts, and the problems that keep Windows nodes out.
pub fn text(side: &LinuxSide, findings: &[Finding]) -> String {
    let or_unknown = |text: String| if text.is_empty() { "not known".into() } else { text };
    let windows = side.nodes.iter().filter(|node| node.windows).count();
    let lines = [
        ("network", network(&side.network)),
        ("pod networks", or_unknown(listed(&side.network.pod_networks))),
        ("pods per node", or_unknown(pods_per_node(side).map(|pods| format!("{pods} on Windows")).unwrap_or_default())),
        ("Service networks", or_unknown(listed(&side.service_networks))),
        ("kube-proxy", kube_proxy(side)),
        ("name resolution", dns(side)),
        ("nodes", format!("{} Linux, {windows} Windows", side.nodes.len() - windows)),
    ];
    let role = role(side);
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<18}{value}");
    }
    let _ = writeln!(text, "\nOn Windows nodes: {role}. {}", role.meaning());
    for set in &side.on_windows {
        let _ = writeln!(text, "{} is not CAPW's and stays as it is.", set.object);
    }
    text.push_str("\nRead from:\n");
    for origin in &side.network.from {
        let _ = writeln!(text, "  {:<18}{}", origin.fact, origin.source);
    }

    if findings.is_empty() {
        text.push_str("\nNothing stands in the way of Windows nodes.\n");
    }
    let mut patches: Vec<String> = Vec::new();
    for finding in findings {
        let warning = if is_warning(finding.reason) { " (a warning)" } else { "" };
        let _ = writeln!(text, "\n{}{warning}: {}, {}", finding.reason, finding.object, finding.field);
        let _ = writeln!(text, "  {}.", finding.message);
        let _ = writeln!(text, "  What to do: {}.", finding.remedy);
        // One patch may correct several findings.
        patches.extend(finding.command().filter(|command| !patches.contains(command)));
    }
    if !patches.is_empty() {
        text.push_str("\nPatches:\n");
    }
    for command in patches {
        let _ = writeln!(text, "  {command}");
    }
    text
}
