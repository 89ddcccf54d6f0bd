use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequestCondition, CertificateSigningRequestStatus};
use k8s_openapi::api::core::v1::NodeSpec;
use proptest::prelude::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, KeyUsagePurpose, SanType};
use x509_parser::pem::Pem;

use super::content::PEM_LABEL;
use crate::kinds::bootstrap_config::decide::csr::*;

const PROVIDER_ID: &str = "windows://lab/11111111-2222-5333-8444-555555555555";

fn expected() -> Expected {
    Expected { token_id: "abcdef".into(), host_name: "win-1".into(), provider_id: Some(PROVIDER_ID.into()), approved_key: None, taken_by: None }
}

fn pem(parts: &[(DnType, &str)], change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    for (kind, text) in parts {
        parameters.distinguished_name.push(kind.clone(), *text);
    }
    change(&mut parameters);
    parameters.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap().into_bytes()
}

fn valid_pem() -> Vec<u8> {
    pem(&[(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, "system:node:win-1")], |_| ())
}

fn request() -> CertificateSigningRequest {
    let mut request = CertificateSigningRequest::default();
    request.spec.signer_name = JOIN_SIGNER.into();
    request.spec.username = Some("system:bootstrap:abcdef".into());
    request.spec.groups = Some(vec!["system:bootstrappers".into(), JOIN_GROUP.into(), "system:authenticated".into()]);
    request.spec.usages = Some(vec!["digital signature".into(), "client auth".into()]);
    request.spec.request = ByteString(valid_pem());
    request
}

fn node(provider_id: Option<&str>) -> Node {
    Node { spec: Some(NodeSpec { provider_id: provider_id.map(Into::into), ..Default::default() }), ..Default::default() }
}

fn refused(request: &CertificateSigningRequest, node: Option<&Node>) -> String {
    match judge(request, &expected(), node) {
        Verdict::Refuse(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_kubelet_of_this_machine_asks_for_is_approved() {
    assert_eq!(judge(&request(), &expected(), None), Verdict::Approve);
    assert_eq!(judge(&request(), &expected(), Some(&node(Some(PROVIDER_ID)))), Verdict::Approve);
    assert_eq!(token_of(&request()).as_deref(), Some("abcdef"));
}

#[test]
fn a_name_in_use_by_another_is_refused() {
    assert!(refused(&request(), Some(&node(Some("windows://lab/other")))).contains("windows://lab/other"));
    assert!(refused(&request(), Some(&node(None))).contains("no provider ID"));
    let unknown = Expected { provider_id: None, ..expected() };
    assert!(matches!(judge(&request(), &unknown, Some(&node(None))), Verdict::Refuse(_)));
    assert_eq!(judge(&request(), &unknown, None), Verdict::Approve);
}

#[test]
fn requests_of_others_are_ignored() {
    let other = |change: &dyn Fn(&mut CertificateSigningRequest)| {
        let mut request = request();
        change(&mut request);
        judge(&request, &expected(), None)
    };
    assert_eq!(other(&|r| r.spec.signer_name = "kubernetes.io/kubelet-serving".into()), Verdict::Ignore);
    assert_eq!(other(&|r| r.spec.username = Some("system:node:win-1".into())), Verdict::Ignore, "the node renews its certificate");
    assert_eq!(
        other(&|r| {
            r.spec.username = Some("system:bootstrap:zzzzzz".into());
            r.spec.request = ByteString(pem(&[(DnType::CommonName, "system:node:other")], |_| ()));
        }),
        Verdict::Ignore
    );
    for type_ in ["Approved", "Denied", "Failed"] {
        let condition = CertificateSigningRequestCondition { type_: type_.into(), status: "True".into(), ..Default::default() };
        let status = CertificateSigningRequestStatus { conditions: Some(vec![condition]), certificate: None };
        assert_eq!(other(&|r| r.status = Some(status.clone())), Verdict::Ignore, "{type_}");
    }
}

#[test]
fn the_name_of_this_machine_is_not_given_to_another_token() {
    let mut request = request();
    request.spec.username = Some("system:bootstrap:zzzzzz".into());
    assert!(refused(&request, None).contains("system:bootstrap:zzzzzz"));
    request.spec.username = Some("system:serviceaccount:x:y".into());
    assert!(refused(&request, None).contains("system:node:win-1"));
}

#[test]
fn a_machine_has_one_key() {
    let (first, second) = (request(), request());
    let approved = Expected { approved_key: key_of(&first), ..expected() };
    assert_eq!(judge(&first, &approved, None), Verdict::Approve, "the kubelet asks again after a restart");
    assert!(matches!(judge(&second, &approved, None), Verdict::Refuse(why) if why.contains("another key")));
    assert!(matches!(judge(&second, &approved, Some(&node(Some(PROVIDER_ID)))), Verdict::Refuse(_)), "nor when the Node is there");
}

#[test]
fn a_name_for_which_another_approver_let_a_stranger_in_is_not_given_to_the_machine() {
    let taken = Expected { taken_by: Some("system:bootstrap:zzzzzz".into()), ..expected() };
    assert!(matches!(judge(&request(), &taken, None), Verdict::Refuse(why) if why.contains("system:bootstrap:zzzzzz")));
}

#[test]
fn who_asks_for_the_name_of_a_node_is_known_unless_it_is_that_node() {
    assert_eq!(claimed_node(&request()).as_deref(), Some("win-1"));
    let mut renewal = request();
    renewal.spec.username = Some("system:node:win-1".into());
    assert_eq!(claimed_node(&renewal), None);
    let mut user = request();
    user.spec.request = ByteString(pem(&[(DnType::CommonName, "jane")], |_| ()));
    assert_eq!(claimed_node(&user), None);
}

#[test]
fn every_wrong_content_is_refused() {
    let name = (DnType::CommonName, "system:node:win-1");
    let group = (DnType::OrganizationName, "system:nodes");
    let nothing = |_: &mut CertificateParams| ();
    let san = |p: &mut CertificateParams| p.subject_alt_names = vec![SanType::DnsName("win-1".try_into().unwrap())];
    let usage = |p: &mut CertificateParams| p.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let valid = String::from_utf8(valid_pem()).unwrap();
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("no name", pem(std::slice::from_ref(&group), nothing)),
        ("no group", pem(std::slice::from_ref(&name), nothing)),
        ("other name", pem(&[group.clone(), (DnType::CommonName, "system:node:win-2")], nothing)),
        ("longer name", pem(&[group.clone(), (DnType::CommonName, "system:node:win-11")], nothing)),
        ("upper case", pem(&[group.clone(), (DnType::CommonName, "system:node:WIN-1")], nothing)),
        ("no prefix", pem(&[group.clone(), (DnType::CommonName, "win-1")], nothing)),
        ("masters", pem(&[(DnType::OrganizationName, "system:masters"), name.clone()], nothing)),
        ("more subject", pem(&[group.clone(), name.clone(), (DnType::CountryName, "XX")], nothing)),
        ("unit", pem(&[group.clone(), name.clone(), (DnType::OrganizationalUnitName, "system:masters")], nothing)),
        ("alternative name", pem(&[group.clone(), name.clone()], san)),
        ("key usage", pem(&[group, name], usage)),
        ("empty", Vec::new()),
        ("no PEM", b"abc".to_vec()),
        ("two blocks", format!("{valid}{valid}").into_bytes()),
        ("text after it", format!("{valid}x").into_bytes()),
        ("another label", valid.replace("CERTIFICATE REQUEST", "CERTIFICATE").into_bytes()),
        ("cut", valid.as_bytes()[..valid.len() / 2].to_vec()),
    ];
    for (what, content) in wrong {
        let mut request = request();
        request.spec.request = ByteString(content);
        assert!(!refused(&request, None).is_empty(), "{what}");
    }
}

#[test]
fn a_second_group_in_the_subject_is_refused() {
    // rcgen keeps one value for each type of name, so the test builds the content directly.
    let content = Content {
        common_names: vec!["system:node:win-1".into()],
        organizations: vec!["system:nodes".into(), "system:masters".into()],
        more: false,
        rsa: false,
        key: Key::default(),
        names: Vec::new(),
    };
    assert!(check(&request(), &content, "system:node:win-1").unwrap_err().contains("system:masters"));
    let twice = Content { common_names: vec!["system:node:win-1".into(), "x".into()], organizations: vec![NODE_GROUP.into()], ..content };
    assert!(check(&request(), &twice, "system:node:win-1").is_err());
}

#[test]
fn key_encipherment_is_for_rsa_keys() {
    let mut request = request();
    request.spec.usages = Some(vec!["digital signature".into(), "key encipherment".into(), "client auth".into()]);
    assert!(refused(&request, None).contains("usages"));
    let content = |rsa| Content {
        common_names: vec!["system:node:win-1".into()],
        organizations: vec![NODE_GROUP.into()],
        more: false,
        rsa,
        key: Key::default(),
        names: Vec::new(),
    };
    assert_eq!(check(&request, &content(true), "system:node:win-1"), Ok(()));
    assert!(check(&request, &content(false), "system:node:win-1").is_err());
}

/// One change in the part of a request that its sender does not sign.
#[derive(Clone, Debug)]
enum Mutation {
    User(String),
    Groups(Vec<String>),
    Usages(Vec<String>),
    Byte(usize, u8),
}

fn mutations() -> impl Strategy<Value = Mutation> {
    let usage = prop::sample::select(vec!["client auth", "server auth", "digital signature", "key encipherment", "cert sign", "any"]);
    prop_oneof![
        "(system:bootstrap:[a-z0-9]{0,7}|system:node:win-1.|[a-z:]{0,20})".prop_map(Mutation::User),
        prop::collection::vec("(system:bootstrappers|system:bootstrappers:[a-z]{0,5}|system:masters)", 0..4).prop_map(Mutation::Groups),
        prop::collection::vec(usage.prop_map(str::to_owned), 0..5).prop_map(Mutation::Usages),
        (0..4096_usize, any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
    ]
}

proptest! {
    #[test]
    fn no_mutation_of_a_valid_request_is_approved(mutation in mutations()) {
        let mut request = request();
        let changed = match &mutation {
            Mutation::User(user) => {
                request.spec.username = Some(user.clone());
                user != "system:bootstrap:abcdef"
            }
            Mutation::Groups(groups) => {
                request.spec.groups = Some(groups.clone());
                !groups.iter().any(|g| g == JOIN_GROUP)
            }
            Mutation::Usages(usages) => {
                let mut sorted = usages.clone();
                sorted.sort();
                request.spec.usages = Some(usages.clone());
                sorted != ["client auth", "digital signature"]
            }
            // A byte in the DER of the subject: the requested content changes. The API server checks keys and signatures.
            Mutation::Byte(at, byte) => {
                let pem = Pem::read(std::io::Cursor::new(&request.spec.request.0)).unwrap().0;
                let name = pem.contents.windows(12).position(|w| w == b"system:nodes").unwrap();
                let mut der = pem.contents.clone();
                let at = name + at % 12;
                let before = der[at];
                der[at] = *byte;
                use base64::Engine as _;
                let text = base64::engine::general_purpose::STANDARD.encode(&der);
                request.spec.request = ByteString(format!("-----BEGIN {PEM_LABEL}-----\n{text}\n-----END {PEM_LABEL}-----\n").into_bytes());
                before != *byte
            }
        };
        let verdict = judge(&request, &expected(), None);
        prop_assert_eq!(verdict == Verdict::Approve, !changed, "{:?}", mutation);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut request = request();
        request.spec.request = ByteString(bytes);
        prop_assert!(judge(&request, &expected(), None) != Verdict::Approve);
    }
}
