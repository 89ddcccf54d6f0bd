//! Mirrors: a directory per registry with a `hosts.toml`, and the CAs beside it. containerd reads them at each pull
//! (<https://github.com/containerd/containerd/blob/main/docs/hosts.md>).

use toml::{Table, Value};

use super::super::error::RenderError;
use super::super::paths;
use super::{table, text};
use crate::api::bootstrap_config::{Capability, Fallback, Mirror, Registry};

/// A file below `certs.d`.
pub(in super::super) struct HostFile {
    pub path: String,
    pub text: String,
}

/// Name of a registry's directory. A colon is no character of a Windows file name: containerd looks for `host_5000_`.
fn directory(host: &str) -> String {
    match host.split_once(':') {
        _ if host == "*" => "_default".into(),
        Some((host, port)) => format!("{host}_{port}_"),
        None => host.into(),
    }
}

/// Every file for these registries, in their order.
pub(in super::super) fn files(registries: &[Registry]) -> Result<Vec<HostFile>, RenderError> {
    let mut files = Vec::new();
    for registry in registries {
        let directory = format!(r"{}\{}", paths::REGISTRIES, directory(&registry.host));
        for (number, mirror) in registry.mirrors.iter().enumerate() {
            if let Some(pem) = &mirror.ca_certificates {
                files.push(HostFile { path: format!(r"{directory}\{}", ca(number)), text: pem.clone() });
            }
        }
        files.push(HostFile { path: format!(r"{directory}\hosts.toml"), text: hosts(registry)? });
    }
    Ok(files)
}

/// File name of the CAs of a mirror, beside its `hosts.toml`.
fn ca(number: usize) -> String {
    format!("mirror-{number}-ca.pem")
}

/// `hosts.toml`. The order of the `host` tables is the order in which containerd asks; `server` comes last.
fn hosts(registry: &Registry) -> Result<String, RenderError> {
    let mut document = Table::new();
    let mut mirrors: Vec<(usize, &Mirror)> = registry.mirrors.iter().enumerate().collect();
    // Without `server` the last one asked is the registry itself.
    if registry.fallback == Fallback::None
        && let Some((number, last)) = mirrors.pop()
    {
        document.insert("server".into(), last.url.as_str().into());
        document.extend(options(number, last));
    }
    if !mirrors.is_empty() {
        let hosts = mirrors.into_iter().map(|(number, mirror)| (mirror.url.clone(), Value::Table(options(number, mirror))));
        document.insert("host".into(), Value::Table(hosts.collect()));
    }
    text("containerd's list of mirrors", &document)
}

fn options(number: usize, mirror: &Mirror) -> Table {
    let both = [Capability::Pull, Capability::Resolve];
    let asked = if mirror.capabilities.is_empty() { &both[..] } else { &mirror.capabilities };
    let names = asked.iter().map(|capability| match capability {
        Capability::Pull => Value::from("pull"),
        Capability::Resolve => Value::from("resolve"),
    });
    let mut options = table([("capabilities", Value::Array(names.collect()))]);
    if mirror.ca_certificates.is_some() {
        // Relative to the directory of this file.
        options.insert("ca".into(), ca(number).into());
    }
    if mirror.skip_verify {
        options.insert("skip_verify".into(), true.into());
    }
    if mirror.override_path {
        options.insert("override_path".into(), true.into());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_those_that_containerd_looks_for() {
        for (host, expected) in
            [("docker.io", "docker.io"), ("localhost:5000", "localhost_5000_"), ("a.example.com:443", "a.example.com_443_"), ("*", "_default")]
        {
            assert_eq!(directory(host), expected);
        }
    }

    #[test]
    fn mirrors_are_asked_in_the_order_given() {
        let mirror = |url: &str| Mirror { url: url.into(), ..Mirror::default() };
        let mut registry = Registry {
            host: "docker.io".into(),
            mirrors: vec![
                Mirror { capabilities: vec![Capability::Pull], skip_verify: true, ..mirror("https://z.example.com") },
                Mirror { override_path: true, ca_certificates: Some("pem".into()), ..mirror("https://a.example.com/v2/hub") },
            ],
            fallback: Fallback::Registry,
        };
        let first = "[host.\"https://z.example.com\"]\ncapabilities = [\"pull\"]\nskip_verify = true\n";
        let second =
            "[host.\"https://a.example.com/v2/hub\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"mirror-1-ca.pem\"\noverride_path = true\n";
        assert_eq!(hosts(&registry).unwrap(), format!("{first}\n{second}"));
        registry.fallback = Fallback::None;
        let last =
            "server = \"https://a.example.com/v2/hub\"\ncapabilities = [\"pull\", \"resolve\"]\nca = \"mirror-1-ca.pem\"\noverride_path = true\n";
        assert_eq!(hosts(&registry).unwrap(), format!("{last}\n{first}"));
        let files = files(&[registry]).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [r"C:\etc\containerd\certs.d\docker.io\mirror-1-ca.pem", r"C:\etc\containerd\certs.d\docker.io\hosts.toml"]);
    }
}
