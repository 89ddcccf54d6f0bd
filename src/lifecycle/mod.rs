//! SITUATION → DECISION (pure).

pub mod csr;
