//! The contract of every driver, as tests over a [`TestEndpoint`]: a new driver implements one and calls [`all`].

pub mod authority;
mod cases;
mod cuts;
mod endpoint;
pub mod machine;
pub mod program;
pub mod proof;
mod seed;
mod seed_cases;
pub mod server;

pub use self::cases::{all, any_request_may_be_lost};
pub use self::endpoint::{TestEndpoint, clock, spec};
