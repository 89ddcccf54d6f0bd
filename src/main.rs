//! Entry point: parse arguments, run one subcommand, print one error.

use std::process::ExitCode;

use capw::cli::{self, Arguments};

fn main() -> ExitCode {
    match cli::main(Arguments::read(std::env::args_os()).unwrap_or_else(|error| error.exit())) {
        Ok(code) => code,
        Err(error) => {
            // Standard error may be closed; then the error cannot be reported.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("capw: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
