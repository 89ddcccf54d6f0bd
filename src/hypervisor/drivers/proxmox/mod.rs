//! The `proxmox` driver: VMs of a Proxmox VE cluster.
//!
//! A VM is a clone of a template under an id that is stored before it is used, because the id is the only thing that Proxmox VE keeps
//! unique. The mark is in the description, which the request to clone sets; a tag shows it in listings. Besides the VM there is one file,
//! its configuration drive, named by the VM's UUID. Long work is a task of a node, which the driver polls.

mod calls;
mod client;
pub mod connection;
mod driver;
mod drives;
mod fault;
mod found;
mod hardware;
mod image;
mod journal;
mod listing;
mod names;
mod owners;
mod place;
mod seek;
mod steps;
mod tasks;
#[cfg(test)]
mod tests;
mod words;

pub use self::driver::ProxmoxDriver;
