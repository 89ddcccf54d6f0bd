//! `capw render`: what a machine would get, without any cluster.

use clap::Args;

/// Flags of `capw render`.
#[derive(Args, Debug)]
pub struct Render {}

impl Render {
    pub fn main(self) -> Result<(), String> {
        Err("not built yet".into())
    }
}
