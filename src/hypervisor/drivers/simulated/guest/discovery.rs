//! Discovery as kubeadm does it: an untrusted read of `kube-public/cluster-info`, its signature by the token, the pinned CA, and
//! a second read over the connection that this CA vouches for.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::JoinError;
use super::kubeadm::BootstrapToken;
use super::server::{Credentials, Server, certificates};

/// The part of a kubeconfig that cluster-info holds.
#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

/// Attempts the discovery once. The returned server is trusted.
pub async fn discover(token: &BootstrapToken) -> Result<Server, JoinError> {
    let endpoint = format!("https://{}", token.api_server_endpoint);
    let unverified = Server { url: endpoint.clone(), ca_pem: None };
    let kubeconfig = signed(&cluster_info(&unverified).await?, &token.token)?;
    let found = cluster(&kubeconfig)?;
    pinned(found.ca_pem.as_deref().unwrap_or_default(), &token.ca_cert_hashes)?;
    // Repeat the read, now from the server that the CA vouches for.
    let verified = Server { url: endpoint, ca_pem: found.ca_pem.clone() };
    if signed(&cluster_info(&verified).await?, &token.token)? != kubeconfig {
        return Err(JoinError("cluster-info differs between the unverified and the verified connection: the connection is intercepted".into()));
    }
    Ok(found)
}

async fn cluster_info(server: &Server) -> Result<ConfigMap, JoinError> {
    let api: Api<ConfigMap> = Api::namespaced(server.client(&Credentials::Anonymous)?, "kube-public");
    api.get("cluster-info").await.map_err(|error| server.explain("get kube-public/cluster-info", &error))
}

/// The kubeconfig in cluster-info, if the token signed it.
fn signed(info: &ConfigMap, token: &SecretString) -> Result<String, JoinError> {
    let (id, secret) = token.expose_secret().split_once('.').ok_or_else(|| JoinError("the token is not <id>.<secret>".into()))?;
    let data = |key: &str| info.data.as_ref().and_then(|data| data.get(key));
    let kubeconfig =
        data("kubeconfig").ok_or_else(|| JoinError("kube-public/cluster-info has no kubeconfig: run kubeadm init phase bootstrap-token".into()))?;
    let signature = data(&format!("jws-kubeconfig-{id}")).ok_or_else(|| {
        JoinError(format!("token {id} is not known to the cluster: it expired, was removed, or kube-controller-manager runs without bootstrapsigner"))
    })?;
    let wrong = || {
        JoinError(format!(
            "the signature of token {id} in kube-public/cluster-info is wrong: the token is not of this cluster, or cluster-info was changed"
        ))
    };
    let (header, signature) = signature.split_once("..").ok_or_else(wrong)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| wrong())?;
    let payload = URL_SAFE_NO_PAD.encode(kubeconfig);
    if !same(&hmac_sha256(secret.as_bytes(), format!("{header}.{payload}").as_bytes()), &signature) {
        return Err(wrong());
    }
    Ok(kubeconfig.clone())
}

fn cluster(kubeconfig: &str) -> Result<Server, JoinError> {
    let wrong = |reason: String| JoinError(format!("the kubeconfig in kube-public/cluster-info cannot be used: {reason}"));
    let kubeconfig: Kubeconfig = serde_saphyr::from_str(kubeconfig).map_err(|error| wrong(error.to_string()))?;
    let [NamedCluster { cluster }] = kubeconfig.clusters.as_slice() else { return Err(wrong("it must have one cluster".into())) };
    let ca = STANDARD.decode(&cluster.certificate_authority_data).map_err(|error| wrong(format!("certificate-authority-data: {error}")))?;
    let ca = String::from_utf8(ca).map_err(|error| wrong(format!("certificate-authority-data: {error}")))?;
    Ok(Server { url: cluster.server.clone(), ca_pem: Some(ca) })
}

/// Checks that one of the certificates has one of the pinned public keys.
fn pinned(ca_pem: &str, hashes: &[String]) -> Result<(), JoinError> {
    let mut found = Vec::new();
    for der in certificates(ca_pem).map_err(JoinError)? {
        let (_, certificate) =
            X509Certificate::from_der(&der).map_err(|error| JoinError(format!("the cluster's CA is not a certificate: {error}")))?;
        found.push(format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(certificate.public_key().raw))));
    }
    if hashes.iter().any(|hash| found.contains(&hash.to_lowercase())) {
        return Ok(());
    }
    Err(JoinError(format!(
        "the cluster's CA has the public key {}, not the pinned {}: another cluster, or the CA was replaced",
        found.join(", "),
        hashes.join(", ")
    )))
}

/// HMAC of RFC 2104.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let hashed;
    let key = if key.len() > BLOCK {
        hashed = Sha256::digest(key);
        &hashed[..]
    } else {
        key
    };
    let pad = |byte: u8| -> Vec<u8> { (0..BLOCK).map(|at| key.get(at).copied().unwrap_or(0) ^ byte).collect() };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// Compares in constant time: the duration does not depend on the place of the difference.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Test cases 2 and 6 of RFC 4231.
    #[test]
    fn hmac_of_the_standard() {
        let short = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(HEXLOWER.encode(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(HEXLOWER.encode(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    fn info(kubeconfig: &str, id: &str, secret: &str) -> ConfigMap {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
        let body = format!("{header}.{}", URL_SAFE_NO_PAD.encode(kubeconfig));
        let signature = URL_SAFE_NO_PAD.encode(hmac_sha256(secret.as_bytes(), body.as_bytes()));
        let data = BTreeMap::from([("kubeconfig".into(), kubeconfig.into()), (format!("jws-kubeconfig-{id}"), format!("{header}..{signature}"))]);
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn only_what_the_token_signed_is_believed() {
        let token = SecretString::from("abcdef.0123456789abcdef");
        assert_eq!(signed(&info("a: b", "abcdef", "0123456789abcdef"), &token).unwrap(), "a: b");
        let mut changed = info("a: b", "abcdef", "0123456789abcdef");
        changed.data.get_or_insert_default().insert("kubeconfig".into(), "a: evil".into());
        for (info, why) in [
            (changed, "signature"),
            (info("a: b", "abcdef", "another secret 0"), "signature"),
            (info("a: b", "zzzzzz", "0123456789abcdef"), "token abcdef is not known"),
            (ConfigMap::default(), "no kubeconfig"),
        ] {
            let error = signed(&info, &token).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("0123456789abcdef"), "{error}");
        }
    }

    #[test]
    fn a_ca_that_is_not_pinned_is_refused() {
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem();
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        let hash = format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(spki)));
        assert!(pinned(&pem, &["sha256:00".into(), hash.to_uppercase().replace("SHA256", "sha256")]).is_ok());
        assert!(pinned(&pem, &["sha256:00".into()]).unwrap_err().to_string().contains(&hash));
        assert!(pinned(&pem, &[]).is_err() && pinned("", &[hash]).is_err());
    }

    #[test]
    fn server_and_ca_come_from_the_kubeconfig() {
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster:\n    server: https://10.0.0.1:6443\n    certificate-authority-data: {}\n",
            STANDARD.encode("PEM")
        );
        assert_eq!(cluster(&text).unwrap(), Server { url: "https://10.0.0.1:6443".into(), ca_pem: Some("PEM".into()) });
        assert!(cluster("clusters: []").is_err() && cluster("{").is_err());
    }
}
