//! The node's own network: time, names, certificates, ports and routes. The proxy is in [`super::proxy`].

use data_encoding::HEXUPPER;
use sha1_smol::Sha1;
use x509_parser::pem::Pem;

use super::builder::{PlanBuilder, item, owned, why};
use super::registry::number;
use crate::api::bootstrap_config::{CA_BUNDLE, CA_BUNDLE_MAP, CaBundleSource};
use crate::bootstrap::digest::sha256;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, Kind, Protocol, RegistryData, Script};
use crate::vm::FailureCode;

const TIME_DOCS: &str = "https://learn.microsoft.com/windows-server/networking/windows-time-service/windows-time-service-tools-and-settings";
const TLS_DOCS: &str = "https://learn.microsoft.com/dotnet/framework/network-programming/tls";
const DNS_DOCS: &str = "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#dns-windows";
const CERTUTIL_DOCS: &str = "https://learn.microsoft.com/windows-server/administration/windows-commands/certutil";
const NETSH_DOCS: &str = "https://learn.microsoft.com/troubleshoot/windows-server/networking/default-dynamic-port-range-tcpip-chang";
const ROUTE_DOCS: &str = "https://learn.microsoft.com/windows-server/administration/windows-commands/route_ws2008";

/// Returns a Windows command that is skipped if the check holds.
fn command(argv: &[&str], check: Check) -> Kind {
    Kind::Command {
        argv: owned(argv),
        raw: None,
        directory: r"C:\Windows".into(),
        check: Some(check),
        exit_codes: Default::default(),
        undo: Vec::new(),
    }
}

fn registry(key: &str, name: &str, equals: &str) -> Check {
    Check::Registry { key: key.into(), name: name.into(), equals: equals.into() }
}

/// Adds time, names and certificates, which every download needs.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    time(all, facts);
    let network = &facts.spec.network;
    if !network.dns_suffixes.is_empty() {
        let kind = Kind::Registry {
            key: r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters".into(),
            name: "SearchList".into(),
            data: RegistryData::String(network.dns_suffixes.join(",")),
            restart: false,
        };
        let reason = "Short names are looked up in these domains, in this order.";
        all.add(item("dns-suffixes", FailureCode::DnsSuffixes, 60, kind, why(reason, DNS_DOCS, "Check spec.network.dnsSuffixes.")));
    }
    for (id, key) in [
        ("tls-dotnet", r"HKLM:\SOFTWARE\Microsoft\.NETFramework\v4.0.30319"),
        ("tls-dotnet-32", r"HKLM:\SOFTWARE\Wow6432Node\Microsoft\.NETFramework\v4.0.30319"),
    ] {
        let reason = "Without it, PowerShell 5.1 and other .NET programs offer only TLS versions that servers refuse.";
        let kind = number(key, "SchUseStrongCrypto", 1, false);
        all.add(item(id, FailureCode::CertificateAuthority, 60, kind, why(reason, TLS_DOCS, "Look into C:\\ProgramData\\capw\\bootstrap.log.")));
    }
    certificates(all, facts)
}

fn time(all: &mut PlanBuilder, facts: &BootstrapFacts) {
    const PARAMETERS: &str = r"HKLM:\SYSTEM\CurrentControlSet\Services\W32Time\Parameters";
    const SERVICE: &str = r"HKLM:\SYSTEM\CurrentControlSet\Services\W32Time";
    let servers = &facts.spec.network.time_servers;
    // If the plan compares the clock, it must also be able to set the clock.
    if servers.is_empty() && facts.spec.network.clock_tolerance_seconds == 0 {
        return;
    }
    let remedy = "Check spec.network.timeServers, and that UDP port 123 is open to them.";
    // 0x8: the mode of a client, which an NTP server answers.
    let peers = servers.iter().map(|server| format!("{server},0x8")).collect::<Vec<_>>().join(" ");
    for (id, argv, check, reason) in [
        (
            "time-service-automatic",
            owned(&["sc.exe", "config", "w32time", "start=", "auto"]),
            registry(SERVICE, "Start", "2"),
            "On a machine outside a domain, Windows runs its time service only now and then.",
        ),
        (
            "time-service-triggers",
            owned(&["sc.exe", "triggerinfo", "w32time", "delete"]),
            // The key itself may stay, but without triggers.
            Check::Not(Box::new(Check::RegistryKey(format!(r"{SERVICE}\TriggerInfo\0")))),
            "On a machine outside a domain, Windows runs its time service only now and then.",
        ),
    ] {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        all.add(item(id, FailureCode::TimeService, 60, command(&argv, check), why(reason, TIME_DOCS, remedy)));
    }
    let kind = Kind::Running { name: "W32Time".into(), after: Vec::new() };
    all.add(item("time-service-running", FailureCode::TimeService, 120, kind, why("It keeps the clock accurate.", TIME_DOCS, remedy)));
    if servers.is_empty() {
        return;
    }
    let list = format!("/manualpeerlist:{peers}");
    let check = Check::All(vec![registry(PARAMETERS, "NtpServer", &peers), registry(PARAMETERS, "Type", "NTP")]);
    let kind = command(&["w32tm.exe", "/config", &list, "/syncfromflags:manual", "/update"], check);
    all.add(item(
        "time-servers",
        FailureCode::TimeService,
        60,
        kind,
        why("Certificates and tokens have validity periods, so the clock must be accurate.", TIME_DOCS, remedy),
    ));
}

/// Compares the clock with the clock of the API server, which signs the certificates of the node.
pub(super) fn clock(all: &mut PlanBuilder, facts: &BootstrapFacts) {
    let Some(within) = u32::try_from(facts.spec.network.clock_tolerance_seconds).ok().filter(|seconds| *seconds > 0) else { return };
    let kind = Kind::Script(Script::Clock { url: format!("https://{}/healthz", facts.endpoint), within });
    let reason = "With a wrong clock, the node considers the cluster's certificates expired or not yet valid.";
    let remedy = "Check that the API server's address answers from the machine, that its time servers (spec.network.timeServers) are right, and that the hypervisor's clock is in the time zone that the image expects (UTC or local time).";
    all.add(item("clock", FailureCode::Clock, 300, kind, why(reason, TIME_DOCS, remedy)));
}

/// Adds one item per certificate, recognized by its thumbprint in the machine's store.
fn certificates(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let network = &facts.spec.network;
    let (field, pem) = match (&network.ca_bundle, &network.ca_bundle_from) {
        (None, None) => return Ok(()),
        (Some(pem), None) => ("spec.network.caBundle", pem.as_bytes()),
        (None, Some(CaBundleSource { secret_key_ref: Some(reference), config_map_key_ref: None })) => {
            (CA_BUNDLE, facts.secrets.bytes(CA_BUNDLE, reference)?)
        }
        (None, Some(CaBundleSource { secret_key_ref: None, config_map_key_ref: Some(reference) })) => {
            (CA_BUNDLE_MAP, facts.secrets.public(CA_BUNDLE_MAP, reference)?)
        }
        (None, Some(_)) => return Err(RenderError::invalid("spec.network.caBundleFrom", "", "give exactly one of secretKeyRef and configMapKeyRef")),
        (Some(_), Some(_)) => return Err(RenderError::invalid("spec.network.caBundle", "(not shown)", "give caBundle or caBundleFrom, not both")),
    };
    let wrong = |text: String| RenderError::invalid(field, "(not shown)", text);
    let mut found = 0;
    for block in Pem::iter_from_buffer(pem) {
        let block = block.map_err(|e| wrong(format!("it is not PEM: {e}")))?;
        block.parse_x509().map_err(|e| wrong(format!("block {} is not a certificate: {e}", found + 1)))?;
        let source = format!("files/ca-{found:02}.cer");
        let path = format!(r"{}\{}", paths::PAYLOAD, source.replace('/', r"\"));
        let thumbprint = HEXUPPER.encode(&Sha1::from(&block.contents).digest().bytes());
        all.files.insert(source, block.contents);
        let check = Check::RegistryKey(format!(r"HKLM:\SOFTWARE\Microsoft\SystemCertificates\ROOT\Certificates\{thumbprint}"));
        let kind = command(&["certutil.exe", "-f", "-addstore", "Root", &path], check);
        let reason = "Windows, containerd and .NET trust certificates signed by this authority.";
        all.add(item(
            &format!("ca-{found:02}"),
            FailureCode::CertificateAuthority,
            60,
            kind,
            why(reason, CERTUTIL_DOCS, "Check that it is the certificate of a certificate authority."),
        ));
        found += 1;
    }
    if found == 0 {
        return Err(wrong("expected at least one certificate in PEM form, from -----BEGIN CERTIFICATE----- on".into()));
    }
    // The bundle is for programs that do not use the store of Windows.
    let kind = Kind::File { path: paths::CA_BUNDLE.into(), source: "files/ca-bundle.pem".into(), sha256: sha256(pem), access: Access::Readable };
    all.files.insert("files/ca-bundle.pem".into(), pem.to_vec());
    let reason = "Programs that do not use the certificate store of Windows find the authorities here.";
    all.add(item(
        "ca-bundle",
        FailureCode::CertificateAuthority,
        60,
        kind,
        why(reason, CERTUTIL_DOCS, "Check the free space and the health of drive C:."),
    ));
    Ok(())
}

/// Adds ports and routes.
pub(super) fn ports_and_routes(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let network = &facts.spec.network;
    let remedy = "Compare the ranges in spec.network with the output of netsh int ipv4 show excludedportrange on the machine.";
    let protocols = [(Protocol::Tcp, "tcp"), (Protocol::Udp, "udp")];
    let port =
        |field: &str, value: i32| u16::try_from(value).map_err(|_| RenderError::invalid(field, value.to_string(), "give a number below 65536"));
    if let Some(range) = network.dynamic_ports {
        let (start, count) = (port("spec.network.dynamicPorts.start", range.start)?, port("spec.network.dynamicPorts.count", range.count)?);
        if count < 255 {
            return Err(RenderError::invalid("spec.network.dynamicPorts.count", count.to_string(), "Windows wants at least 255 ports here"));
        }
        for (protocol, name) in protocols {
            let kind = Kind::Script(Script::DynamicPorts { protocol, start, count });
            let reason = "Without direct server return, kube-proxy takes 64 of these ports for each Service.";
            all.add(item(&format!("dynamic-ports-{name}"), FailureCode::PortRange, 60, kind, why(reason, NETSH_DOCS, remedy)));
        }
    }
    for (index, range) in network.reserved_ports.iter().enumerate() {
        let field = format!("spec.network.reservedPorts[{index}]");
        let (start, count) = (port(&field, range.start)?, port(&field, range.count)?);
        for (protocol, name) in protocols {
            let kind = Kind::Script(Script::ReservedPorts { protocol, start, count });
            let reason = "Outgoing connections must not take the port that a Service needs.";
            all.add(item(&format!("reserved-ports-{name}-{index}"), FailureCode::PortRange, 60, kind, why(reason, NETSH_DOCS, remedy)));
        }
    }
    for (index, Route { address, mask, gateway, metric, .. }) in routes(facts)?.into_iter().enumerate() {
        // Windows stores persistent routes in this form.
        let name = format!("{address},{mask},{gateway},{metric}");
        let argv = ["route.exe", "-p", "ADD", &address, "MASK", &mask, gateway, "METRIC", &metric];
        let check = Check::RegistryValue { key: r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\PersistentRoutes".into(), name };
        let reason = "spec.network.routes asks for it.";
        all.add(item(
            &format!("route-{index:02}"),
            FailureCode::Route,
            60,
            command(&argv, check),
            why(reason, ROUTE_DOCS, "Check that the gateway is on a network of the machine."),
        ));
    }
    Ok(())
}

/// A route in the form that Windows uses.
pub(super) struct Route<'a> {
    pub prefix: &'a str,
    pub address: String,
    pub mask: String,
    pub gateway: &'a str,
    pub metric: String,
}

/// Returns the routes of the spec.
pub(super) fn routes(facts: &BootstrapFacts) -> Result<Vec<Route<'_>>, RenderError> {
    let all = facts.spec.network.routes.iter().enumerate();
    all.map(|(index, route)| {
        let (address, mask) = masked(&route.destination).ok_or_else(|| {
            let remedy = "expected an IPv4 network without bits below its prefix, e.g. 10.20.0.0/16";
            RenderError::invalid(format!("spec.network.routes[{index}].destination"), &route.destination, remedy)
        })?;
        Ok(Route { prefix: &route.destination, address, mask, gateway: &route.gateway, metric: route.metric.to_string() })
    })
    .collect()
}

/// Returns the address and mask of a network such as `10.20.0.0/16`.
fn masked(network: &str) -> Option<(String, String)> {
    let (address, prefix) = network.split_once('/')?;
    let address: std::net::Ipv4Addr = address.parse().ok()?;
    let prefix: u32 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    (u32::from(address) & !mask == 0).then(|| (address.to_string(), std::net::Ipv4Addr::from(mask).to_string()))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn networks_have_masks() {
        for (network, expected) in [
            ("10.20.0.0/16", Some(("10.20.0.0", "255.255.0.0"))),
            ("0.0.0.0/0", Some(("0.0.0.0", "0.0.0.0"))),
            ("10.0.0.1/32", Some(("10.0.0.1", "255.255.255.255"))),
            ("10.0.0.1/24", None),
            ("10.0.0.0/33", None),
            ("fd00::/8", None),
            ("10.0.0.0", None),
        ] {
            assert_eq!(masked(network), expected.map(|(a, m)| (a.to_owned(), m.to_owned())), "{network}");
        }
    }
}
