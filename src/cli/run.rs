//! `capw run`: the controllers.

use clap::Args;

/// Flags of `capw run`.
#[derive(Args, Debug)]
pub struct Run {}

impl Run {
    pub fn main(self) -> Result<(), String> {
        Err("not built yet".into())
    }
}
