//! `capw run | guests | crds | render | diagnose | compat | hypervisor`: one file per subcommand, with its flags.

mod compat;
mod crds;
mod diagnose;
mod documents;
mod hypervisor;
mod render;
mod run;

use std::process::ExitCode;

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
    /// Say why a machine does not become a node, and what to do.
    Diagnose(diagnose::Diagnose),
    /// Say whether versions go together on a Windows node, and what to change if not.
    Compat(compat::Compat),
    /// Say whether a hypervisor has what machines need, before any is made.
    Hypervisor(hypervisor::Hypervisor),
}

/// Runs the subcommand. The error is one line for the person at the terminal.
pub fn main(arguments: Arguments) -> Result<ExitCode, String> {
    let done = match arguments.command {
        Command::Run(run) => run.main(),
        Command::Guests(guests) => guests.main(),
        Command::Crds(crds) => crds.main(),
        Command::Render(render) => render.main(),
        Command::Diagnose(diagnose) => return diagnose.main(),
        Command::Compat(compat) => return compat.main(),
        Command::Hypervisor(hypervisor) => return hypervisor.main(),
    };
    done.map(|()| ExitCode::SUCCESS)
}
