//! Contexts for wiring tests: caches that never change, a clock, and an API server that answers from a script.

mod caches;
mod contexts;
mod empty;
pub mod server;
mod waits;
pub mod windows_nodes;

pub use self::caches::{changing, holding, holding_unreadable, read};
pub use self::contexts::{groups, shared, shared_asked, shared_to};
pub use self::empty::Empty;
pub use self::waits::{list_nodes, reach, with_answers};
