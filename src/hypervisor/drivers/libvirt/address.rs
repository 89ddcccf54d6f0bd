//! The address of a libvirt daemon, in the format of libvirt's own clients.

use std::path::PathBuf;

use crate::hypervisor::DriverError;

/// The default port of a daemon for TLS.
pub const TLS_PORT: u16 = 16_514;
/// The default port of sshd.
pub const SSH_PORT: u16 = 22;
/// The default socket of the daemon on the host.
const SOCKET: &str = "/run/libvirt/libvirt-sock";

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub transport: Transport,
    /// The URI that the daemon opens, e.g. `qemu:///system`.
    pub uri: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A socket of this host.
    Unix(PathBuf),
    /// TLS with certificates of both sides.
    Tls { host: String, port: u16 },
    /// A socket of a host that is reached by SSH.
    Ssh { user: String, host: String, port: u16, socket: String },
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, DriverError> {
        let wrong = |why: &str| {
            DriverError::Invalid(format!(
                "spec.libvirt.address {text:?}: {why}; expected e.g. qemu+tls://kvm1.example.com/system, qemu+ssh://capw@kvm1.example.com/system or qemu+unix:///system?socket=/run/libvirt/libvirt-sock"
            ))
        };
        let (kind, rest) = text
            .strip_prefix("qemu+")
            .and_then(|rest| rest.split_once("://"))
            .filter(|(kind, _)| ["tls", "ssh", "unix"].contains(kind))
            .ok_or_else(|| wrong("it begins with none of qemu+tls://, qemu+ssh:// and qemu+unix:///"))?;
        let (authority, place) = rest.split_once('/').unwrap_or((rest, ""));
        let (place, query) = place.split_once('?').unwrap_or((place, ""));
        if !["system", "session"].contains(&place) {
            return Err(wrong("its path is neither system nor session"));
        }
        let uri = format!("qemu:///{place}");
        let transport = match (kind, query) {
            ("tls", "") => {
                let (host, port) = host(authority, TLS_PORT).map_err(wrong)?;
                Transport::Tls { host, port }
            }
            ("tls", _) => return Err(wrong("it takes no parameters")),
            ("ssh", _) => {
                let (user, at) =
                    authority.split_once('@').filter(|(user, _)| !user.is_empty()).ok_or_else(|| wrong("it names no user, as in capw@kvm1"))?;
                let (host, port) = host(at, SSH_PORT).map_err(wrong)?;
                Transport::Ssh { user: user.to_owned(), host, port, socket: socket(place, query).map_err(wrong)? }
            }
            _ if !authority.is_empty() => return Err(wrong("a socket is on this host: after qemu+unix:// comes a third /")),
            _ => Transport::Unix(socket(place, query).map_err(wrong)?.into()),
        };
        Ok(Self { transport, uri })
    }

    /// Whether the daemon runs without the rights to create networks, so that QEMU itself connects the guests.
    pub fn is_session(&self) -> bool {
        self.uri.ends_with("/session")
    }
}

fn host(authority: &str, default_port: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port.parse().map_err(|_| "its port is no number below 65536")?),
        None => (authority, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() { Err("it names no host") } else { Ok((host, port)) }
}

fn socket(place: &str, query: &str) -> Result<String, &'static str> {
    let socket = match query {
        "" if place == "session" => return Err("the socket of a session must be named"),
        "" => SOCKET,
        query => query.strip_prefix("socket=").filter(|path| path.starts_with('/')).ok_or("its only parameter is socket=/PATH")?,
    };
    if socket.ends_with("-ro") { Err("a socket that ends in -ro serves those who only read") } else { Ok(socket.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_libvirt() {
        for (text, socket, uri) in [
            ("qemu+unix:///system", SOCKET, "qemu:///system"),
            ("qemu+unix:///system?socket=/a/b", "/a/b", "qemu:///system"),
            ("qemu+unix:///session?socket=/a/b", "/a/b", "qemu:///session"),
        ] {
            let expected = Address { transport: Transport::Unix(socket.into()), uri: uri.into() };
            assert_eq!(Address::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn hosts_are_names_and_addresses_of_both_kinds() {
        for (text, host, port) in [
            ("qemu+tls://kvm1.example.com/system", "kvm1.example.com", 16_514),
            ("qemu+tls://10.0.0.7:99/system", "10.0.0.7", 99),
            ("qemu+tls://[2001:db8::7]/system", "2001:db8::7", 16_514),
            ("qemu+tls://[2001:db8::7]:99/system", "2001:db8::7", 99),
        ] {
            let expected = Transport::Tls { host: host.into(), port };
            assert_eq!(Address::parse(text).map(|address| address.transport), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_socket_behind_ssh_has_a_user_a_host_and_a_path() {
        for (text, port, socket) in [("qemu+ssh://capw@kvm1/system", 22, SOCKET), ("qemu+ssh://capw@kvm1:2222/session?socket=/a/b", 2222, "/a/b")] {
            let expected = Transport::Ssh { user: "capw".into(), host: "kvm1".into(), port, socket: socket.into() };
            assert_eq!(Address::parse(text).map(|address| address.transport), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_address_is_told_with_the_field_and_an_example() {
        for (text, why) in [
            ("", "begins with none"),
            ("qemu:///system", "begins with none"),
            ("xen+unix:///system", "begins with none"),
            ("qemu+tls://kvm1", "neither system nor session"),
            ("qemu+tls://kvm1:70000/system", "port"),
            ("qemu+tls:///system", "no host"),
            ("qemu+tls://kvm1/system?no_verify=1", "no parameters"),
            ("qemu+ssh://kvm1/system", "no user"),
            ("qemu+ssh://@kvm1/system", "no user"),
            ("qemu+ssh://capw@/system", "no host"),
            ("qemu+ssh://capw@kvm1/session", "must be named"),
            ("qemu+ssh://capw@kvm1/system?no_verify=1", "socket=/PATH"),
            ("qemu+unix://kvm1/system", "third /"),
            ("qemu+unix:///", "neither system nor session"),
            ("qemu+unix:///session", "must be named"),
            ("qemu+unix:///system?socket=x", "socket=/PATH"),
            ("qemu+unix:///system?socket=/run/libvirt/libvirt-sock-ro", "only read"),
            ("qemu+unix:///system?no_verify=1", "socket=/PATH"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("spec.libvirt.address") && error.contains("e.g."), "{error}");
        }
    }
}
