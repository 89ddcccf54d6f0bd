//! SSH to a host: the host's key must be in the login, or none of our data is sent. There is no switch to turn this off. Keys are Ed25519
//! or ECDSA on both sides.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{self, Handle, Msg};
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate, decode_secret_key};
use russh::{ChannelStream, Preferred};

use super::login::Login;
use crate::vm::DriverError;

/// The keys of the Secret.
const IDENTITY: &str = "ssh-privatekey";
const HOSTS: &str = "known_hosts";
/// The time between keepalives. A host that is silent for three times this long is treated as unreachable.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The keys for the login to a host.
pub struct Ssh {
    identity: Arc<PrivateKey>,
    hosts: Vec<PublicKey>,
}

/// The user, host and port of a login.
pub struct Place<'a> {
    pub user: &'a str,
    pub host: &'a str,
    pub port: u16,
}

/// A connection to a socket of a host, and the handle that keeps it open.
pub struct Tunnel {
    pub stream: ChannelStream<Msg>,
    pub session: Handle<Trust>,
}

/// The host keys that are trusted.
pub struct Trust(Vec<PublicKey>);

impl client::Handler for Trust {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        Ok(self.0.iter().any(|known| known.key_data() == key.key_data()))
    }
}

impl Ssh {
    pub fn new(login: &Login) -> Result<Self, DriverError> {
        // The parser's error is dropped because it may quote the secret.
        let identity = text(login, IDENTITY)?;
        let identity = decode_secret_key(identity, None)
            .ok()
            .filter(|key| is_supported(&key.algorithm()))
            .ok_or_else(|| unusable(login, IDENTITY, "it is no Ed25519 or ECDSA key without a passphrase; ssh-keygen -t ed25519 -N '' makes one"))?;
        Ok(Self { identity: Arc::new(identity), hosts: hosts(login)? })
    }

    /// Opens a connection to a socket of a host.
    pub async fn connect(&self, place: &Place<'_>, socket: &str) -> Result<Tunnel, DriverError> {
        let Place { user, host, port } = place;
        let algorithms: Vec<Algorithm> = self.hosts.iter().map(PublicKey::algorithm).collect();
        let config = client::Config {
            preferred: Preferred { key: Cow::Owned(algorithms), ..Preferred::DEFAULT },
            keepalive_interval: Some(KEEPALIVE),
            nodelay: true,
            ..client::Config::default()
        };
        let unreachable = |error: &russh::Error| {
            DriverError::Unreachable(format!("{host}:{port} does not answer: {error}. Check address, firewall, and that sshd runs"))
        };
        let mut session = client::connect(Arc::new(config), (*host, *port), Trust(self.hosts.clone())).await.map_err(|error| match error {
            russh::Error::UnknownKey | russh::Error::NoCommonAlgo { .. } => DriverError::Certificate(format!(
                "the key of {host} is not trusted: {error}. Check {HOSTS} in the Secret of spec.credentialsRef with ssh-keyscan -p {port} {host}; nothing was sent"
            )),
            error => unreachable(&error),
        })?;
        let identity = PrivateKeyWithHashAlg::new(self.identity.clone(), None);
        if !session.authenticate_publickey(*user, identity).await.map_err(|error| unreachable(&error))?.success() {
            return Err(DriverError::Auth(format!(
                "{host} does not accept our key for user {user}: add its public half to ~/.ssh/authorized_keys there, or correct {IDENTITY} in the Secret of spec.credentialsRef"
            )));
        }
        let channel = session.channel_open_direct_streamlocal(socket).await.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(why) => DriverError::Unreachable(format!(
                "{host} opens no way to {socket} ({why:?}): check that the daemon runs, that user {user} may open its socket, and AllowStreamLocalForwarding in sshd_config"
            )),
            error => unreachable(&error),
        })?;
        Ok(Tunnel { stream: channel.into_stream(), session })
    }
}

fn is_supported(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Ed25519 | Algorithm::Ecdsa { .. })
}

/// Reads the keys in the format of ssh-keyscan. The Secret is for one host, so the host names in the lines do not matter.
fn hosts(login: &Login) -> Result<Vec<PublicKey>, DriverError> {
    let mut found = Vec::new();
    let lines = text(login, HOSTS)?.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        if line.starts_with('@') {
            return Err(unusable(login, HOSTS, "lines with @cert-authority or @revoked are not understood: name the host's keys themselves"));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let key = words.iter().position(|word| word.starts_with("ssh-") || word.starts_with("ecdsa-")).and_then(|at| words.get(at..at + 2));
        let key = key.and_then(|key| PublicKey::from_openssh(&key.join(" ")).ok());
        found.extend(key.filter(|key| is_supported(&key.algorithm())));
    }
    if found.is_empty() {
        return Err(unusable(login, HOSTS, "it holds no Ed25519 or ECDSA key of the host, as ssh-keyscan prints them"));
    }
    Ok(found)
}

fn text<'a>(login: &'a Login, key: &str) -> Result<&'a str, DriverError> {
    std::str::from_utf8(login.required(key)?).map_err(|_| unusable(login, key, "it is no text"))
}

fn unusable(login: &Login, key: &str, why: &str) -> DriverError {
    DriverError::Auth(format!("{} cannot be used: {why}", login.place(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHXc5xXAOlz5wYyeESkQ8wYLFRyxAlEKHPHOJ2Cm5ZbT";

    fn login(hosts: &str) -> Login {
        Login::new("lab/kvm1".into(), [(HOSTS.to_owned(), hosts.as_bytes().to_vec()), (IDENTITY.to_owned(), b"canary".to_vec())].into())
    }

    #[test]
    fn keys_of_a_host_are_read_as_programs_write_them() {
        for text in [
            ED25519.to_owned(),
            format!("kvm1 {ED25519} root@kvm1"),
            format!("# kvm1:22 SSH-2.0\n\n[kvm1]:2222,10.0.0.7 {ED25519}\nkvm1 ssh-rsa AAAA\n"),
        ] {
            assert_eq!(hosts(&login(&text)).unwrap().len(), 1, "{text}");
        }
        for (text, why) in [("kvm1 ssh-rsa AAAA", "no Ed25519"), ("x", "no Ed25519"), (&*format!("@revoked kvm1 {ED25519}"), "@revoked")] {
            let error = hosts(&login(text)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("known_hosts of Secret lab/kvm1"), "{error}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_used_is_told_and_not_shown() {
        let error = Ssh::new(&login(ED25519)).err().unwrap().to_string();
        assert!(error.contains("ssh-privatekey of Secret lab/kvm1") && error.contains("ssh-keygen") && !error.contains("canary"), "{error}");
        let error = Ssh::new(&Login::default()).err().unwrap().to_string();
        assert!(error.contains("ssh-privatekey") && error.contains("is missing"), "{error}");
    }
}
