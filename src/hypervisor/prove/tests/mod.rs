//! Tests the proof at a simulated hypervisor.

mod broken;
mod lab;
mod runs;
