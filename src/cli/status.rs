//! `capw status`: the objects in the management cluster that hang, and why.

mod entry;
mod groups;
mod machine;
mod objects;
mod report;
mod show;
mod tree;
mod troubles;

use std::process::ExitCode;

use clap::Args;

use self::objects::Objects;
use self::report::Report;
use super::connection::Connection;
use super::diagnose::FOUND;
use super::output::{Format, json, print};
use crate::operator;

/// Flags of `capw status`.
#[derive(Args, Debug)]
#[command(after_help = "Exit code 0: nothing hangs. 3: something does. 1: it could not look, or not at everything.")]
pub struct Status {
    /// Say it of this Cluster, or of this WindowsNodePool without Cluster API, only.
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Look at all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// How the answer is printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

impl Status {
    pub fn main(self) -> Result<ExitCode, String> {
        let report = self.connection.ask(async |cluster, namespace| {
            let namespace = Some(namespace).filter(|_| !self.all_namespaces);
            let objects = Objects::read(&cluster, namespace.as_deref()).await?;
            report::report(&objects, self.name.as_deref(), operator::now())
        })?;
        let text = match self.output {
            Format::Text => show::text(&report),
            Format::Json => json(&report)?,
        };
        print(text)?;
        Ok(code(&report))
    }
}

fn code(report: &Report) -> ExitCode {
    match report {
        Report { hangs: 1.., .. } => ExitCode::from(FOUND),
        report if report.not_looked_at.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests;
