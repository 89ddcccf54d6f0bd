//! TLS to an endpoint: its certificate must be from the authority in the login, or nothing is sent. There is no switch to turn this off,
//! and no authority of the system is trusted.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ConfigBuilder, RootCertStore};

use super::login::Login;
use crate::vm::DriverError;

/// The keys of the Secret.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The TLS configuration for an endpoint that authenticates its clients by certificates.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

/// Returns the TLS configuration for an endpoint that authenticates its clients by password.
pub fn without_certificate(login: &Login) -> Result<ClientConfig, DriverError> {
    Ok(trusting(login)?.with_no_client_auth())
}

fn trusting(login: &Login) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, DriverError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(login, AUTHORITY)? {
        roots.add(certificate).map_err(|error| unusable(login, AUTHORITY, &error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(login, AUTHORITY, &error))?;
    Ok(config.with_root_certificates(roots))
}

fn certificates(login: &Login, key: &str) -> Result<Vec<CertificateDer<'static>>, DriverError> {
    let found: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(login.required(key)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable(login, key, &"it holds no certificate in PEM")),
        Err(error) => Err(unusable(login, key, &error)),
    }
}

fn unusable(login: &Login, key: &str, why: &dyn std::fmt::Display) -> DriverError {
    DriverError::Auth(format!("{} cannot be used: {why}", login.place(key)))
}

impl Tls {
    pub fn new(login: &Login) -> Result<Self, DriverError> {
        // The parser's error is dropped because it may quote the secret.
        let key = PrivateKeyDer::from_pem_slice(login.required(KEY)?).map_err(|_| unusable(login, KEY, &"it holds no private key in PEM"))?;
        let config =
            trusting(login)?.with_client_auth_cert(certificates(login, CERTIFICATE)?, key).map_err(|error| unusable(login, CERTIFICATE, &error))?;
        Ok(Self(Arc::new(config)))
    }

    /// Opens a connection to `host`, whose certificate must name it.
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

/// Returns the error for a failure of TLS; `None`: the connection broke.
pub fn refusal(host: &str, error: &std::io::Error) -> Option<DriverError> {
    let cause = error.get_ref()?;
    if let Some(wrapped) = cause.downcast_ref::<std::io::Error>() {
        return refusal(host, wrapped);
    }
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => Some(DriverError::Certificate(format!(
            "the certificate of {host} is not trusted: {why:?}. Check {AUTHORITY} in the Secret of spec.credentialsRef, and that the certificate names {host}; nothing was sent"
        ))),
        rustls::Error::AlertReceived(why) => Some(DriverError::Auth(format!(
            "{host} does not accept our certificate: {why:?}. Renew {CERTIFICATE} and {KEY} in the Secret of spec.credentialsRef"
        ))),
        _ => None,
    }
}
