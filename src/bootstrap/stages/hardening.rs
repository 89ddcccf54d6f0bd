//! Hardening, the firewall and its rules, and exclusions for Microsoft Defender.

use super::builder::{NODE_DOCS, PlanBuilder, item, owned, why};
use super::registry::number;
use crate::api::bootstrap_config::{FirewallAction, FirewallDirection, FirewallProtocol, FirewallRule, Hardening};
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Action, Direction, FeatureState, Item, Kind, Protocol, Script};
use crate::vm::FailureCode;

const SMB_DOCS: &str = "https://learn.microsoft.com/windows-server/storage/file-server/troubleshoot/detect-enable-and-disable-smbv1-v2-v3";
const WDIGEST_DOCS: &str = "https://learn.microsoft.com/troubleshoot/windows-server/windows-security/credential-protection-management";
const LSA_DOCS: &str =
    "https://learn.microsoft.com/windows-server/security/credentials-protection-and-management/configuring-additional-lsa-protection";
const RDP_DOCS: &str = "https://learn.microsoft.com/windows-server/remote/remote-desktop-services/remote-desktop-allow-access";
const LLMNR_DOCS: &str = "https://learn.microsoft.com/windows/client-management/mdm/policy-csp-admx-dnsclient";
const SCHANNEL_DOCS: &str = "https://learn.microsoft.com/windows-server/security/tls/tls-registry-settings";
const SMB_SIGNING_DOCS: &str = "https://learn.microsoft.com/windows-server/storage/file-server/smb-signing-overview";
const NTLM_DOCS: &str =
    "https://learn.microsoft.com/windows/security/threat-protection/security-policy-settings/network-security-lan-manager-authentication-level";
const SPOOLER_DOCS: &str = "https://learn.microsoft.com/defender-for-identity/security-assessment-print-spooler";
const FIREWALL_DOCS: &str = "https://kubernetes.io/docs/reference/networking/ports-and-protocols/";
const DEFENDER_DOCS: &str = "https://learn.microsoft.com/defender-endpoint/configure-exclusions-microsoft-defender-antivirus";

/// Adds the settings that are applied before the restart.
pub(super) fn stage(all: &mut PlanBuilder, hardening: &Hardening) {
    let remedy = "Switch the setting off in spec.windows.hardening if the node cannot have it.";
    if hardening.smb1_off {
        let reason = "SMB 1 cannot detect tampering on the way, and worms exploit it.";
        let kind = number(r"HKLM:\SYSTEM\CurrentControlSet\Services\LanmanServer\Parameters", "SMB1", 0, false);
        all.add(item("smb1-server-off", FailureCode::Hardening, 60, kind, why(reason, SMB_DOCS, remedy)));
        let kind = Kind::Feature { names: owned(&["SMB1Protocol"]), state: FeatureState::Disabled };
        all.add(item("smb1-feature-off", FailureCode::Hardening, 600, kind, why(reason, SMB_DOCS, remedy)));
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
            "Users must authenticate before Windows opens a session for them.",
            RDP_DOCS,
        ),
        (
            hardening.llmnr_off,
            "llmnr-off",
            r"HKLM:\SOFTWARE\Policies\Microsoft\Windows NT\DNSClient",
            "EnableMulticast",
            0,
            false,
            "Any machine on the network could answer for a name that DNS does not know.",
            LLMNR_DOCS,
        ),
        (
            hardening.lsa_protection,
            "lsa-protection",
            r"HKLM:\SYSTEM\CurrentControlSet\Control\Lsa",
            "RunAsPPL",
            1,
            true,
            "No other process can read credentials out of LSASS.",
            LSA_DOCS,
        ),
    ] {
        if on {
            all.add(item(id, FailureCode::Hardening, 60, number(key, name, value, restart), why(reason, link, remedy)));
        }
    }
    by_choice(all, hardening, remedy);
}

/// Adds the settings that security baselines require, but that clients of a node may not support.
fn by_choice(all: &mut PlanBuilder, hardening: &Hardening, remedy: &'static str) {
    const SCHANNEL: &str = r"HKLM:\SYSTEM\CurrentControlSet\Control\SecurityProviders\SCHANNEL\Protocols";
    const SERVICES: &str = r"HKLM:\SYSTEM\CurrentControlSet\Services";
    let mut add = |on: bool, id: String, key: String, name: &str, value, reason, link| {
        if on {
            all.add(item(&id, FailureCode::Hardening, 60, number(&key, name, value, true), why(reason, link, remedy)));
        }
    };
    for (version, id) in [("TLS 1.0", "tls-1-0"), ("TLS 1.1", "tls-1-1")] {
        for (side, end) in [("Client", "client"), ("Server", "server")] {
            for (name, value, what) in [("Enabled", 0, "off"), ("DisabledByDefault", 1, "not-default")] {
                let reason = "These versions of TLS are broken; Kubernetes uses 1.2 and newer.";
                let key = format!(r"{SCHANNEL}\{version}\{side}");
                add(hardening.legacy_tls_off, format!("{id}-{end}-{what}"), key, name, value, reason, SCHANNEL_DOCS);
            }
        }
    }
    for (service, id) in [("LanmanServer", "smb-signing-server"), ("LanmanWorkstation", "smb-signing-client")] {
        let reason = "Without signatures others on the network can change what is sent.";
        let key = format!(r"{SERVICES}\{service}\Parameters");
        add(hardening.smb_signing, id.into(), key, "RequireSecuritySignature", 1, reason, SMB_SIGNING_DOCS);
    }
    let lsa = r"HKLM:\SYSTEM\CurrentControlSet\Control\Lsa".to_owned();
    let reason = "The answers of LM and NTLMv1 can be turned back into passwords.";
    add(hardening.ntlm_v1_off, "ntlm-v1-off".into(), lsa, "LmCompatibilityLevel", 5, reason, NTLM_DOCS);
    let reason = "No node prints, and defects of the spooler give attackers the machine.";
    add(hardening.print_spooler_off, "print-spooler-off".into(), format!(r"{SERVICES}\Spooler"), "Start", 4, reason, SPOOLER_DOCS);
}

/// Adds the firewall and its rules, after the restart: features add their own rules.
pub(super) fn firewall(all: &mut PlanBuilder, facts: &BootstrapFacts) {
    let remedy = "Start the service Windows Defender Firewall (mpssvc) in the image.";
    if facts.spec.windows.hardening.firewall {
        let reason = "Rules have no effect while the firewall is off.";
        all.add(item("firewall-on", FailureCode::Firewall, 60, Kind::Script(Script::FirewallOn), why(reason, FIREWALL_DOCS, remedy)));
    }
    let open = &facts.spec.network.open_ports;
    let node_ports = &facts.spec.network.node_port_sources;
    for (on, id, protocol, port, reason) in [
        (open.vxlan, "firewall-vxlan", Protocol::Udp, "4789", "Overlay networks of Windows use this port and no other."),
        (open.node_ports, "firewall-node-ports-tcp", Protocol::Tcp, "30000-32767", "Services of type NodePort are reached here."),
        (open.node_ports, "firewall-node-ports-udp", Protocol::Udp, "30000-32767", "Services of type NodePort are reached here."),
        (open.kube_proxy_health, "firewall-proxy-health", Protocol::Tcp, "10256", "Load balancers check here whether kube-proxy is healthy."),
        (open.exporter, "firewall-exporter", Protocol::Tcp, "9182", "Prometheus reads the metrics of windows_exporter here."),
    ] {
        if on {
            let rule = FirewallRule {
                name: id.trim_start_matches("firewall-").into(),
                direction: FirewallDirection::Inbound,
                action: FirewallAction::Allow,
                protocol: if protocol == Protocol::Udp { FirewallProtocol::Udp } else { FirewallProtocol::Tcp },
                ports: owned(&[port]),
                remote_addresses: if id.starts_with("firewall-node-ports") { node_ports.clone() } else { Vec::new() },
            };
            all.add(item(id, FailureCode::Firewall, 60, rule_kind("capw", &rule), why(reason, FIREWALL_DOCS, remedy)));
        }
    }
    for rule in &facts.spec.network.firewall_rules {
        let kind = rule_kind("capw-user", rule);
        all.add(item(
            &format!("firewall-u-{}", rule.name),
            FailureCode::Firewall,
            60,
            kind,
            why("spec.network.firewallRules asks for it.", NODE_DOCS, remedy),
        ));
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
        let reason = "This address hands out the credentials that a cloud gives to the machine.";
        all.add(item("firewall-metadata", FailureCode::Firewall, 60, rule_kind("capw", &rule), why(reason, NODE_DOCS, remedy)));
    }
}

/// Returns the item of a firewall rule; the prefix keeps our names and the users' apart.
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

/// Excludes files from Defender: images unpack several times slower with scans, and the scanner's open handles prevent layers from being removed.
pub(super) fn defender(all: &mut PlanBuilder) {
    let paths = [r"C:\ProgramData\containerd", paths::KUBELET_ROOT, r"C:\var\log", paths::KUBERNETES_BIN, r"C:\opt\cni", r"C:\etc\cni"];
    // Programs are excluded by full path: a bare name would also exclude a program of that name in any container.
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
    let remedy = "The node works without it. Tamper protection or a policy forbids exclusions: add them there.";
    all.add(Item { optional: true, ..item("defender-exclusions", FailureCode::DefenderExclusions, 120, kind, why(reason, DEFENDER_DOCS, remedy)) });
}
