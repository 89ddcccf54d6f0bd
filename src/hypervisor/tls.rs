//! TLS to an endpoint: its certificate must be from the authority in the login, before anything is sent. There is no switch to turn this
//! off, and no authority of the system is trusted.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::DriverError;
use super::login::Login;

/// Keys of the Secret.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// How to speak with an endpoint that knows its clients by their certificates.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    pub fn new(login: &Login) -> Result<Self, DriverError> {
        let given = |key: &str| login.get(key).ok_or_else(|| DriverError::Auth(format!("{} is missing", login.place(key))));
        let unusable = |key: &str, why: &dyn std::fmt::Display| DriverError::Auth(format!("{} cannot be used: {why}", login.place(key)));
        let certificates = |key: &str| {
            let found: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(given(key)?).collect();
            match found {
                Ok(found) if !found.is_empty() => Ok(found),
                Ok(_) => Err(unusable(key, &"it holds no certificate in PEM")),
                Err(error) => Err(unusable(key, &error)),
            }
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(AUTHORITY)? {
            roots.add(certificate).map_err(|error| unusable(AUTHORITY, &error))?;
        }
        // The error of the reader may quote what it read.
        let key = PrivateKeyDer::from_pem_slice(given(KEY)?).map_err(|_| unusable(KEY, &"it holds no private key in PEM"))?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(AUTHORITY, &error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(CERTIFICATE)?, key)
            .map_err(|error| unusable(CERTIFICATE, &error))?;
        Ok(Self(Arc::new(config)))
    }

    /// A connection whose other end is `host`.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TlsStream<TcpStream>, DriverError> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| DriverError::Invalid(format!("{host:?} is not the name or address of a host")))?;
        let unreachable = |error: &dyn std::fmt::Display| {
            DriverError::Unreachable(format!("{host}:{port} does not answer: {error}. Check address, firewall, and that the daemon listens"))
        };
        let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error))?;
        let _ = stream.set_nodelay(true);
        TlsConnector::from(self.0.clone()).connect(name, stream).await.map_err(|error| refusal(host, &error).unwrap_or_else(|| unreachable(&error)))
    }
}

/// What a failure of TLS means; `None`: the connection broke.
pub fn refusal(host: &str, error: &std::io::Error) -> Option<DriverError> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => Some(DriverError::Certificate(format!(
            "the certificate of {host} is not trusted: {why:?}. Check {AUTHORITY} in the Secret, and that the certificate names {host}; nothing was sent"
        ))),
        rustls::Error::AlertReceived(why) => {
            Some(DriverError::Auth(format!("{host} does not accept our certificate: {why:?}. Renew {CERTIFICATE} and {KEY} in the Secret")))
        }
        _ => None,
    }
}
