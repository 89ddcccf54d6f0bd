//! Tests the libvirt driver with a real daemon and real QEMU VMs: the contract of every driver, and the behaviour of this driver alone.

mod addresses;
mod agent;
mod between;
mod checks;
mod clones;
mod contract;
mod disks;
mod events;
mod hardware;
mod life;
mod logs;
mod recipe;
mod rig;
mod ssh;
mod starts;
mod tls;
mod told;
mod troubles;
