//! Parses a kubeconfig safely: one that would run a program or read a local file here is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;

/// Parses a kubeconfig and refuses entries that would execute, read or trust something local.
pub(super) fn safe(bytes: &[u8]) -> Result<Kubeconfig, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    // The parser's error may quote the text, and the text holds credentials.
    let config = Kubeconfig::from_yaml(text).map_err(|_| "it is not a kubeconfig in YAML".to_owned())?;
    let name = config.current_context.as_deref().filter(|n| !n.is_empty()).ok_or("it has no current-context")?;
    let context = config.contexts.iter().find(|c| c.name == name).and_then(|c| c.context.as_ref());
    let context = context.ok_or_else(|| format!("its current-context {name:?} is not among its contexts"))?;
    let cluster = config.clusters.iter().find(|c| c.name == context.cluster).and_then(|c| c.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| format!("its cluster {:?} is not among its clusters", context.cluster))?;
    let user_name = context.user.as_deref().unwrap_or_default();
    let user = config.auth_infos.iter().find(|u| u.name == user_name).and_then(|u| u.auth_info.as_ref());
    let user = user.ok_or_else(|| format!("its user {user_name:?} is not among its users"))?;

    let server = cluster.server.as_deref().unwrap_or_default();
    if !server.starts_with("https://") {
        return Err(format!("server {server:?} must begin with https://"));
    }
    let embed = "embed the data instead (kubectl config view --raw --flatten)";
    let refused = [
        (user.exec.is_some(), "exec", "a program would have to be run; use a client certificate or a token"),
        (user.auth_provider.is_some(), "auth-provider", "a plugin would have to be run; use a client certificate or a token"),
        (user.token_file.is_some(), "tokenFile", embed),
        (user.client_certificate.is_some(), "client-certificate", embed),
        (user.client_key.is_some(), "client-key", embed),
        (cluster.certificate_authority.is_some(), "certificate-authority", embed),
        (cluster.proxy_url.is_some(), "proxy-url", "proxies are not supported"),
        (cluster.insecure_skip_tls_verify == Some(true), "insecure-skip-tls-verify", "join tokens are sent there; give certificate-authority-data"),
    ];
    match refused.iter().find(|(present, ..)| *present) {
        Some((_, field, why)) => Err(format!("{field} is not accepted: {why}")),
        None => Ok(config),
    }
}

/// Converts certificates from DER to PEM.
pub(super) fn pem(ders: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for der in ders {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let body = STANDARD.encode(der);
        for line in body.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
