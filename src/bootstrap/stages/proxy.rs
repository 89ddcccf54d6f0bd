//! The proxy settings, in every place that needs them: the machine's variables, the services' variables (a service sees changes to the machine's
//! variables only after a restart), and WinHTTP for Windows itself.

use std::net::IpAddr;

use super::builder::{NODE_DOCS, PlanBuilder, item, why};
use crate::api::bootstrap_config::{PROXY_URL, Proxy};
use crate::bootstrap::digest::sha256;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::{Kind, ProxyAddress, Script, Variables};
use crate::vm::FailureCode;

const WINHTTP_DOCS: &str = "https://learn.microsoft.com/windows-server/administration/windows-commands/netsh-winhttp";
/// The payload file with the proxy address for downloads, if it comes from a Secret.
const DOWNLOAD_PROXY: &str = "secret/download-proxy";
const REMEDY: &str = "Check spec.network.proxy.";

/// Returns the destinations that bypass the proxy, as Go reads NO_PROXY.
fn no_proxy(facts: &BootstrapFacts, proxy: &Proxy) -> Vec<String> {
    let host = facts.endpoint.rsplit_once(':').map_or(facts.endpoint.as_str(), |(host, _)| host).trim_matches(['[', ']']);
    let domain = Some(facts.cluster_domain.as_str()).filter(|domain| !domain.is_empty()).unwrap_or("cluster.local");
    let own = ["127.0.0.1", "localhost", "169.254.169.254", ".svc"].map(str::to_owned);
    let all = own.into_iter().chain([format!(".{domain}"), host.to_owned()]);
    let all = all.chain(facts.service_networks.iter().cloned()).chain(facts.pod_networks.iter().cloned());
    let all = all.chain(facts.spec.network.node_networks.iter().cloned()).chain(proxy.no_proxy.iter().cloned());
    let mut list = Vec::new();
    for entry in all.filter(|entry| !entry.is_empty()) {
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
    list
}

/// Returns the names and values of the variables. `None` if the address comes from a Secret: only services get it then.
fn plain(facts: &BootstrapFacts, proxy: &Proxy) -> Option<Vec<(&'static str, String)>> {
    if proxy.url_from.is_some() {
        return None;
    }
    let mut variables = Vec::new();
    variables.extend(proxy.http.clone().map(|url| ("HTTP_PROXY", url)));
    variables.extend(proxy.https.clone().map(|url| ("HTTPS_PROXY", url)));
    variables.push(("NO_PROXY", no_proxy(facts, proxy).join(",")));
    Some(variables)
}

/// Adds the machine's variables, and WinHTTP.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let Some(proxy) = &facts.spec.network.proxy else { return Ok(()) };
    // The Secret is checked before any item is added.
    secret_url(facts, proxy)?;
    let Some(variables) = plain(facts, proxy) else { return Ok(()) };
    for (name, value) in variables {
        let id = name.to_lowercase().replace('_', "-");
        let kind = Kind::Environment { name: name.into(), value };
        all.add(item(&id, FailureCode::Proxy, 60, kind, why("Programs of the node that download something use the proxy.", NODE_DOCS, REMEDY)));
    }
    // WinHTTP cannot speak TLS to a proxy either.
    let address = |url: &Option<String>| url.as_deref()?.strip_prefix("http://").map(|url| url.trim_end_matches('/').to_owned());
    let server = match (address(&proxy.http), address(&proxy.https)) {
        (Some(http), Some(https)) if http == https => http,
        (http, https) => {
            [http.map(|http| format!("http={http}")), https.map(|https| format!("https={https}"))].into_iter().flatten().collect::<Vec<_>>().join(";")
        }
    };
    if server.is_empty() {
        return Ok(());
    }
    let kind = Kind::Script(Script::WinHttpProxy { server, bypass: bypass(&no_proxy(facts, proxy)) });
    all.add(item(
        "winhttp-proxy",
        FailureCode::Proxy,
        60,
        kind,
        why("Windows itself uses the proxy, e.g. to check certificates.", WINHTTP_DOCS, REMEDY),
    ));
    Ok(())
}

/// Returns the bypass list of WinHTTP, which supports names with `*` but no networks; the node itself does not need the pod and Service networks.
fn bypass(no_proxy: &[String]) -> String {
    let names = no_proxy.iter().filter(|entry| !entry.contains('/')).map(|entry| match entry.strip_prefix('.') {
        Some(domain) => format!("*.{domain}"),
        None => entry.clone(),
    });
    let mut list: Vec<String> = names.collect();
    list.push("<local>".into());
    list.join(";")
}

fn secret_url<'a>(facts: &'a BootstrapFacts, proxy: &Proxy) -> Result<Option<&'a str>, RenderError> {
    let Some(from) = &proxy.url_from else { return Ok(None) };
    let url = facts.secrets.text(PROXY_URL, &from.secret_key_ref)?;
    let good = (url.starts_with("http://") || url.starts_with("https://")) && url.chars().all(|c| c.is_ascii_graphic());
    let remedy = "expected one line like http://user:password@proxy.example.com:3128, other characters than letters and digits written as %xx";
    good.then_some(Some(url)).ok_or_else(|| RenderError::invalid(PROXY_URL, "(not shown)", remedy))
}

/// Returns the proxy of a download. It is decided here because PowerShell does not support networks in NO_PROXY.
pub(super) fn of_download(all: &mut PlanBuilder, facts: &BootstrapFacts, url: &str) -> Result<Option<ProxyAddress>, RenderError> {
    let Some(proxy) = &facts.spec.network.proxy else { return Ok(None) };
    if is_direct(url, &no_proxy(facts, proxy)) {
        return Ok(None);
    }
    let Some(secret) = secret_url(facts, proxy)? else {
        let (field, plain) = if url.starts_with("https://") { ("https", &proxy.https) } else { ("http", &proxy.http) };
        return plain
            .clone()
            .map(|plain| reached_in_plain(&format!("spec.network.proxy.{field}"), &plain, &plain).map(|()| ProxyAddress::Plain(plain)))
            .transpose();
    };
    reached_in_plain(PROXY_URL, "(not shown)", secret)?;
    all.files.insert(DOWNLOAD_PROXY.into(), secret.into());
    Ok(Some(ProxyAddress::Secret { source: DOWNLOAD_PROXY.into(), sha256: sha256(secret.as_bytes()) }))
}

/// Rejects a proxy with TLS: .NET Framework, which PowerShell downloads with, cannot speak TLS to a proxy.
fn reached_in_plain(field: &str, shown: &str, url: &str) -> Result<(), RenderError> {
    let remedy = "the downloads of spec.programs cannot use a proxy that is itself reached over https: give its http:// address, name the server of the programs in spec.network.proxy.noProxy, or put the programs into the image";
    if url.starts_with("https://") { Err(RenderError::invalid(field, shown, remedy)) } else { Ok(()) }
}

/// Whether an address bypasses the proxy, as Go reads NO_PROXY: a name includes its subdomains.
fn is_direct(url: &str, no_proxy: &[String]) -> bool {
    let host = url.parse::<http::Uri>().ok().and_then(|url| url.host().map(|host| host.trim_matches(['[', ']']).to_lowercase()));
    let Some(host) = host else { return false };
    let address: Option<IpAddr> = host.parse().ok();
    no_proxy.iter().any(|entry| {
        let entry = entry.to_lowercase();
        match (entry.split_once('/'), address) {
            _ if entry == "*" => true,
            (Some((network, bits)), Some(address)) => is_within(address, network, bits),
            (Some(_), None) => false,
            (None, Some(address)) => entry.parse() == Ok(address),
            (None, None) => {
                let name = entry.trim_start_matches('*').trim_start_matches('.');
                host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
            }
        }
    })
}

/// Whether an address lies in the network `network/bits`.
fn is_within(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differ = address.to_bits() ^ network.to_bits();
            bits <= 32 && differ.leading_zeros() >= bits
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differ = address.to_bits() ^ network.to_bits();
            bits <= 128 && differ.leading_zeros() >= bits
        }
        _ => false,
    }
}

/// Adds the variables of a service, right after it is defined. Returns the id of the item: the service must be restarted after it.
pub(super) fn service(all: &mut PlanBuilder, facts: &BootstrapFacts, service: &str) -> Result<Option<String>, RenderError> {
    let Some(proxy) = &facts.spec.network.proxy else { return Ok(None) };
    let variables = match (plain(facts, proxy), secret_url(facts, proxy)?) {
        (Some(variables), _) => Variables::Plain(variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        (None, url) => {
            let url = url.unwrap_or_default();
            let lines = format!("HTTP_PROXY={url}\nHTTPS_PROXY={url}\nNO_PROXY={}", no_proxy(facts, proxy).join(","));
            let source = format!("secret/{service}-environment");
            let sha256 = sha256(lines.as_bytes());
            all.files.insert(source.clone(), lines.into_bytes());
            Variables::Secret { source, sha256 }
        }
    };
    let id = format!("{service}-environment");
    let kind = Kind::ServiceEnvironment { service: service.into(), variables };
    all.add(item(
        &id,
        FailureCode::Proxy,
        60,
        kind,
        why("A service does not see changes of the machine's variables before Windows restarts.", NODE_DOCS, REMEDY),
    ));
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::sample::facts;

    #[test]
    fn what_is_reached_without_the_proxy() {
        let list = ["localhost", ".example.com", "mirror.example.org", "10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "172.16.0.0/12", "bad/8"];
        for (host, direct) in [
            ("localhost", true),
            ("a.example.com:8443", true),
            ("A.B.EXAMPLE.COM", true),
            ("notexample.com", false),
            ("mirror.example.org", true),
            ("eu.mirror.example.org", true),
            ("example.org", false),
            ("10.200.3.4", true),
            ("11.0.0.1", false),
            ("172.31.255.255:443", true),
            ("172.32.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.70", false),
            ("[2001:db8::1]:443", true),
            ("[2001:db9::1]", false),
        ] {
            assert_eq!(is_direct(&format!("https://{host}/x.exe"), &list.map(str::to_owned)), direct, "{host}");
        }
        assert!(is_direct("https://any.example.net/x", &["*".into()]));
        assert!(is_within("10.0.0.1".parse().unwrap(), "10.0.0.1", "32") && !is_within("10.0.0.1".parse().unwrap(), "10.0.0.0", "33"));
        assert!(is_within("10.0.0.1".parse().unwrap(), "192.0.2.0", "0"));
    }

    #[test]
    fn downloads_go_the_way_that_the_spec_says() {
        let url = "https://dl.k8s.io/release/v1.36.3/bin/windows/amd64/kubelet.exe";
        let ask = |proxy: Proxy| {
            let mut facts = crate::bootstrap::sample::full();
            facts.spec.network.proxy = Some(proxy);
            let mut all = PlanBuilder::default();
            let found = of_download(&mut all, &facts, url).unwrap();
            (found, all.files)
        };
        let plain = |url: &str| Some(url.to_owned());
        let (found, _) = ask(Proxy { http: plain("http://a:1"), https: plain("http://b:2"), ..Proxy::default() });
        assert_eq!(found, Some(ProxyAddress::Plain("http://b:2".into())));
        assert_eq!(ask(Proxy { http: plain("http://a:1"), ..Proxy::default() }).0, None);
        assert_eq!(ask(Proxy { https: plain("http://b:2"), no_proxy: vec![".k8s.io".into()], ..Proxy::default() }).0, None);
        // .NET Framework speaks no TLS to a proxy; a node that downloads nothing through the proxy may use a proxy with TLS.
        let refused = |proxy: Proxy, url: &str| {
            let mut facts = crate::bootstrap::sample::full();
            facts.spec.network.proxy = Some(proxy);
            of_download(&mut PlanBuilder::default(), &facts, url).unwrap_err().to_string()
        };
        let over_tls = Proxy { https: plain("https://b:2"), ..Proxy::default() };
        let error = refused(over_tls.clone(), url);
        assert!(error.starts_with(r#"spec.network.proxy.https: "https://b:2": "#) && error.contains("noProxy"), "{error}");
        assert_eq!(ask(Proxy { no_proxy: vec![".k8s.io".into()], ..over_tls }).0, None);
        let from = crate::bootstrap::sample::full().spec.network.proxy.unwrap();
        let (found, files) = ask(from);
        assert!(matches!(found, Some(ProxyAddress::Secret { ref source, .. }) if source == DOWNLOAD_PROXY));
        assert!(String::from_utf8_lossy(&files[DOWNLOAD_PROXY]).starts_with("http://capw:canary-proxy"));
    }

    #[test]
    fn nothing_of_the_cluster_goes_through_the_proxy() {
        let mut facts = facts();
        let proxy = Proxy { no_proxy: vec!["10.0.0.0/8".into(), ".svc".into(), ".example.org".into()], ..Proxy::default() };
        let list = no_proxy(&facts, &proxy);
        assert_eq!(
            list.join(","),
            "127.0.0.1,localhost,169.254.169.254,.svc,.cluster.local,api.example.com,10.96.0.0/12,10.244.0.0/16,10.0.0.0/8,.example.org"
        );
        assert_eq!(bypass(&list), "127.0.0.1;localhost;169.254.169.254;*.svc;*.cluster.local;api.example.com;*.example.org;<local>");
        facts.spec.network.node_networks = vec!["192.0.2.0/24".into()];
        assert!(no_proxy(&facts, &proxy).contains(&"192.0.2.0/24".to_owned()));
        facts.endpoint = "[fd00::1]:6443".into();
        facts.cluster_domain = String::new();
        let list = no_proxy(&facts, &proxy).join(",");
        assert!(list.contains(",fd00::1,") && list.contains(",.cluster.local,"), "{list}");
    }
}
