//! `capw hypervisor check | prove`.

mod check;
mod finding;
mod objects;
mod prove;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::check::Check;
use self::prove::Prove;
use super::output::print;

/// Flags of `capw hypervisor`.
#[derive(Args, Debug)]
pub struct Hypervisor {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether each WindowsHypervisor of a file has what the machines of the file need.
    Check(Check),
    /// Create VMs on each WindowsHypervisor of a file, interrupt and remove them, and report whether every rule was kept.
    Prove(Prove),
}

impl Hypervisor {
    pub fn main(self) -> Result<ExitCode, String> {
        let (text, is_good) = match self.command {
            Command::Check(check) => check.run()?,
            Command::Prove(prove) => prove.run()?,
        };
        print(text)?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
