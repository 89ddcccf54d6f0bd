//! The client certificate of a node, obtained as by the kubelet: a key that never leaves the guest's disk, a certificate signing
//! request with the bootstrap token, and a watch until the request is approved.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{Api, ObjectMeta, PostParams, WatchEvent, WatchParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha512};

use super::error::JoinError;
use super::server::{Credentials, Server, refused};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// How many seconds one watch lasts; then a new watch is opened.
const WATCH: u32 = 290;

/// Creates a key (ECDSA P-256), PEM.
pub fn new_key() -> Result<SecretString, JoinError> {
    let key = KeyPair::generate().map_err(|error| JoinError(format!("the node's key cannot be made: {error}")))?;
    Ok(key.serialize_pem().into())
}

/// Requests the certificate of `system:node:<node>` and waits without a limit; the caller sets one. A repeated call with the
/// same key finds the earlier request. `waiting` is called once with the name of the request.
pub async fn obtain(
    server: &Server,
    token: &SecretString,
    node: &str,
    key_pem: &SecretString,
    waiting: impl AsyncFnOnce(String),
) -> Result<String, JoinError> {
    let key = KeyPair::from_pem(key_pem.expose_secret()).map_err(|error| JoinError(format!("the node's key on its disk cannot be read: {error}")))?;
    let api: Api<CertificateSigningRequest> = Api::all(server.client(&Credentials::Token(token))?);
    let name = name(&key, node);
    let what = format!("certificate signing request {name}");
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request(&key, node)?.into_bytes()),
            signer_name: SIGNER.into(),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let mut seen = match api.create(&PostParams::default(), &request).await {
        Ok(made) => made,
        Err(error) if refused(&error) == Some(409) => api.get(&name).await.map_err(|error| server.explain(&format!("get {what}"), &error))?,
        Err(error) => return Err(server.explain(&format!("create {what}"), &error)),
    };
    if let Some(certificate) = issued(&what, &seen)? {
        return Ok(certificate);
    }
    let mut waiting = Some(waiting);
    loop {
        let version = seen.metadata.resource_version.clone().unwrap_or_default();
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH);
        let watched = |error| server.explain(&format!("watch {what}"), &error);
        let mut events = api.watch(&parameters, &version).await.map_err(watched)?.boxed();
        // Only now: the token may be withdrawn as soon as the certificate is issued, and an open watch outlives the token.
        if let Some(waiting) = waiting.take() {
            waiting(format!("{what} waits for approval")).await;
        }
        while let Some(event) = events.try_next().await.map_err(watched)? {
            match event {
                WatchEvent::Added(changed) | WatchEvent::Modified(changed) => seen = changed,
                WatchEvent::Deleted(_) => return Err(JoinError(format!("{what} was deleted before it was approved"))),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(watched(kube::Error::Api(status))),
            }
            if let Some(certificate) = issued(&what, &seen)? {
                return Ok(certificate);
            }
        }
    }
}

/// The certificate, once it is issued; an error if it will never be issued.
fn issued(what: &str, request: &CertificateSigningRequest) -> Result<Option<String>, JoinError> {
    let Some(status) = &request.status else { return Ok(None) };
    for condition in status.conditions.iter().flatten() {
        if condition.type_ == "Denied" || condition.type_ == "Failed" {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            return Err(JoinError(format!("{what}: {}: {} {}", condition.type_, text(&condition.reason), text(&condition.message))));
        }
    }
    let Some(certificate) = &status.certificate else { return Ok(None) };
    String::from_utf8(certificate.0.clone()).map(Some).map_err(|error| JoinError(format!("{what}: the certificate is not PEM: {error}")))
}

/// The certificate request (PKCS #10), PEM.
fn request(key: &KeyPair, node: &str) -> Result<String, JoinError> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, format!("system:node:{node}"));
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = subject;
    let made = parameters.serialize_request(key).and_then(|request| request.pem());
    made.map_err(|error| JoinError(format!("the certificate signing request cannot be made: {error}")))
}

/// The name of the request in the kubelet's form. Key and node determine it, so a restarted guest finds its request.
fn name(key: &KeyPair, node: &str) -> String {
    let mut hash = Sha512::new();
    hash.update(key.subject_public_key_info());
    for part in ["|", "system:nodes", "|", "system:node:", node] {
        hash.update(part);
    }
    for usage in USAGES {
        hash.update("|");
        hash.update(usage);
    }
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(hash.finalize()).get(..43).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::certificates::v1::{CertificateSigningRequestCondition, CertificateSigningRequestStatus};
    use x509_parser::prelude::{FromDer, X509CertificationRequest};

    #[test]
    fn the_request_names_the_node_and_nothing_else() {
        let key = KeyPair::from_pem(new_key().unwrap().expose_secret()).unwrap();
        let pem = request(&key, "win-1").unwrap();
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let (_, read) = X509CertificationRequest::from_der(&block.contents).unwrap();
        let subject = &read.certification_request_info.subject;
        assert_eq!(subject.to_string(), "O=system:nodes, CN=system:node:win-1");
        assert!(read.requested_extensions().is_none_or(|mut extensions| extensions.next().is_none()), "no names besides the subject");
    }

    #[test]
    fn a_restart_asks_under_the_same_name() {
        let pem = new_key().unwrap();
        let key = || KeyPair::from_pem(pem.expose_secret()).unwrap();
        assert_eq!(name(&key(), "win-1"), name(&key(), "win-1"));
        assert_ne!(name(&key(), "win-1"), name(&key(), "win-2"));
        assert!(name(&key(), "win-1").len() < 64);
    }

    #[test]
    fn a_denied_request_is_an_error_with_the_reason() {
        let with = |type_: &str, certificate: Option<&str>| CertificateSigningRequest {
            status: Some(CertificateSigningRequestStatus {
                certificate: certificate.map(|text| ByteString(text.into())),
                conditions: Some(vec![CertificateSigningRequestCondition {
                    type_: type_.into(),
                    status: "True".into(),
                    reason: Some("NotOurs".into()),
                    ..CertificateSigningRequestCondition::default()
                }]),
            }),
            ..CertificateSigningRequest::default()
        };
        assert!(issued("x", &with("Denied", None)).unwrap_err().to_string().contains("NotOurs"));
        assert_eq!(issued("x", &with("Approved", None)), Ok(None));
        assert_eq!(issued("x", &with("Approved", Some("PEM"))), Ok(Some("PEM".into())));
        assert_eq!(issued("x", &CertificateSigningRequest::default()), Ok(None));
    }
}
