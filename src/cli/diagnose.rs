//! `capw diagnose`: why a machine does not become a node. Symptom → cause → remedy, for people as text, for programs as JSON.

mod answer;
mod logs;
mod machine;
mod reasons;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use self::machine::config_of;
use super::output::{Format, json, print};
use crate::diagnosis;

/// The exit code if a problem was found; 1 is an error, 2 an invalid command line.
pub const FOUND: u8 = 3;

/// Flags of `capw diagnose`. The exit code is 0 when nothing is found, 3 when something is, 1 when it could not look.
#[derive(Args, Debug)]
pub struct Diagnose {
    #[command(subcommand)]
    what: What,
    /// How the answer is printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", global = true)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Look at a WindowsMachine, what belongs to it, and its Node, with the rights of the current kubeconfig.
    Machine(machine::Of),
    /// Look for known failures in log files that were collected on a machine.
    Logs(logs::Files),
}

impl Diagnose {
    pub fn main(self) -> Result<ExitCode, String> {
        diagnosis::rules().map_err(str::to_owned)?;
        let answer = match self.what {
            What::Machine(of) => of.look()?,
            What::Logs(files) => files.look()?,
        };
        let text = match self.output {
            Format::Text => show::text(&answer),
            Format::Json => json(&answer)?,
        };
        print(text)?;
        Ok(if answer.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
    }
}

#[cfg(test)]
mod tests;
