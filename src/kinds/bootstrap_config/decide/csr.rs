//! Decides which certificate request of a joining node is approved (`docs/design/faults.md#certificate-requests`). Pure.
//!
//! The source of truth for the name is the machine, never the request: a token of one machine cannot create a node of another
//! name. A request that differs in any way from what the kubelet of this machine would send is refused and left for a person.

mod content;
pub mod serving;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;

use self::content::Content;
pub use self::content::Key;
use crate::api::bootstrap_config::{JOIN_GROUP, JOIN_SIGNER};

const TOKEN_USER: &str = "system:bootstrap:";
const NODE_USER: &str = "system:node:";
const NODE_GROUP: &str = "system:nodes";

/// The required content of one machine's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The public half of the token that was created for exactly this machine.
    pub token_id: String,
    /// Host name of the machine and name of its Node.
    pub host_name: String,
    /// The provider ID that the kubelet registers with. `None` when it is not known: then no Node may exist yet.
    pub provider_id: Option<String>,
    /// The key for which a certificate was approved with this token.
    pub approved_key: Option<Key>,
    /// The user whose certificate for this name another approver has approved.
    pub taken_by: Option<String>,
}

/// The verdict on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    /// The request does not concern this machine, or it is decided already.
    Ignore,
    /// The request uses the machine's token or claims the machine's name, but is not what the machine's kubelet would send.
    Refuse(String),
}

/// The id of the bootstrap token that a request was sent with.
pub fn token_of(request: &CertificateSigningRequest) -> Option<String> {
    request.spec.username.as_deref()?.strip_prefix(TOKEN_USER).map(str::to_owned)
}

/// Whether the request was already approved or refused, so that nothing is left to judge.
pub fn is_decided(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return false };
    let decided =
        |c: &k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition| matches!(c.type_.as_str(), "Approved" | "Denied" | "Failed");
    status.certificate.as_ref().is_some_and(|c| !c.0.is_empty()) || status.conditions.iter().flatten().any(decided)
}

/// Whether the request was approved, by any approver.
pub fn is_approved(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Approved")
}

/// The key that a request is for.
pub fn key_of(request: &CertificateSigningRequest) -> Option<Key> {
    Content::read(&request.spec.request.0).ok().map(|content| content.key)
}

/// The node whose name a request claims. `None` if the node itself sends the request: it renews its certificate, which is the job of
/// kube-controller-manager.
pub fn claimed_node(request: &CertificateSigningRequest) -> Option<String> {
    let content = Content::read(&request.spec.request.0).ok()?;
    let user = content.common_names.into_iter().find(|name| name.starts_with(NODE_USER))?;
    let renews = request.spec.username.as_deref() == Some(&user);
    user.strip_prefix(NODE_USER).filter(|_| !renews).map(str::to_owned)
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
        return if claimed_node(request).as_ref() == Some(&expected.host_name) {
            Verdict::Refuse(format!("it asks for the name of this machine, {node_user}, as {user:?}, which is not the machine's token"))
        } else {
            Verdict::Ignore
        };
    }
    let checked = content.and_then(|content| check(request, &content, &node_user).and_then(|()| first(expected, &content)));
    match checked.and_then(|()| bound(expected, node)) {
        Ok(()) => Verdict::Approve,
        Err(why) => Verdict::Refuse(why),
    }
}

/// Checks that the usages are exactly a kubelet's. A kubelet with an RSA key requests key encipherment too.
fn has_usages(request: &CertificateSigningRequest, content: &Content, purpose: &str) -> Result<(), String> {
    let mut usages: Vec<&str> = request.spec.usages.iter().flatten().map(String::as_str).collect();
    usages.sort_unstable();
    let mut expected = vec!["digital signature", purpose];
    expected.sort_unstable();
    let with_rsa: Vec<&str> = expected.iter().copied().chain(["key encipherment"]).collect();
    let same = |mut wanted: Vec<&str>| {
        wanted.sort_unstable();
        wanted == usages
    };
    if same(expected) || (content.rsa && same(with_rsa)) {
        return Ok(());
    }
    Err(format!("its usages are {usages:?}, those of a kubelet are digital signature and {purpose}"))
}

fn check(request: &CertificateSigningRequest, content: &Content, node_user: &str) -> Result<(), String> {
    if !request.spec.groups.iter().flatten().any(|g| g == JOIN_GROUP) {
        return Err(format!("its requester is not in the group {JOIN_GROUP}"));
    }
    has_usages(request, content, "client auth")?;
    if content.common_names != [node_user] {
        return Err(format!("it asks for the name {:?}, this machine's is {node_user}", content.common_names));
    }
    if content.organizations != [NODE_GROUP] {
        return Err(format!("it asks for the groups {:?}, a node's is {NODE_GROUP}", content.organizations));
    }
    if content.more || !content.names.is_empty() {
        return Err("it asks for more than a name and a group (other names, extensions or attributes)".into());
    }
    Ok(())
}

/// Checks that the key is the machine's only one: a second key belongs to a program that has read the machine's token.
fn first(expected: &Expected, content: &Content) -> Result<(), String> {
    let name = &expected.host_name;
    if let Some(who) = &expected.taken_by {
        return Err(format!(
            "a certificate for {name} was approved for {who:?}, and not by CAPW: the holder of its key can act as this machine. Find out who that is, delete the request, then the Machine"
        ));
    }
    match &expected.approved_key {
        Some(key) if *key != content.key => Err(format!(
            "a certificate for another key was approved with this token: one of the two is not the kubelet of {name}. Delete the Machine, and look for who could read its bootstrap data"
        )),
        _ => Ok(()),
    }
}

/// Checks that a name in use belongs to this very machine.
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

#[cfg(test)]
mod tests;
