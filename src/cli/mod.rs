//! `capw run | guests | crds | render`: one file per subcommand, with its flags.

mod crds;
mod render;
mod run;

use clap::{Parser, Subcommand};

/// Cluster API provider for Windows Server worker nodes.
#[derive(Debug, Parser)]
#[command(name = "capw", version, about, long_about = None)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers.
    Run(run::Run),
    /// Run only the guests of simulated VMs, beside processes that were told not to.
    Guests(run::Guests),
    /// Print the CustomResourceDefinitions as YAML.
    Crds(crds::Crds),
    /// Write what a machine would get, without any cluster.
    Render(render::Render),
}

/// Runs the subcommand. The error is one line for the person at the terminal.
pub fn main(arguments: Arguments) -> Result<(), String> {
    match arguments.command {
        Command::Run(run) => run.main(),
        Command::Guests(guests) => guests.main(),
        Command::Crds(crds) => crds.main(),
        Command::Render(render) => render.main(),
    }
}
