//! The node's block of the pod network, from the file that flanneld writes.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// A block of an IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    network: Ipv4Addr,
    bits: u8,
}

impl Subnet {
    /// Parses `10.244.1.0/24`. Host bits of the address are ignored.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (Ipv4Addr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let network = address.to_bits() & mask(bits)?;
        Some(Self { network: network.into(), bits })
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        mask(self.bits).is_some_and(|mask| address.to_bits() & mask == self.network.to_bits())
    }

    /// The address that flanneld gives the node if its network is a bridge, and that win-bridge uses as the pods' gateway.
    /// <https://github.com/flannel-io/flannel/blob/v0.28.10/pkg/backend/hostgw/hostgw_windows.go> (`expectedPodGatewayAddress`)
    pub fn gateway(self) -> Ipv4Addr {
        self.network.to_bits().saturating_add(2).into()
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

fn mask(bits: u8) -> Option<u32> {
    (bits <= 32).then(|| u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0))
}

/// Reads the subnet from the file; `None` while the file is missing or incomplete.
pub fn read(path: &Path) -> Option<Subnet> {
    let text = fs::read_to_string(path).ok()?;
    let subnet = text.lines().find_map(|line| line.strip_prefix("FLANNEL_SUBNET="))?;
    Subnet::parse(subnet.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subnet_is_that_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subnet.env");
        for (text, subnet) in [
            ("FLANNEL_NETWORK=10.244.0.0/16\r\nFLANNEL_SUBNET=10.244.1.1/24\r\nFLANNEL_MTU=1450\r\n", Some("10.244.1.0/24")),
            ("FLANNEL_SUBNET=10.244.1.129/25", Some("10.244.1.128/25")),
            ("FLANNEL_SUBNET=0.0.0.1/0", Some("0.0.0.0/0")),
            ("FLANNEL_SUBNET=10.244.1.1/33", None),
            ("FLANNEL_NETWORK=10.244.0.0/16\n", None),
            ("", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path).map(|subnet| subnet.to_string()).as_deref(), subnet, "{text}");
        }
        assert_eq!(read(&folder.path().join("other")), None);
        assert_eq!(Subnet::parse("10.244.1.129/25").unwrap().gateway(), Ipv4Addr::new(10, 244, 1, 130));
        let subnet = Subnet::parse("10.244.1.1/24").unwrap();
        assert!(subnet.contains(Ipv4Addr::new(10, 244, 1, 2)) && !subnet.contains(Ipv4Addr::new(10, 244, 2, 2)));
    }
}
