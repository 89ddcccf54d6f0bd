//! The `vsphere` driver: VMs of a vCenter.
//!
//! A VM is a clone of a template in one folder, in which its name is unique: the vCenter refuses a second clone of the name. The mark
//! is in its extra configuration, under a key that its guest can neither read nor write; guestinfo values carry the seed in and the
//! guest's reports out. A seed may also be a CD, whose file is in the VM's own directory. Nothing is created outside the VM, so nothing is
//! left after its deletion.
//!
//! The vCenter pushes changes ([`updates`], [`mirror`]), so that observing and waiting cost no requests. Cached state is read again
//! before anything is destroyed; without updates, all state is requested.

mod alarm_names;
mod alarms;
mod answer;
mod calls;
mod caps;
mod client;
mod connection;
mod datastore_file;
mod drive;
mod driver;
mod fault;
mod following;
mod found;
mod group;
mod image;
mod library;
mod look;
mod mirror;
mod place;
mod properties;
mod rest;
mod selection;
mod session;
mod soap;
mod steps;
mod task;
#[cfg(test)]
mod tests;
mod updates;

pub use self::driver::VsphereDriver;
pub use self::session::Sessions;
