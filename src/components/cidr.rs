//! IP networks in the notation of Kubernetes: `10.244.0.0/16`.

use std::fmt;
use std::net::IpAddr;

/// An IP network: its first address and its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// Returns the bits of an address and their number.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl Cidr {
    /// Parses a network and clears the bits below its prefix; `None` if the text is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.trim().split_once('/')?;
        let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        let (bits, width) = bits(address);
        let below = u32::from(width.checked_sub(prefix)?);
        let first = bits.checked_shr(below).and_then(|bits| bits.checked_shl(below)).unwrap_or(0);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(first).ok()?.into()),
            IpAddr::V6(_) => IpAddr::V6(first.into()),
        };
        Some(Self { address, prefix })
    }

    /// Parses networks that are separated by commas, as kubeadm and flags write them. `None` if one of them is invalid.
    pub fn parse_all(text: &str) -> Option<Vec<Self>> {
        text.split(',').filter(|part| !part.trim().is_empty()).map(Self::parse).collect()
    }

    /// Returns the network that consists of this one address.
    pub fn of(address: IpAddr) -> Self {
        Self { address, prefix: bits(address).1 }
    }

    pub fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// The prefix length.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// The number of its addresses, or `u64::MAX` if it has more.
    pub fn addresses(self) -> u64 {
        1u64.checked_shl(u32::from(bits(self.address).1.saturating_sub(self.prefix))).unwrap_or(u64::MAX)
    }

    /// Whether the two networks share an address.
    pub fn overlaps(self, other: Self) -> bool {
        let ((one, width), (two, other_width)) = (bits(self.address), bits(other.address));
        let below = u32::from(width.saturating_sub(self.prefix.min(other.prefix)));
        width == other_width && (one ^ two).checked_shr(below).unwrap_or(0) == 0
    }

    /// Whether this network contains all addresses of the other.
    pub fn contains(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.overlaps(other)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Joins the networks for messages: `10.244.0.0/16 and fd00::/56`.
pub fn listed(networks: &[Cidr]) -> String {
    networks.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for (text, expected) in [
            ("10.244.0.0/16", Some("10.244.0.0/16")),
            ("10.244.7.9/16", Some("10.244.0.0/16")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("1.2.3.4/32", Some("1.2.3.4/32")),
            ("fd00:10:244::/56", Some("fd00:10:244::/56")),
            ("::/0", Some("::/0")),
            ("10.244.0.0/33", None),
            ("fd00::/129", None),
            ("10.244.0.0", None),
            ("10.244.0/16", None),
            ("", None),
        ] {
            assert_eq!(Cidr::parse(text).map(|network| network.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(Cidr::parse_all("10.0.0.0/8, fd00::/8").map(|all| listed(&all)).as_deref(), Some("10.0.0.0/8 and fd00::/8"));
        assert_eq!(Cidr::parse_all("10.0.0.0/8,x"), None);
    }

    #[test]
    fn networks_are_compared() {
        let network = |text| Cidr::parse(text).unwrap();
        for (one, two, overlaps, contains) in [
            ("10.244.0.0/16", "10.244.3.0/24", true, true),
            ("10.244.3.0/24", "10.244.0.0/16", true, false),
            ("10.244.0.0/16", "10.245.0.0/16", false, false),
            ("0.0.0.0/0", "10.0.0.1/32", true, true),
            ("::/0", "fd00::/64", true, true),
            ("0.0.0.0/0", "fd00::/64", false, false),
        ] {
            let (one, two) = (network(one), network(two));
            assert_eq!((one.overlaps(two), two.overlaps(one), one.contains(two)), (overlaps, overlaps, contains), "{one} {two}");
        }
        assert_eq!([network("10.0.0.0/29").addresses(), network("::/0").addresses()], [8, u64::MAX]);
    }
}
