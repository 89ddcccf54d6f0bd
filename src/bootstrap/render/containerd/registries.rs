//! Mirrors: one directory per registry with a `hosts.toml`, CAs and client certificates. containerd reads them at each pull
//! (<https://github.com/containerd/containerd/blob/main/docs/hosts.md>).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toml::{Table, Value};
use x509_parser::pem::Pem;

use super::tables::{list, table, text};
use crate::api::bootstrap_config::{Capability, Fallback, Mirror, Registry};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::paths;
use crate::bootstrap::secrets::Secrets;

/// A file below `certs.d`.
pub(in crate::bootstrap) struct HostFile {
    pub path: String,
    pub text: String,
    /// Whether the file contains a password or a key.
    pub secret: bool,
}

/// Returns the directory of a registry. Windows file names have no colon: containerd expects `host_5000_`.
fn directory(host: &str) -> String {
    match host.split_once(':') {
        _ if host == "*" => "_default".into(),
        Some((host, port)) => format!("{host}_{port}_"),
        None => host.into(),
    }
}

/// Returns the files of these registries, in their order.
pub(in crate::bootstrap) fn files(registries: &[Registry], secrets: &Secrets) -> Result<Vec<HostFile>, RenderError> {
    let mut files = Vec::new();
    for registry in registries {
        let directory = format!(r"{}\{}", paths::REGISTRIES, directory(&registry.host));
        let mut add = |name: &str, text: String, secret| files.push(HostFile { path: format!(r"{directory}\{name}"), text, secret });
        for (number, mirror) in registry.mirrors.iter().enumerate() {
            if let Some(pem) = &mirror.ca_certificates {
                add(&ca(number), pem.clone(), false);
            }
            if let Some((certificate, key)) = client(registry, mirror, secrets)? {
                let [certificate_file, key_file] = pair(number);
                add(&certificate_file, certificate, false);
                add(&key_file, key, true);
            }
        }
        let secret = registry.mirrors.iter().any(|mirror| mirror.basic_auth.is_some());
        add("hosts.toml", hosts(registry, secrets)?, secret);
    }
    Ok(files)
}

/// Returns the name of the file with the CAs of a mirror, beside its `hosts.toml`.
fn ca(number: usize) -> String {
    format!("mirror-{number}-ca.pem")
}

/// Returns the file names of the certificate and the key for a mirror.
fn pair(number: usize) -> [String; 2] {
    [format!("mirror-{number}-client.pem"), format!("mirror-{number}-client-key.pem")]
}

/// Returns `hosts.toml`. containerd tries the `host` tables in order, and `server` last.
fn hosts(registry: &Registry, secrets: &Secrets) -> Result<String, RenderError> {
    let mut document = Table::new();
    let mut mirrors: Vec<(usize, &Mirror)> = registry.mirrors.iter().enumerate().collect();
    // Without `server`, containerd tries the registry itself last.
    if registry.fallback == Fallback::None
        && let Some((number, last)) = mirrors.pop()
    {
        document.insert("server".into(), last.url.as_str().into());
        document.extend(options(registry, number, last, secrets)?);
    }
    if !mirrors.is_empty() {
        let mut hosts = Table::new();
        for (number, mirror) in mirrors {
            hosts.insert(mirror.url.clone(), Value::Table(options(registry, number, mirror, secrets)?));
        }
        document.insert("host".into(), Value::Table(hosts));
    }
    text("containerd's list of mirrors", &document)
}

fn options(registry: &Registry, number: usize, mirror: &Mirror, secrets: &Secrets) -> Result<Table, RenderError> {
    let both = [Capability::Pull, Capability::Resolve];
    let asked = if mirror.capabilities.is_empty() { &both[..] } else { &mirror.capabilities };
    let names = asked.iter().map(|capability| match capability {
        Capability::Pull => Value::from("pull"),
        Capability::Resolve => Value::from("resolve"),
    });
    let mut options = table([("capabilities", Value::Array(names.collect()))]);
    if mirror.ca_certificates.is_some() {
        // The path is relative to the directory of this file.
        options.insert("ca".into(), ca(number).into());
    }
    if mirror.client_certificate.is_some() {
        options.insert("client".into(), Value::Array(vec![Value::Array(pair(number).into_iter().map(Value::from).collect())]));
    }
    if mirror.skip_verify {
        options.insert("skip_verify".into(), true.into());
    }
    if mirror.override_path {
        options.insert("override_path".into(), true.into());
    }
    if let Some(header) = authorization(registry, mirror, secrets)? {
        // The header is not in `registry.configs` of config.toml, which is deprecated and selects an older way to pull.
        options.insert("header".into(), Value::Table(table([("Authorization", list([header.as_str()]))])));
    }
    Ok(options)
}

/// Returns the value of the header by RFC 7617.
fn authorization(registry: &Registry, mirror: &Mirror, secrets: &Secrets) -> Result<Option<String>, RenderError> {
    let Some(basic) = &mirror.basic_auth else { return Ok(None) };
    https(registry, mirror)?;
    let at = |field: &str| field_of(registry, mirror, &format!("basicAuth.{field}"));
    let username = secrets.text(&at("usernameFrom"), &basic.username_from.secret_key_ref)?;
    let password = secrets.text(&at("passwordFrom"), &basic.password_from.secret_key_ref)?;
    let plain = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !plain(username) || username.contains(':') {
        return Err(RenderError::invalid(at("usernameFrom"), "(not shown)", "expected one line without a colon: correct the Secret"));
    }
    if !plain(password) {
        return Err(RenderError::invalid(at("passwordFrom"), "(not shown)", "expected one line: correct the Secret"));
    }
    Ok(Some(format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))))
}

/// Returns the certificate and the key. If containerd could not read them, it would ignore the whole list of mirrors.
fn client(registry: &Registry, mirror: &Mirror, secrets: &Secrets) -> Result<Option<(String, String)>, RenderError> {
    let Some(client) = &mirror.client_certificate else { return Ok(None) };
    https(registry, mirror)?;
    let at = |field: &str| field_of(registry, mirror, &format!("clientCertificate.{field}"));
    let certificate = secrets.text(&at("certificateFrom"), &client.certificate_from.secret_key_ref)?;
    let key = secrets.text(&at("keyFrom"), &client.key_from.secret_key_ref)?;
    let mut blocks = Pem::iter_from_buffer(certificate.as_bytes()).peekable();
    if blocks.peek().is_none() || !blocks.all(|block| block.is_ok_and(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok())) {
        return Err(RenderError::invalid(at("certificateFrom"), "(not shown)", "expected certificates in PEM form and nothing else"));
    }
    let label = Pem::iter_from_buffer(key.as_bytes()).next().and_then(Result::ok).map(|block| block.label).unwrap_or_default();
    if !label.ends_with("PRIVATE KEY") || label.starts_with("ENCRYPTED") {
        let remedy = "expected a key in PEM form without a password, from -----BEGIN PRIVATE KEY----- on";
        return Err(RenderError::invalid(at("keyFrom"), "(not shown)", remedy));
    }
    Ok(Some((format!("{certificate}\n"), format!("{key}\n"))))
}

fn field_of(registry: &Registry, mirror: &Mirror, field: &str) -> String {
    format!("spec.containerd.registries[{}].mirrors[{}].{field}.secretKeyRef", registry.host, mirror.url)
}

fn https(registry: &Registry, mirror: &Mirror) -> Result<(), RenderError> {
    if mirror.url.starts_with("https://") {
        return Ok(());
    }
    let field = format!("spec.containerd.registries[{}].mirrors", registry.host);
    Err(RenderError::invalid(
        field,
        &mirror.url,
        "credentials go over https only: give an https address, or leave basicAuth and clientCertificate out",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::bootstrap_config::{BasicAuth, ClientCertificate, SecretKeyRef, ValueSource};

    #[test]
    fn directories_have_the_names_that_containerd_expects() {
        for (host, expected) in
            [("docker.io", "docker.io"), ("localhost:5000", "localhost_5000_"), ("a.example.com:443", "a.example.com_443_"), ("*", "_default")]
        {
            assert_eq!(directory(host), expected);
        }
    }

    #[test]
    fn mirrors_keep_their_order() {
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
        assert_eq!(hosts(&registry, &Secrets::default()).unwrap(), format!("{first}\n{second}"));
        registry.fallback = Fallback::None;
        let last =
            "server = \"https://a.example.com/v2/hub\"\ncapabilities = [\"pull\", \"resolve\"]\nca = \"mirror-1-ca.pem\"\noverride_path = true\n";
        assert_eq!(hosts(&registry, &Secrets::default()).unwrap(), format!("{last}\n{first}"));
        let files = files(&[registry], &Secrets::default()).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [r"C:\etc\containerd\certs.d\docker.io\mirror-1-ca.pem", r"C:\etc\containerd\certs.d\docker.io\hosts.toml"]);
    }

    #[test]
    fn credentials_go_into_files_for_administrators() {
        let source = |key: &str| ValueSource { secret_key_ref: SecretKeyRef { name: "mirror".into(), key: key.into() } };
        let mut secrets = Secrets::default();
        let mut give = |key: &str, value: &str| secrets.insert(source(key).secret_key_ref, value.into());
        give("user", "reader\n");
        give("password", "pass:word");
        give("crt", crate::bootstrap::sample::CA);
        give("key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        let mirror = Mirror {
            url: "https://a.example.com".into(),
            basic_auth: Some(BasicAuth { username_from: source("user"), password_from: source("password") }),
            client_certificate: Some(ClientCertificate { certificate_from: source("crt"), key_from: source("key") }),
            ..Mirror::default()
        };
        let registry = |mirror: &Mirror, fallback| Registry { host: "docker.io".into(), mirrors: vec![mirror.clone()], fallback };
        let files = files(&[registry(&mirror, Fallback::Registry)], &secrets).unwrap();
        let shown: Vec<(&str, bool)> = files.iter().map(|file| (file.path.rsplit_once('\\').unwrap().1, file.secret)).collect();
        assert_eq!(shown, [("mirror-0-client.pem", false), ("mirror-0-client-key.pem", true), ("hosts.toml", true)]);
        // RFC 7617: the first colon separates user and password.
        let options = "capabilities = [\"pull\", \"resolve\"]\nclient = [[\"mirror-0-client.pem\", \"mirror-0-client-key.pem\"]]\n";
        let header = "Authorization = [\"Basic cmVhZGVyOnBhc3M6d29yZA==\"]\n";
        let host = "host.\"https://a.example.com\"";
        assert_eq!(files[2].text, format!("[{host}]\n{options}\n[{host}.header]\n{header}"));
        let alone = hosts(&registry(&mirror, Fallback::None), &secrets).unwrap();
        assert_eq!(alone, format!("server = \"https://a.example.com\"\n{options}\n[header]\n{header}"));
        let plain = Mirror { url: "http://a.example.com".into(), ..mirror.clone() };
        let wrong_key =
            Mirror { client_certificate: Some(ClientCertificate { certificate_from: source("crt"), key_from: source("crt") }), ..mirror.clone() };
        let missing = Mirror { basic_auth: Some(BasicAuth { username_from: source("user"), password_from: source("none") }), ..mirror };
        for (mirror, said) in [(plain, "https only"), (wrong_key, "clientCertificate.keyFrom"), (missing, "mirror/none")] {
            let error = super::files(&[registry(&mirror, Fallback::Registry)], &secrets).err().unwrap().to_string();
            assert!(error.contains(said) && !error.contains("pass:word"), "{error}");
        }
    }
}
