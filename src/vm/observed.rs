//! The state of a VM that a driver observes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::power::Power;
use super::report::GuestReport;

/// The result of one consistent read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// No VM, disk or seed exists.
    Absent,
    /// An object with this name or identity exists without our owner mark. It is never touched.
    Foreign {
        what: String,
        /// Whether its mark names this machine in another cluster: then its owner is in doubt.
        is_marked: bool,
    },
    Present(Present),
}

/// A VM with our owner mark, or its leftovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub power: Power,
    pub seeded: Seeded,
    /// False if only leftovers (disk, seed) exist.
    pub vm: bool,
    /// The sorted addresses that are of use to others ([`usable`]).
    pub addresses: Vec<IpAddr>,
    /// The newest report of the guest.
    pub report: Option<GuestReport>,
    /// The hypervisor's message why a VM that is on does not run.
    pub trouble: Option<String>,
    /// The hypervisor's warning while the VM runs. It affects only the report.
    pub warning: Option<String>,
}

/// Whether a VM's seed is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeded {
    No,
    Yes,
    /// The seed is detached for the next start; the running guest still has it.
    UntilRestart,
}

impl Seeded {
    pub fn from_attached(attached: bool) -> Self {
        if attached { Self::Yes } else { Self::No }
    }
}

/// Returns the addresses at which others reach a VM, sorted and without duplicates: no loopback, link-local or unspecified ones.
pub fn usable(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let reachable = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !(v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast()),
    };
    let found: BTreeSet<IpAddr> = addresses.into_iter().filter(reachable).collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_others_can_use_in_one_order() {
        let all = ["fe80::1", "10.0.0.9", "169.254.3.4", "127.0.0.1", "::1", "10.0.0.10", "2001:db8::1", "10.0.0.9", "0.0.0.0"];
        let found = usable(all.iter().map(|text| text.parse().unwrap()));
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.9", "10.0.0.10", "2001:db8::1"]);
    }
}
