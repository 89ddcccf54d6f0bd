//! The certificates of the server, and the clients that may call: the files of a mounted Secret, read again when they change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use thiserror::Error;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Names of the files, as cert-manager writes them into a Secret.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CLIENT_CA: &str = "ca.crt";

/// Why files cannot be used. Names the file; never contains its content.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{}: tls.crt and tls.key do not make a server certificate: {reason}", directory.display())]
    Pair { directory: PathBuf, reason: String },
}

/// The certificates that new connections use.
#[derive(Clone)]
pub struct Identity {
    directory: PathBuf,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Vec<u8>,
}

impl Identity {
    /// Reads `tls.crt`, `tls.key` and `ca.crt` of a directory.
    pub fn read(directory: &Path) -> Result<Self, TlsError> {
        let config = Files::read(directory)?.config(directory)?;
        Ok(Self { directory: directory.to_owned(), current: Arc::new(RwLock::new(Arc::new(config))) })
    }

    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.read().clone()
    }

    /// Checks the files at this interval, until `end`. If the files cannot be used, the previous ones stay in use.
    pub async fn follow(self, every: Duration, end: CancellationToken) {
        let mut known = Files::read(&self.directory).ok().map(|files| files.digest());
        while end.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let read = Files::read(&self.directory);
            let digest = read.as_ref().ok().map(Files::digest);
            if digest == known {
                continue;
            }
            known = digest;
            match read.and_then(|files| files.config(&self.directory)) {
                Ok(config) => {
                    *self.current.write() = Arc::new(config);
                    tracing::info!(directory = %self.directory.display(), "new certificates for cluster-autoscaler are in use");
                }
                Err(error) => tracing::warn!(%error, "changed certificates cannot be used; those from before stay"),
            }
        }
    }
}

impl Files {
    fn read(directory: &Path) -> Result<Self, TlsError> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read(&path).map_err(|e| TlsError::File { path, reason: e.to_string() })
        };
        Ok(Self { certificate: read(CERTIFICATE)?, key: read(KEY)?, client_ca: read(CLIENT_CA)? })
    }

    fn digest(&self) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        for part in [&self.certificate[..], &self.key, &self.client_ca] {
            hash.update(Sha256::digest(part));
        }
        hash.finalize().into()
    }

    fn config(&self, directory: &Path) -> Result<ServerConfig, TlsError> {
        let wrong = |name: &str, reason: String| TlsError::File { path: directory.join(name), reason };
        let chain = certificates(&self.certificate).map_err(|e| wrong(CERTIFICATE, e))?;
        // The parser's own message could quote the key.
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| wrong(KEY, "no private key in PEM form".into()))?;
        let mut roots = RootCertStore::empty();
        for ca in certificates(&self.client_ca).map_err(|e| wrong(CLIENT_CA, e))? {
            roots.add(ca).map_err(|e| wrong(CLIENT_CA, e.to_string()))?;
        }
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let clients = clients.build().map_err(|e| wrong(CLIENT_CA, e.to_string()))?;
        let pair = |e: tokio_rustls::rustls::Error| TlsError::Pair { directory: directory.to_owned(), reason: e.to_string() };
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(pair)?;
        let mut config = builder.with_client_cert_verifier(clients).with_single_cert(chain, key).map_err(pair)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

/// Returns the names in the certificate of a client: its common names and DNS names.
pub fn names(certificates: Option<&[CertificateDer<'_>]>) -> Vec<String> {
    let Some(certificate) = certificates.and_then(<[_]>::first) else { return Vec::new() };
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten().map(|names| names.value.general_names.as_slice());
    let dns = alternative.unwrap_or_default().iter().filter_map(|name| if let GeneralName::DNSName(name) = name { Some(*name) } else { None });
    common.chain(dns).map(str::to_owned).collect()
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    if all.is_empty() { Err("no certificate in PEM form".into()) } else { Ok(all) }
}
