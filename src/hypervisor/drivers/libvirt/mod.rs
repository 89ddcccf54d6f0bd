//! The `libvirt` driver: QEMU on the user's own host.
//!
//! A VM is a domain and its volumes in one pool: the system disk over or from an image, the configuration drive, and a file for the output
//! of the guest's serial port. CAPW chooses name and UUID, and the daemon refuses a second VM with either; the mark is in the domain's
//! metadata. The domain is removed last, so that it names the owner of leftovers.

pub mod address;
mod addresses;
mod agent;
mod calls;
mod capabilities;
mod checks;
mod client;
mod clone;
mod copies;
mod definitions;
mod disks;
mod domain;
mod driver;
mod events;
mod facts;
mod firmware;
mod hardware;
mod link;
mod listing;
mod logs;
mod looks;
mod making;
mod memory;
mod networks;
mod observe;
mod partitions;
mod qcow2;
mod refusal;
mod rights;
mod rpc;
mod shared;
#[cfg(test)]
mod tests;
mod told;
mod volumes;
mod xdr;

pub use self::driver::LibvirtDriver;
