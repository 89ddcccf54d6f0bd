//! The command line, and the subcommand that it calls.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::Error;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{compat, completion, components, crds, diagnose, hypervisor, image, man, render, run, status, version};

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
    /// Run only the guests of simulated VMs, for processes that run with --simulated-guests=false.
    Guests(run::Guests),
    /// Print the CustomResourceDefinitions as YAML.
    Crds(crds::Crds),
    /// Render the bootstrap data of a machine, without a cluster.
    Render(render::Render),
    /// Show what is stuck in the management cluster, and why.
    Status(status::Status),
    /// Explain why a machine does not become a node, and what to do.
    Diagnose(diagnose::Diagnose),
    /// Check whether component versions are compatible on a Windows node, and suggest a fix if not.
    Compat(compat::Compat),
    /// Inspect the pod network of a cluster: what keeps Windows nodes from it, what CAPW deploys, and what to mirror.
    Components(components::Components),
    /// Check whether a hypervisor has what machines need, and prove that CAPW can create and remove VMs on it.
    Hypervisor(hypervisor::Hypervisor),
    /// Write the files for building a Windows image.
    Image(image::Image),
    /// Print the completion script of a shell.
    Completion(completion::Completion),
    /// Write the manual pages.
    Man(man::Man),
    /// Print the version.
    Version(version::Version),
}

/// The names of the plugins: their programs in PATH, and the commands that users enter.
const PLUGINS: [(&str, &str); 2] = [("kubectl-capw", "kubectl capw"), ("clusterctl-capw", "clusterctl capw")];

impl Arguments {
    /// Parses the command line. Help names the plugin if the program was called as a plugin.
    pub fn read(line: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let line: Vec<OsString> = line.into_iter().collect();
        let called = line.first().and_then(|path| Path::new(path).file_stem()).unwrap_or_default();
        let plugin = PLUGINS.iter().find(|(program, _)| called == *program);
        let command = Self::command();
        let command = match plugin {
            Some((_, name)) => command.bin_name(*name),
            None => command,
        };
        Self::from_arg_matches(&command.try_get_matches_from(line)?)
    }
}

/// Runs the subcommand. The error is one line for the user.
pub fn main(arguments: Arguments) -> Result<ExitCode, String> {
    let done = match arguments.command {
        Command::Run(run) => run.main(),
        Command::Guests(guests) => guests.main(),
        Command::Crds(crds) => crds.main(),
        Command::Render(render) => render.main(),
        Command::Status(status) => return status.main(),
        Command::Diagnose(diagnose) => return diagnose.main(),
        Command::Compat(compat) => return compat.main(),
        Command::Components(components) => return components.main(),
        Command::Hypervisor(hypervisor) => return hypervisor.main(),
        Command::Image(image) => image.main(),
        Command::Completion(completion) => completion.main(Arguments::command()),
        Command::Man(man) => man.main(Arguments::command()),
        Command::Version(version) => version.main(),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that is printed instead of running a subcommand.
    fn printed(line: &[&str]) -> String {
        Arguments::read(line.iter().map(OsString::from)).unwrap_err().to_string()
    }

    #[test]
    fn help_names_the_program_as_it_was_called() {
        assert!(printed(&["/usr/bin/capw", "diagnose", "--help"]).contains("Usage: capw diagnose"));
        let plugin = printed(&["/home/a/bin/kubectl-capw", "diagnose", "machine", "--help"]);
        assert!(plugin.contains("Usage: kubectl capw diagnose machine"), "{plugin}");
        for flag in ["-n, --namespace", "--context", "--kubeconfig"] {
            assert!(plugin.contains(flag), "{flag}: {plugin}");
        }
        assert!(printed(&["clusterctl-capw", "--help"]).contains("Usage: clusterctl capw"));
    }
}
