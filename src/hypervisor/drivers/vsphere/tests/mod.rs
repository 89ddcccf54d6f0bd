//! The vSphere driver against the contract of every driver, at govmomi's simulator, and the tests of this driver alone.

mod behaviour;
mod choices;
mod contract;
mod rig;
mod scripted;
mod told;
mod vcenter;
