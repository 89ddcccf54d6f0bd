//! The proxy, in every place that needs it: variables of the machine, of the services (which see changes of the machine's only
//! after a restart), and WinHTTP for Windows itself (`windows-bootstrap.md` §1.3 B10).

use super::{NODE_DOCS, Procedure, item, why};
use crate::api::bootstrap_config::{PROXY_URL, Proxy};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::{BootstrapFacts, sha256};
use crate::bootstrap::plan::{Kind, Script, Variables};

const WINHTTP_DOCS: &str = "https://learn.microsoft.com/windows-server/administration/windows-commands/netsh-winhttp";
const REMEDY: &str = "Check spec.network.proxy.";

/// What is reached without the proxy: comma separated, as Go reads it.
fn no_proxy(facts: &BootstrapFacts, proxy: &Proxy) -> Vec<String> {
    let host = facts.endpoint.rsplit_once(':').map_or(facts.endpoint.as_str(), |(host, _)| host).trim_matches(['[', ']']);
    let domain = Some(facts.cluster_domain.as_str()).filter(|domain| !domain.is_empty()).unwrap_or("cluster.local");
    let own = ["127.0.0.1", "localhost", "169.254.169.254", ".svc"].map(str::to_owned);
    let all = own.into_iter().chain([format!(".{domain}"), host.to_owned()]);
    let all = all.chain(facts.service_networks.iter().cloned()).chain(facts.pod_networks.iter().cloned()).chain(proxy.no_proxy.iter().cloned());
    let mut list = Vec::new();
    for entry in all.filter(|entry| !entry.is_empty()) {
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
    list
}

/// Names and values; `None`: one of them comes from a Secret, so that only services get them.
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

/// The machine's variables, and Windows itself.
pub(super) fn stage(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let Some(proxy) = &facts.spec.network.proxy else { return Ok(()) };
    // Seen here and not when the service is made, so that nothing is done for an address that cannot be used.
    secret_url(facts, proxy)?;
    let Some(variables) = plain(facts, proxy) else { return Ok(()) };
    for (name, value) in variables {
        let id = name.to_lowercase().replace('_', "-");
        let kind = Kind::Environment { name: name.into(), value };
        all.add(item(&id, 32, 60, kind, why("Programs of the node that fetch something go through the proxy.", NODE_DOCS, REMEDY)));
    }
    let address = |url: &Option<String>| {
        url.as_deref().map(|url| url.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/').to_owned())
    };
    let server = match (address(&proxy.http), address(&proxy.https)) {
        (Some(http), Some(https)) if http == https => http,
        (http, https) => {
            [http.map(|http| format!("http={http}")), https.map(|https| format!("https={https}"))].into_iter().flatten().collect::<Vec<_>>().join(";")
        }
    };
    let kind = Kind::Script(Script::WinHttpProxy { server, bypass: bypass(&no_proxy(facts, proxy)) });
    all.add(item("winhttp-proxy", 32, 60, kind, why("Windows itself, e.g. to check certificates, goes through the proxy.", WINHTTP_DOCS, REMEDY)));
    Ok(())
}

/// WinHTTP knows names with `*` and no networks; the node itself asks for nothing in those of pods and Services.
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

/// The variables of a service, right after it was made. Gives the id of the item: the service must be started anew after it.
pub(super) fn service(all: &mut Procedure, facts: &BootstrapFacts, service: &str) -> Result<Option<String>, RenderError> {
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
        32,
        60,
        kind,
        why("A service does not see what changes in the machine's variables before Windows restarts.", NODE_DOCS, REMEDY),
    ));
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::sample::facts;

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
        facts.endpoint = "[fd00::1]:6443".into();
        facts.cluster_domain = String::new();
        let list = no_proxy(&facts, &proxy).join(",");
        assert!(list.contains(",fd00::1,") && list.contains(",.cluster.local,"), "{list}");
    }
}
