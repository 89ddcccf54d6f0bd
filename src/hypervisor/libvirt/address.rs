//! The address of a libvirt daemon, as libvirt's own clients write it.

use std::path::PathBuf;

use crate::hypervisor::DriverError;

/// Where a daemon listens for TLS unless the address says otherwise.
const TLS_PORT: u16 = 16_514;
/// Where the daemon of the host listens unless the address says otherwise.
const SOCKET: &str = "/run/libvirt/libvirt-sock";

/// What an address means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub transport: Transport,
    /// What the daemon is asked to open, e.g. `qemu:///system`.
    pub uri: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A socket of this host.
    Unix(PathBuf),
    /// TLS with certificates of both sides.
    Tls { host: String, port: u16 },
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, DriverError> {
        let wrong = |why: &str| {
            DriverError::Invalid(format!(
                "spec.libvirt.address {text:?}: {why}; expected e.g. qemu+tls://kvm1.example.com/system or qemu+unix:///system?socket=/run/libvirt/libvirt-sock"
            ))
        };
        let is_place = |place: &str| ["system", "session"].contains(&place);
        if let Some(rest) = text.strip_prefix("qemu+tls://") {
            let (authority, place) =
                rest.split_once('/').filter(|(_, place)| is_place(place)).ok_or_else(|| wrong("its path is neither system nor session"))?;
            let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
                Some((host, port)) => (host, port.parse().map_err(|_| wrong("its port is no number below 65536"))?),
                None => (authority, TLS_PORT),
            };
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            if host.is_empty() {
                return Err(wrong("it names no host"));
            }
            return Ok(Self { transport: Transport::Tls { host, port }, uri: format!("qemu:///{place}") });
        }
        let rest = text.strip_prefix("qemu+unix:///").ok_or_else(|| wrong("it begins neither with qemu+tls:// nor with qemu+unix:///"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !is_place(place) {
            return Err(wrong("its path is neither system nor session"));
        }
        let socket = match query {
            "" if place == "session" => return Err(wrong("the socket of a session must be named")),
            "" => SOCKET,
            query => query.strip_prefix("socket=").filter(|path| path.starts_with('/')).ok_or_else(|| wrong("its only parameter is socket=/PATH"))?,
        };
        Ok(Self { transport: Transport::Unix(socket.into()), uri: format!("qemu:///{place}") })
    }

    /// Whether the daemon runs without the rights to make networks, so that guests are connected by QEMU itself.
    pub fn is_session(&self) -> bool {
        self.uri.ends_with("/session")
    }
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
    fn a_wrong_address_is_told_with_the_field_and_an_example() {
        for (text, why) in [
            ("", "begins neither"),
            ("qemu:///system", "begins neither"),
            ("xen+unix:///system", "begins neither"),
            ("qemu+tls://kvm1", "neither system nor session"),
            ("qemu+tls://kvm1:70000/system", "port"),
            ("qemu+tls:///system", "no host"),
            ("qemu+unix:///", "neither system nor session"),
            ("qemu+unix:///session", "must be named"),
            ("qemu+unix:///system?socket=x", "socket=/PATH"),
            ("qemu+unix:///system?no_verify=1", "socket=/PATH"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("spec.libvirt.address") && error.contains("e.g."), "{error}");
        }
    }
}
