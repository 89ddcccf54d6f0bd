//! The addresses of network interfaces.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::api::name::VmUuid;

/// The address of a network interface, computed before the VM exists: locally administered, from the VM's UUID and the number of the
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    pub fn of(vm: VmUuid, index: usize) -> Self {
        let digest = Sha256::new().chain_update(vm.0.as_bytes()).chain_update(index.to_be_bytes()).finalize();
        let [a, b, c, d, e, ..] = <[u8; 32]>::from(digest);
        Self([2, a, b, c, d, e])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_has_an_address_of_its_own_that_never_changes() {
        let of = |index| MacAddress::of(VmUuid::of("a"), index).to_string();
        assert_eq!((of(0), of(0) == of(1)), ("02:".to_owned() + &of(0)[3..], false));
        assert_ne!(MacAddress::of(VmUuid::of("b"), 0), MacAddress::of(VmUuid::of("a"), 0));
    }
}
