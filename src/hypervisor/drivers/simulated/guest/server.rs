//! A guest's connection to the API server of its cluster: with no credentials, its token, or its certificate.
//!
//! A connection lives as long as its task: a thousand waiting guests hold none.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::{Client, Config};
use secrecy::{ExposeSecret, SecretString};
use x509_parser::pem::Pem;

use super::error::JoinError;
use crate::causes::chain;

/// The longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The API server's address, and the CA that vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `https://host:port`.
    pub url: String,
    /// CA certificate, PEM; `None` only for the first read of cluster-info, whose content is checked instead.
    pub ca_pem: Option<String>,
}

/// The identity that the guest presents.
pub enum Credentials<'a> {
    Anonymous,
    Token(&'a SecretString),
    Certificate { pem: &'a str, key: &'a SecretString },
}

impl Server {
    pub fn client(&self, credentials: &Credentials<'_>) -> Result<Client, JoinError> {
        let wrong = |reason: String| JoinError(format!("cannot use the API server {}: {reason}", self.url));
        let mut config = Config::new(self.url.parse().map_err(|error| wrong(format!("not an address: {error}")))?);
        config.read_timeout = Some(PATIENCE);
        match &self.ca_pem {
            Some(pem) => config.root_cert = Some(certificates(pem).map_err(wrong)?),
            None => {
                config.accept_invalid_certs = true;
                // Otherwise it reads all certificates of the system.
                config.root_cert = Some(Vec::new());
            }
        }
        match credentials {
            Credentials::Anonymous => {}
            Credentials::Token(token) => config.auth_info.token = Some((*token).clone()),
            Credentials::Certificate { pem, key } => {
                config.auth_info.client_certificate_data = Some(STANDARD.encode(pem));
                config.auth_info.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
            }
        }
        Client::try_from(config).map_err(|error| wrong(error.to_string()))
    }

    /// Explains a failed request to a reader of the guest's console.
    pub fn explain(&self, what: &str, error: &kube::Error) -> JoinError {
        JoinError(match error {
            kube::Error::Api(status) if status.code == 401 => {
                format!("{what}: {} refuses the credentials (401): the bootstrap token expired, was removed or is not of this cluster", self.url)
            }
            kube::Error::Api(status) if status.code == 403 => {
                format!("{what}: forbidden (403): {}: grant it to the group of the token", status.message)
            }
            kube::Error::Api(status) => format!("{what}: {} answers {}: {}", self.url, status.code, status.message),
            other => format!("{what}: {} cannot be reached: {}; check the endpoint and the network", self.url, chain(other)),
        })
    }
}

/// The status code of the API server's refusal, if it answered.
pub fn refused(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The DER of all certificates in a PEM text.
pub fn certificates(pem: &str) -> Result<Vec<Vec<u8>>, String> {
    let found: Result<Vec<_>, _> = Pem::iter_from_buffer(pem.as_bytes()).map(|block| block.map(|block| block.contents)).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("the CA has no certificate in PEM form".into()),
        Err(error) => Err(format!("the CA is not in PEM form: {error}")),
    }
}
