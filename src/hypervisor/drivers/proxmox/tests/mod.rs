//! Tests the Proxmox VE driver with fakepve: the contract of every driver, and the behaviour of this driver alone.

mod behaviour;
mod cluster;
mod contract;
mod faults;
mod rig;
mod scripted;
