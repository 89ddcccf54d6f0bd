//! What makes attacks harder, and what keeps the scanner and the firewall of Windows from being in the way.

use super::registry::number;
use super::{NODE_DOCS, Procedure, item, owned, why};
use crate::api::bootstrap_config::{FirewallAction, FirewallDirection, FirewallProtocol, FirewallRule, Hardening};
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Action, Direction, FeatureState, Item, Kind, Protocol, Script};

const SMB_DOCS: &str = "https://learn.microsoft.com/windows-server/storage/file-server/troubleshoot/detect-enable-and-disable-smbv1-v2-v3";
const WDIGEST_DOCS: &str = "https://learn.microsoft.com/troubleshoot/windows-server/windows-security/credential-protection-management";
const LSA_DOCS: &str =
    "https://learn.microsoft.com/windows-server/security/credentials-protection-and-management/configuring-additional-lsa-protection";
const RDP_DOCS: &str = "https://learn.microsoft.com/windows-server/remote/remote-desktop-services/remote-desktop-allow-access";
const LLMNR_DOCS: &str = "https://learn.microsoft.com/windows/client-management/mdm/policy-csp-admx-dnsclient";
const FIREWALL_DOCS: &str = "https://kubernetes.io/docs/reference/networking/ports-and-protocols/";
const DEFENDER_DOCS: &str = "https://learn.microsoft.com/defender-endpoint/configure-exclusions-microsoft-defender-antivirus";

/// Before the restart.
pub(super) fn stage(all: &mut Procedure, hardening: &Hardening) {
    let remedy = "Switch the field off in spec.windows.hardening if the node must do without it.";
    if hardening.smb1_off {
        let reason = "SMB 1 has no protection against whoever sits in between, and worms use it.";
        let kind = number(r"HKLM:\SYSTEM\CurrentControlSet\Services\LanmanServer\Parameters", "SMB1", 0, false);
        all.add(item("smb1-server-off", 28, 60, kind, why(reason, SMB_DOCS, remedy)));
        let kind = Kind::Feature { names: owned(&["SMB1Protocol"]), state: FeatureState::Disabled };
        all.add(item("smb1-feature-off", 28, 600, kind, why(reason, SMB_DOCS, remedy)));
    }
    for (on, id, key, name, value, restart, reason, link) in [
        (
            hardening.wdigest_off,
            "wdigest-off",
            r"HKLM:\SYSTEM\CurrentControlSet\Control\SecurityProviders\WDigest",
            "UseLogonCredential",
            0,
            false,
            "Passwords must not be in memory in plain text.",
            WDIGEST_DOCS,
        ),
        (
            hardening.rdp_network_level_authentication,
            "rdp-authentication",
            r"HKLM:\SYSTEM\CurrentControlSet\Control\Terminal Server\WinStations\RDP-Tcp",
            "UserAuthentication",
            1,
            false,
            "Nobody gets a session of Windows before it is clear who it is.",
            RDP_DOCS,
        ),
        (
            hardening.llmnr_off,
            "llmnr-off",
            r"HKLM:\SOFTWARE\Policies\Microsoft\Windows NT\DNSClient",
            "EnableMulticast",
            0,
            false,
            "Anybody in the network could answer for a name that DNS does not know.",
            LLMNR_DOCS,
        ),
        (
            hardening.lsa_protection,
            "lsa-protection",
            r"HKLM:\SYSTEM\CurrentControlSet\Control\Lsa",
            "RunAsPPL",
            1,
            true,
            "No other process reads credentials out of LSASS.",
            LSA_DOCS,
        ),
    ] {
        if on {
            all.add(item(id, 28, 60, number(key, name, value, restart), why(reason, link, remedy)));
        }
    }
}

/// The firewall and its rules, after the restart: features bring rules of their own.
pub(super) fn firewall(all: &mut Procedure, facts: &BootstrapFacts) {
    let remedy = "Start the service Windows Defender Firewall (mpssvc) in the image.";
    if facts.spec.windows.hardening.firewall {
        let reason = "Rules protect nothing while the firewall is off.";
        all.add(item("firewall-on", 34, 60, Kind::Script(Script::FirewallOn), why(reason, FIREWALL_DOCS, remedy)));
    }
    let open = &facts.spec.network.open_ports;
    for (on, id, protocol, port, reason) in [
        (open.vxlan, "firewall-vxlan", Protocol::Udp, "4789", "Overlay networks of Windows talk on this port and no other."),
        (open.node_ports, "firewall-node-ports-tcp", Protocol::Tcp, "30000-32767", "Services of type NodePort are reached here."),
        (open.node_ports, "firewall-node-ports-udp", Protocol::Udp, "30000-32767", "Services of type NodePort are reached here."),
        (open.kube_proxy_health, "firewall-proxy-health", Protocol::Tcp, "10256", "Load balancers ask here whether kube-proxy is well."),
        (open.exporter, "firewall-exporter", Protocol::Tcp, "9182", "Prometheus reads the metrics of windows_exporter here."),
    ] {
        if on {
            let rule = FirewallRule {
                name: id.trim_start_matches("firewall-").into(),
                direction: FirewallDirection::Inbound,
                action: FirewallAction::Allow,
                protocol: if protocol == Protocol::Udp { FirewallProtocol::Udp } else { FirewallProtocol::Tcp },
                ports: owned(&[port]),
                remote_addresses: Vec::new(),
            };
            all.add(item(id, 34, 60, rule_kind("capw", &rule), why(reason, FIREWALL_DOCS, remedy)));
        }
    }
    for rule in &facts.spec.network.firewall_rules {
        let kind = rule_kind("capw-user", rule);
        all.add(item(&format!("firewall-u-{}", rule.name), 34, 60, kind, why("You asked for it in spec.network.firewallRules.", NODE_DOCS, remedy)));
    }
    if facts.spec.network.block_metadata {
        let rule = FirewallRule {
            name: "metadata".into(),
            direction: FirewallDirection::Outbound,
            action: FirewallAction::Block,
            protocol: FirewallProtocol::Any,
            ports: Vec::new(),
            remote_addresses: owned(&["169.254.169.254"]),
        };
        let reason = "Whoever reaches this address gets the credentials that a cloud gives to the machine.";
        all.add(item("firewall-metadata", 34, 60, rule_kind("capw", &rule), why(reason, NODE_DOCS, remedy)));
    }
}

/// A rule of the user or of ours; names of both do not meet.
pub(super) fn rule_kind(prefix: &str, rule: &FirewallRule) -> Kind {
    Kind::Firewall {
        name: format!("{prefix}-{}", rule.name),
        direction: match rule.direction {
            FirewallDirection::Inbound => Direction::Inbound,
            FirewallDirection::Outbound => Direction::Outbound,
        },
        action: match rule.action {
            FirewallAction::Allow => Action::Allow,
            FirewallAction::Block => Action::Block,
        },
        protocol: match rule.protocol {
            FirewallProtocol::Tcp => Protocol::Tcp,
            FirewallProtocol::Udp => Protocol::Udp,
            FirewallProtocol::Any => Protocol::Any,
        },
        ports: rule.ports.clone(),
        remote: rule.remote_addresses.clone(),
    }
}

/// A scan of each file that an image brings makes unpacking several times slower, and handles that it holds keep layers from
/// being removed.
pub(super) fn defender(all: &mut Procedure) {
    let paths = [r"C:\ProgramData\containerd", paths::KUBELET_ROOT, r"C:\var\log", paths::KUBERNETES_BIN, r"C:\opt\cni", r"C:\etc\cni"];
    // By full path: a bare name would let a program of that name in any container go unscanned.
    let processes = [
        paths::CONTAINERD,
        r"C:\Program Files\containerd\containerd-shim-runhcs-v1.exe",
        paths::KUBELET,
        paths::KUBE_PROXY,
        r"C:\opt\cni\bin\calico.exe",
        r"C:\opt\cni\bin\calico-ipam.exe",
        r"C:\opt\cni\bin\flannel.exe",
    ];
    let kind = Kind::Script(Script::DefenderExclusions { paths: owned(&paths), processes: owned(&processes) });
    let reason = "The scan makes unpacking images several times slower and keeps layers from being removed.";
    let remedy = "Nothing needs to be done. Tamper protection or a policy forbids exclusions: make them there.";
    all.add(Item { optional: true, ..item("defender-exclusions", 90, 120, kind, why(reason, DEFENDER_DOCS, remedy)) });
}
