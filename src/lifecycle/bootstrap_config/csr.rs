//! Which certificate request of a joining node is approved (`docs/design/faults.md#certificate-requests`). Pure.
//!
//! The source of truth for the name is the machine, never the request: a token of one machine cannot make a node of another
//! name. Anything that is not exactly what a kubelet of this machine would ask for is refused and left for a person.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_PKCS1_RSAENCRYPTION, OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use crate::api::bootstrap_config::{JOIN_GROUP, JOIN_SIGNER};

const TOKEN_USER: &str = "system:bootstrap:";
const NODE_USER: &str = "system:node:";
const NODE_GROUP: &str = "system:nodes";
const PEM_LABEL: &str = "CERTIFICATE REQUEST";

/// What the request of one machine must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The public half of the token that was made for this very machine.
    pub token_id: String,
    /// Host name of the machine and name of its Node.
    pub host_name: String,
    /// The provider ID that the kubelet registers with; `None` when it is not known, then no Node may exist yet.
    pub provider_id: Option<String>,
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    /// It has nothing to do with this machine, or it is decided already.
    Ignore,
    /// It uses the token or claims the name of this machine and is not what its kubelet would send.
    Refuse(String),
}

/// The id of the bootstrap token that a request was made with.
pub fn token_of(request: &CertificateSigningRequest) -> Option<String> {
    request.spec.username.as_deref()?.strip_prefix(TOKEN_USER).map(str::to_owned)
}

/// Whether someone has approved or refused it already, so that there is nothing to judge.
pub fn is_decided(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return false };
    let decided =
        |c: &k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition| matches!(c.type_.as_str(), "Approved" | "Denied" | "Failed");
    status.certificate.as_ref().is_some_and(|c| !c.0.is_empty()) || status.conditions.iter().flatten().any(decided)
}

/// Judges a request. `node` is the Node with the machine's host name, read after the request.
pub fn judge(request: &CertificateSigningRequest, expected: &Expected, node: Option<&Node>) -> Verdict {
    if request.spec.signer_name != JOIN_SIGNER || is_decided(request) {
        return Verdict::Ignore;
    }
    let node_user = format!("{NODE_USER}{}", expected.host_name);
    let user = request.spec.username.as_deref().unwrap_or_default();
    let ours = token_of(request).as_deref() == Some(&expected.token_id);
    let content = Content::read(&request.spec.request.0);
    if !ours {
        let claims = content.as_ref().is_ok_and(|c| c.common_names.contains(&node_user));
        // A node that renews its own certificate is the business of kube-controller-manager.
        return if claims && user != node_user {
            Verdict::Refuse(format!("it asks for the name of this machine, {node_user}, as {user:?}, which is not the machine's token"))
        } else {
            Verdict::Ignore
        };
    }
    match content.and_then(|content| check(request, &content, &node_user)).and_then(|()| bound(expected, node)) {
        Ok(()) => Verdict::Approve,
        Err(why) => Verdict::Refuse(why),
    }
}

fn check(request: &CertificateSigningRequest, content: &Content, node_user: &str) -> Result<(), String> {
    if !request.spec.groups.iter().flatten().any(|g| g == JOIN_GROUP) {
        return Err(format!("its requester is not in the group {JOIN_GROUP}"));
    }
    let mut usages: Vec<&str> = request.spec.usages.iter().flatten().map(String::as_str).collect();
    usages.sort_unstable();
    // Kubelets with an RSA key ask for key encipherment too.
    let exact = usages == ["client auth", "digital signature"] || (content.rsa && usages == ["client auth", "digital signature", "key encipherment"]);
    if !exact {
        return Err(format!("its usages are {usages:?}, those of a joining kubelet are digital signature and client auth"));
    }
    if content.common_names != [node_user] {
        return Err(format!("it asks for the name {:?}, this machine's is {node_user}", content.common_names));
    }
    if content.organizations != [NODE_GROUP] {
        return Err(format!("it asks for the groups {:?}, a node's is {NODE_GROUP}", content.organizations));
    }
    if content.more {
        return Err("it asks for more than a name and a group (other names, extensions or attributes)".into());
    }
    Ok(())
}

/// A name that is in use may only be that of this very machine.
fn bound(expected: &Expected, node: Option<&Node>) -> Result<(), String> {
    let Some(node) = node else { return Ok(()) };
    let of = node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).filter(|id| !id.is_empty());
    if of.is_some() && of == expected.provider_id.as_deref() {
        return Ok(());
    }
    let name = &expected.host_name;
    Err(match of {
        Some(of) => format!("a Node {name} exists and belongs to {of}: delete the Node if that machine is gone"),
        None => format!("a Node {name} exists and has no provider ID: delete the Node if its machine is gone"),
    })
}

/// What a PKCS #10 request asks for.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    common_names: Vec<String>,
    organizations: Vec<String>,
    /// Anything beside those: other parts of the subject, alternative names, extensions, attributes.
    more: bool,
    rsa: bool,
}

impl Content {
    /// Reads exactly one PEM block with exactly one request. The text may come from anybody.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let damaged = || "it is not one certificate request in PEM".to_owned();
        let (pem, length) = Pem::read(std::io::Cursor::new(bytes)).map_err(|_| damaged())?;
        let rest = bytes.get(length..).unwrap_or_default();
        if pem.label != PEM_LABEL || !rest.iter().all(u8::is_ascii_whitespace) {
            return Err(damaged());
        }
        let (rest, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|_| damaged())?;
        let info = &request.certification_request_info;
        if !rest.is_empty() {
            return Err(damaged());
        }
        let mut content = Self {
            common_names: Vec::new(),
            organizations: Vec::new(),
            more: !info.attributes().is_empty(),
            rsa: *info.subject_pki.algorithm.oid() == OID_PKCS1_RSAENCRYPTION,
        };
        for attribute in info.subject.iter_attributes() {
            let text = attribute.as_str().map(str::to_owned).map_err(|_| damaged())?;
            let kind = attribute.attr_type();
            if *kind == OID_X509_COMMON_NAME {
                content.common_names.push(text);
            } else if *kind == OID_X509_ORGANIZATION_NAME {
                content.organizations.push(text);
            } else {
                content.more = true;
            }
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests;
