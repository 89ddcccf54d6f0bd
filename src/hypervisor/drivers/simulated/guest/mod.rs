//! Guests of simulated VMs: each guest reads the config drive of its VM, carries out the plan ([`runner`]) in a model of
//! Windows ([`model`]), and joins the cluster over the network as kubeadm and the kubelet would.
//!
//! A guest knows only the content of its VM's directory: no object of the operator, no struct handed over in memory.
//! A lock on a file in that directory decides which process runs it.

mod certificate;
mod discovery;
mod disk;
mod error;
mod failure;
mod files;
mod host;
mod image;
mod join;
mod journal;
mod kubeadm;
mod kubelet;
mod model;
mod node;
mod powered;
mod programs;
mod runner;
mod scan;
mod server;
mod windows;
#[cfg(feature = "wine-guests")]
mod wine;
#[cfg(any(test, not(feature = "wine-guests")))]
mod wineless;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod runner_tests;
#[cfg(test)]
mod trace_tests;

pub use self::host::run;
