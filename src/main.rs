//! Entry point: parse arguments, run one subcommand, print one error.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match capw::cli::main(capw::cli::Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Standard error may be closed; there is no one left to tell then.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("capw: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
