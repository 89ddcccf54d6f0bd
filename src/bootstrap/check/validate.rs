//! Checks that the CRD schema cannot express: facts from other objects, and values that only Windows rejects.

use std::collections::BTreeSet;
use std::net::IpAddr;

use secrecy::ExposeSecret;

use crate::api::bootstrap_config::RENDERED;
use crate::api::name::ProviderId;
use crate::bootstrap::digest::ca_hash;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Item, Kind, Plan};
use crate::compat;

/// Returns the first invalid fact.
pub(in crate::bootstrap) fn check(facts: &BootstrapFacts) -> Result<(), RenderError> {
    credentials(facts)?;
    network(facts)?;
    versions(facts)?;
    labels(facts)?;
    kubelet(facts)?;
    registries(facts)?;
    programs(facts)?;
    files(facts)?;
    steps(facts)
}

fn credentials(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let token = facts.token.expose_secret();
    let plain = |part: &str, length: usize| part.len() == length && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !token.split_once('.').is_some_and(|(id, secret)| plain(id, 6) && plain(secret, 16)) {
        return Err(RenderError::invalid("bootstrap token", "(not shown)", "expected six characters, a dot and sixteen characters of a-z and 0-9"));
    }
    let expected = ca_hash(&facts.ca_pem)?;
    if facts.ca_hash != expected {
        return Err(RenderError::invalid(
            "CA hash",
            &facts.ca_hash,
            format!("the certificate given has {expected}: give both from the same cluster"),
        ));
    }
    if let Some(id) = &facts.provider_id {
        ProviderId::parse(id).map_err(|e| RenderError::invalid("spec.providerID", id, e.to_string()))?;
    }
    Ok(())
}

fn network(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let endpoint = facts.endpoint.as_str();
    if !host_and_port_ok(endpoint) {
        let remedy = "expected host:port of the API server without a scheme, IPv6 in brackets, e.g. api.example.com:6443";
        return Err(RenderError::invalid("controlPlaneEndpoint", endpoint, remedy));
    }
    if let Some(wrong) = facts.cluster_dns.iter().find(|address| address.parse::<IpAddr>().is_err()) {
        return Err(RenderError::invalid("spec.kubelet.clusterDNS", wrong, "expected an IP address, e.g. 10.96.0.10"));
    }
    let domain = facts.cluster_domain.as_str();
    if !domain.is_empty() && !name_ok(domain) {
        return Err(RenderError::invalid("clusterNetwork.serviceDomain", domain, "expected a DNS name in lower case, e.g. cluster.local"));
    }
    Ok(())
}

fn name_ok(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 253
        && name.split('.').all(|part| (1..=63).contains(&part.len()) && part.chars().all(plain) && !part.starts_with('-') && !part.ends_with('-'))
}

fn host_ok(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name_ok(&host.to_ascii_lowercase()),
    }
}

fn host_and_port_ok(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| host_ok(host) && port.parse::<u16>().is_ok_and(|p| p > 0))
}

fn versions(facts: &BootstrapFacts) -> Result<(), RenderError> {
    if let Some(image) =
        facts.spec.containerd.sandbox_image.as_deref().filter(|image| image.is_empty() || image.chars().any(|c| !c.is_ascii_graphic()))
    {
        return Err(RenderError::invalid("spec.containerd.sandboxImage", image, "expected an image reference, e.g. registry.k8s.io/pause:3.10.2"));
    }
    if let Some(server) = facts.api_server_minor.filter(|server| facts.kubernetes.minor > *server) {
        return Err(RenderError::Incompatible(compat::newer_than_server(&facts.kubernetes.to_string(), server)));
    }
    compat::check(&facts.spec, &facts.kubernetes.to_string()).map_err(RenderError::Incompatible)
}

/// Checks labels and taints, which become part of a command line and a manifest.
fn labels(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let part = |text: &str| {
        let end = |c: char| c.is_ascii_alphanumeric();
        text.len() <= 63 && text.chars().all(|c| end(c) || "-_.".contains(c)) && text.starts_with(end) && text.ends_with(end)
    };
    let key_ok = |key: &str| match key.split_once('/') {
        Some((prefix, name)) => name_ok(prefix) && part(name),
        None => part(key),
    };
    for (key, value) in &facts.spec.kubelet.node_labels {
        if !key_ok(key) || !(value.is_empty() || part(value)) {
            let remedy = "expected a Kubernetes label: at most 63 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit";
            return Err(RenderError::invalid("spec.kubelet.nodeLabels", format!("{key}={value}"), remedy));
        }
    }
    for taint in facts.spec.kubelet.taints.iter().flatten() {
        let value = taint.value.as_deref().unwrap_or_default();
        if !key_ok(&taint.key) || !(value.is_empty() || part(value)) {
            return Err(RenderError::invalid(
                "spec.kubelet.taints",
                format!("{}={value}", taint.key),
                "expected key and value in the form of a label",
            ));
        }
    }
    Ok(())
}

/// Checks the programs' digests, which protect the node's administrators from a malicious mirror.
fn programs(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let programs = &facts.spec.programs;
    if let Some(address) = &programs.base_url {
        web_address("spec.programs.baseURL".into(), address)?;
    }
    for download in &programs.downloads {
        let field = |name: &str| format!("spec.programs.downloads[{}].{name}", download.name.name());
        let digits = |length: usize, text: &str| text.len() == length && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        let good = match download.digest.split_once(':') {
            Some(("sha256", hex)) => digits(64, hex),
            Some(("sha512", hex)) => digits(128, hex),
            _ => false,
        };
        if !good {
            let remedy = "expected sha256: with 64 or sha512: with 128 hexadecimal digits in lower case";
            return Err(RenderError::invalid(field("digest"), &download.digest, remedy));
        }
        if let Some(address) = &download.url {
            web_address(field("url"), address)?;
        }
    }
    Ok(())
}

fn web_address(field: String, address: &str) -> Result<(), RenderError> {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://")).unwrap_or_default();
    let place = rest.split(['/', '?']).next().unwrap_or_default();
    let is_plain = rest.chars().all(|c| c.is_ascii_graphic() && !"@\"<>^`{|}\\".contains(c));
    if is_plain && (host_ok(place) || host_and_port_ok(place)) {
        return Ok(());
    }
    let remedy = "expected an http or https address without user name and spaces, IPv6 in brackets, e.g. https://mirror.example.com/kubernetes";
    Err(RenderError::invalid(field, address, remedy))
}

/// Checks the registries. If containerd cannot read a certificate, it ignores the whole list of mirrors.
fn registries(facts: &BootstrapFacts) -> Result<(), RenderError> {
    for registry in &facts.spec.containerd.registries {
        for mirror in &registry.mirrors {
            let Some(pem) = &mirror.ca_certificates else { continue };
            let wrong = |remedy: String| {
                let field = format!("spec.containerd.registries[{}].mirrors[{}].caCertificates", registry.host, mirror.url);
                Err(RenderError::invalid(field, "(not shown)", remedy))
            };
            let mut found = 0;
            for block in x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()) {
                match block {
                    Ok(block) if block.label == "CERTIFICATE" && block.parse_x509().is_ok() => found += 1,
                    Ok(block) => return wrong(format!("expected only certificates in PEM form, found a block {:?}", block.label)),
                    Err(error) => return wrong(format!("expected certificates in PEM form: {error}")),
                }
            }
            if found == 0 {
                return wrong("expected a certificate in PEM form, starting with -----BEGIN CERTIFICATE-----".into());
            }
        }
    }
    Ok(())
}

/// The size limit of the users' own fields; the schema cannot express it.
const EXTRA_CONFIG: usize = 16 << 10;

fn kubelet(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let spec = &facts.spec.kubelet;
    let addresses: Vec<Option<IpAddr>> = spec.node_ips.iter().map(|address| address.parse().ok()).collect();
    let families = addresses.iter().flatten().map(IpAddr::is_ipv4).collect::<BTreeSet<bool>>().len();
    if addresses.len() > 2 || addresses.contains(&None) || families < addresses.len() {
        let remedy = "expected one IP address, or one of IPv4 and one of IPv6, e.g. 10.0.0.21";
        return Err(RenderError::invalid("spec.kubelet.nodeIPs", spec.node_ips.join(","), remedy));
    }
    let size = serde_json::to_string(&spec.extra_config).map_or(usize::MAX, |text| text.len());
    if size > EXTRA_CONFIG {
        return Err(RenderError::invalid("spec.kubelet.extraConfig", format!("{size} bytes"), format!("give at most {EXTRA_CONFIG} bytes")));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for argument in &spec.extra_args {
        if argument.name.is_empty() || argument.name.starts_with('-') || !argument.name.chars().all(plain) {
            let remedy = "expected the name of a flag in lower case without --, e.g. node-status-max-images";
            return Err(RenderError::invalid("spec.kubelet.extraArgs", &argument.name, remedy));
        }
        if argument.value.is_empty() || argument.value.chars().any(|c| c != ' ' && !c.is_ascii_graphic()) {
            let remedy = "expected at least one character, and only printable ASCII: empty values get lost in the command line of a service";
            return Err(RenderError::invalid(format!("spec.kubelet.extraArgs[{}]", argument.name), &argument.value, remedy));
        }
    }
    Ok(())
}

/// Checks that the users' files do not replace rendered files. Which files are rendered depends on the whole spec.
pub fn check_files(facts: &BootstrapFacts, plan: &Plan) -> Result<(), RenderError> {
    let own = |item: &&Item| !item.id.starts_with("file-");
    let writes = |item: &Item, path: &str| matches!(&item.kind, Kind::File { path: target, .. } if target.eq_ignore_ascii_case(path));
    for (index, file) in facts.spec.files.iter().enumerate() {
        if let Some(item) = plan.items.iter().filter(own).find(|item| writes(item, &file.path)) {
            let remedy = format!("the step {} of the plan writes this file: use the fields of the spec, or another path", item.id);
            return Err(RenderError::invalid(format!("spec.files[{index}].path"), &file.path, remedy));
        }
    }
    Ok(())
}

fn files(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let mut seen = BTreeSet::new();
    for (index, file) in facts.spec.files.iter().enumerate() {
        let wrong = |remedy: &str| Err(RenderError::invalid(format!("spec.files[{index}].path"), &file.path, remedy));
        let lower = file.path.to_lowercase();
        if !is_path(&file.path) {
            return wrong(
                "expected an absolute Windows path, e.g. C:\\k\\audit.json, without `..`, wildcards and names that end with a dot or space",
            );
        }
        if lower == paths::ROOT.to_lowercase() || lower.starts_with(&format!("{}\\", paths::ROOT.to_lowercase())) {
            return wrong("this directory belongs to the bootstrap itself: choose another one");
        }
        if RENDERED.contains(&lower.as_str()) {
            return wrong("this file is rendered: use the fields of spec.kubelet and spec.containerd, or another path");
        }
        if !seen.insert(lower) {
            return wrong("the same file is given twice; Windows does not distinguish upper and lower case");
        }
    }
    Ok(())
}

/// Whether the text is an absolute path of Windows in which Windows keeps each name unchanged.
fn is_path(path: &str) -> bool {
    let part_ok = |part: &str| !part.is_empty() && !part.ends_with(['.', ' ']) && !part.chars().any(|c| c.is_control() || "<>:\"/|?*".contains(c));
    let is_on_drive = path.starts_with(|c: char| c.is_ascii_alphabetic());
    is_on_drive && path.get(1..).and_then(|rest| rest.strip_prefix(":\\")).is_some_and(|rest| rest.split('\\').all(part_ok))
}

/// Checks the directory and the check of each command: if one is invalid, the command would fail on the node, or run needlessly.
fn steps(facts: &BootstrapFacts) -> Result<(), RenderError> {
    let lists = [("beforeJoin", &facts.spec.steps.before_join), ("afterJoin", &facts.spec.steps.after_join)];
    let numbered = lists.into_iter().flat_map(|(list, steps)| steps.iter().enumerate().map(move |(index, step)| (list, index, step)));
    for (list, index, step) in numbered {
        let Some(command) = &step.command else { continue };
        let wrong =
            |field: &str, value: &str, remedy: &str| Err(RenderError::invalid(format!("spec.steps.{list}[{index}].command.{field}"), value, remedy));
        if let Some(directory) = &command.directory
            && !is_path(&format!("{}\\x", directory.strip_suffix('\\').unwrap_or(directory)))
        {
            return wrong("directory", directory, "expected an absolute Windows path of a directory, e.g. C:\\k");
        }
        let Some(check) = &command.check else { continue };
        if let Some(file) = check.file.as_ref().filter(|file| !is_path(file)) {
            return wrong("check.file", file, "expected an absolute Windows path of a file, e.g. C:\\k\\done");
        }
        let is_service = |name: &str| !name.is_empty() && name == name.trim() && !name.chars().any(|c| c.is_control() || "/\\*?[]".contains(c));
        if let Some(service) = check.service.as_ref().filter(|service| !is_service(service)) {
            return wrong("check.service", service, "expected the name of one service as Get-Service shows it, e.g. containerd");
        }
    }
    Ok(())
}
