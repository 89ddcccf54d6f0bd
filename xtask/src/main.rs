//! Runs the tests and reports the results. `make` calls it; it is no part of the product.
#![allow(clippy::print_stdout, reason = "it talks to a person and to the log of CI")]

mod directory;
mod flaky;
mod guard;
mod judge;
mod junit;
mod lacking;
mod left;
mod mutants;
mod nextest;
mod omitted;
mod report;
mod soak;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::nextest::Nextest;

/// Runs the tests of CAPW and says what came of them.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Arguments {
    /// The program cargo-nextest.
    #[arg(long, value_name = "FILE", env = "CARGO_NEXTEST", default_value = "cargo-nextest", global = true)]
    nextest: PathBuf,
    /// Where reports are written, and the files of tests that failed.
    #[arg(long, value_name = "DIR", default_value = "out", global = true)]
    output: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run tests once. The last lines say how many ran, which were flaky or failed and why, and what was left out.
    Test {
        /// Of .config/nextest.toml: unit, gate, ci, judge or default.
        #[arg(long, default_value = "gate")]
        profile: String,
        /// Where flaky tests of the profile ci are remembered.
        #[arg(long, value_name = "DIR", env = "CAPW_CACHE")]
        cache: Option<PathBuf>,
        /// More for `cargo nextest run`.
        #[arg(last = true)]
        more: Vec<String>,
    },
    /// Run tests again and again, without retries: how often each passed, how long it took, how it failed first.
    Soak {
        /// How often.
        #[arg(long, default_value_t = 20)]
        count: usize,
        /// A part of their names; without it all stories of the gate.
        #[arg(long)]
        name: Option<String>,
    },
    /// Run what takes too long for the gate or depends on chance, all of it also after a failure, and print one table.
    Judge {
        /// A part of the names of what is run.
        #[arg(long)]
        name: Option<String>,
    },
    /// Take guards of the product away, one at a time: say which unit test misses each.
    Mutants {
        /// A part of their words or of their file.
        #[arg(long)]
        focus: Option<String>,
        /// Where Cargo builds.
        #[arg(long, value_name = "DIR", env = "CARGO_TARGET_DIR", default_value = "target")]
        target: PathBuf,
    },
    /// End a run whose runner was killed, and clear up after it. The runner starts this by itself.
    #[command(hide = true)]
    Guard {
        /// The run's directories, the temporary one of its tests first.
        #[arg(required = true)]
        directories: Vec<PathBuf>,
    },
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let (program, output) = (arguments.nextest, arguments.output);
    let nextest = || Nextest::new(program, output.clone());
    let passed = match arguments.command {
        Command::Test { profile, cache, more } => report::test(&nextest()?, &profile, cache.as_deref(), &more)?,
        Command::Soak { count, name } => soak::soak(&nextest()?, count, name.as_deref())?,
        Command::Judge { name } => judge::judge(&nextest()?, name.as_deref())?,
        Command::Mutants { focus, target } => mutants::mutants(&output, &target, focus.as_deref())?,
        Command::Guard { directories } => guard::guard(&directories).map(|()| true)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
