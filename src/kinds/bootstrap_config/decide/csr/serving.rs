//! Decides which request for the serving certificate of a kubelet is approved: only for the names and addresses of its machine, as the
//! hypervisor reports them. The addresses in the Node are ignored. Pure.

use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;

use super::content::{AlternativeName, Content};
use super::{NODE_GROUP, NODE_USER, Verdict, has_usages, is_decided};
use crate::domain::identity::NodeIdentity;

/// Signer of the certificates with which kubelets serve logs, exec and metrics.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// What the request of one machine may contain.
#[derive(Clone, Debug)]
pub struct ExpectedServing {
    pub node: NodeIdentity,
    /// Addresses that belong to this machine only.
    pub addresses: Vec<IpAddr>,
}

/// Name of the node that sent the request.
pub fn requester(request: &CertificateSigningRequest) -> Option<&str> {
    request.spec.username.as_deref()?.strip_prefix(NODE_USER)
}

/// The addresses of a machine, as its hypervisor reports them, except addresses that another machine has too, and special addresses
/// that belong to no single machine.
pub fn own_addresses<'a>(of_machine: impl Iterator<Item = &'a str>, of_others: &[&str]) -> Vec<IpAddr> {
    let parsed = |text: &str| text.parse::<IpAddr>().ok();
    let others: Vec<IpAddr> = of_others.iter().copied().filter_map(parsed).collect();
    let is_own = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified() && !address.is_multicast() && !others.contains(address);
    of_machine.filter_map(parsed).filter(is_own).collect()
}

/// Judges a request of the machine's node. `node` is the Node of that name, read after the request.
pub fn judge(request: &CertificateSigningRequest, expected: &ExpectedServing, node: Option<&Node>) -> Verdict {
    if request.spec.signer_name != SERVING_SIGNER || is_decided(request) || requester(request) != Some(expected.node.name.as_str()) {
        return Verdict::Ignore;
    }
    if !node.is_some_and(|node| expected.node.is_of(node)) {
        return Verdict::Refuse(format!("there is no Node {} with the provider ID of this machine", expected.node.name));
    }
    match Content::read(&request.spec.request.0).and_then(|content| check(request, &content, expected)) {
        Ok(()) => Verdict::Approve,
        Err(why) => Verdict::Refuse(why),
    }
}

fn check(request: &CertificateSigningRequest, content: &Content, expected: &ExpectedServing) -> Result<(), String> {
    let host_name = expected.node.name.as_str();
    if !request.spec.groups.iter().flatten().any(|group| group == NODE_GROUP) {
        return Err(format!("its requester is not in the group {NODE_GROUP}"));
    }
    has_usages(request, content, "server auth")?;
    if content.common_names != [format!("{NODE_USER}{host_name}")] || content.organizations != [NODE_GROUP] {
        return Err(format!(
            "its subject has the names {:?} and groups {:?}, not those of its requester",
            content.common_names, content.organizations
        ));
    }
    let is_own = |name: &AlternativeName| match name {
        AlternativeName::Dns(name) => name == host_name,
        AlternativeName::Address(address) => expected.addresses.contains(address),
    };
    if let Some(other) = content.names.iter().find(|name| !is_own(name)) {
        let own: Vec<String> = expected.addresses.iter().map(ToString::to_string).collect();
        return Err(format!(
            "it asks for {other}, the machine is {host_name} at {}",
            if own.is_empty() { "no known address, because its hypervisor reports none for it alone".into() } else { own.join(", ") }
        ));
    }
    if content.names.is_empty() || content.more {
        return Err("it asks for no name or address, or for more than names and addresses".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
    use serde_json::json;

    use super::*;
    use crate::api::name::{HostName, ProviderId};

    const PROVIDER_ID: &str = "windows://lab/11111111-2222-5333-8444-555555555555";

    fn expected() -> ExpectedServing {
        let node = NodeIdentity { name: HostName::parse("win-1").unwrap(), provider_id: ProviderId::parse(PROVIDER_ID).unwrap() };
        ExpectedServing { node, addresses: own_addresses(["10.0.0.5", "fd00::5"].into_iter(), &[]) }
    }

    fn node(name: &str, provider_id: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}})).unwrap()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn address(text: &str) -> SanType {
        SanType::IpAddress(text.parse().unwrap())
    }

    fn request(names: Vec<SanType>, change: impl FnOnce(&mut CertificateParams)) -> CertificateSigningRequest {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        parameters.distinguished_name.push(DnType::CommonName, "system:node:win-1");
        parameters.subject_alt_names = names;
        change(&mut parameters);
        let pem = parameters.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request = CertificateSigningRequest::default();
        request.spec.signer_name = SERVING_SIGNER.into();
        request.spec.username = Some("system:node:win-1".into());
        request.spec.groups = Some(vec!["system:nodes".into(), "system:authenticated".into()]);
        request.spec.usages = Some(vec!["digital signature".into(), "server auth".into()]);
        request.spec.request = ByteString(pem.into_bytes());
        request
    }

    fn good() -> CertificateSigningRequest {
        request(vec![dns("win-1"), address("10.0.0.5")], |_| ())
    }

    #[test]
    fn names_and_addresses_of_the_machine_are_approved() {
        let own = node("win-1", PROVIDER_ID);
        for names in [vec![dns("win-1"), address("10.0.0.5")], vec![address("fd00::5")], vec![dns("win-1")]] {
            assert_eq!(judge(&request(names.clone(), |_| ()), &expected(), Some(&own)), Verdict::Approve, "{names:?}");
        }
    }

    #[test]
    fn nothing_of_another_machine_is_approved() {
        let own = node("win-1", PROVIDER_ID);
        let other = |change: &dyn Fn(&mut CertificateSigningRequest)| {
            let mut request = good();
            change(&mut request);
            request
        };
        let subject = |name: &'static str, group: &'static str| {
            request(vec![dns("win-1")], move |p| {
                p.distinguished_name.push(DnType::CommonName, name);
                p.distinguished_name.push(DnType::OrganizationName, group);
            })
        };
        let wrong = [
            ("a name of another", request(vec![dns("win-1"), dns("win-2")], |_| ())),
            ("the API server", request(vec![dns("kubernetes.default.svc")], |_| ())),
            ("an address of another", request(vec![address("10.0.0.5"), address("10.0.0.6")], |_| ())),
            ("loopback", request(vec![address("127.0.0.1")], |_| ())),
            ("mail", request(vec![dns("win-1"), SanType::Rfc822Name("a@b".try_into().unwrap())], |_| ())),
            ("no name", request(vec![], |_| ())),
            ("an extension", request(vec![dns("win-1")], |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth])),
            ("the subject of another", subject("system:node:win-2", "system:nodes")),
            ("another group", subject("system:node:win-1", "system:masters")),
            ("client auth", other(&|r| r.spec.usages = Some(vec!["digital signature".into(), "client auth".into()]))),
            ("both", other(&|r| r.spec.usages = Some(vec!["digital signature".into(), "client auth".into(), "server auth".into()]))),
            ("no node", other(&|r| r.spec.groups = Some(vec!["system:authenticated".into()]))),
            ("nonsense", other(&|r| r.spec.request = ByteString(b"x".to_vec()))),
        ];
        for (what, request) in wrong {
            assert!(matches!(judge(&request, &expected(), Some(&own)), Verdict::Refuse(_)), "{what}");
        }
    }

    #[test]
    fn the_node_must_be_the_machines() {
        assert!(matches!(judge(&good(), &expected(), None), Verdict::Refuse(_)));
        let vm_of_another = node("win-1", "windows://lab/11111111-2222-5333-8444-555555555556");
        assert!(matches!(judge(&good(), &expected(), Some(&vm_of_another)), Verdict::Refuse(_)));
    }

    #[test]
    fn requests_of_others_are_ignored() {
        let own = node("win-1", PROVIDER_ID);
        for user in ["system:node:win-2", "system:serviceaccount:a:b", "win-1"] {
            let mut request = good();
            request.spec.username = Some(user.into());
            assert_eq!(judge(&request, &expected(), Some(&own)), Verdict::Ignore, "{user}");
        }
        let mut joining = good();
        joining.spec.signer_name = crate::api::bootstrap_config::JOIN_SIGNER.into();
        assert_eq!(judge(&joining, &expected(), Some(&own)), Verdict::Ignore);
    }

    #[test]
    fn an_address_that_two_machines_have_is_neithers() {
        assert_eq!(
            own_addresses(["10.0.0.5", "10.0.0.6", "127.0.0.1", "x", "0.0.0.0"].into_iter(), &["10.0.0.6"]),
            ["10.0.0.5".parse::<IpAddr>().unwrap()]
        );
    }
}
