//! Finds the settings of the Linux side that Windows nodes cannot use (pure). One file per family of networks.

mod calico;
mod flannel;
mod judge;
mod limits;
mod operator;
mod others;
mod ranges;

pub use self::judge::judge;
pub use self::limits::PORT;
