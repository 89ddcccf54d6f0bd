//! Decides the next step of a WindowsBootstrapConfig ([`step`]), and which certificates its machine gets ([`csr`]). Pure.

pub mod csr;
pub mod outcome;
pub mod step;
