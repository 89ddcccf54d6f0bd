//! `capw-node.exe`, which CAPW's DaemonSets run on Windows nodes, in HostProcess containers. It prepares one network program of the cluster for its
//! node, starts the program, and ends with it, so that the kubelet restarts both. It sends no requests to the API server itself. Its last
//! line is the reason why it ended, and the kubelet shows that line as the message of the container.

mod access;
mod calico;
mod child;
mod flannel;
mod hcn;
mod host_local;
mod kube_proxy;
mod node;
mod subnet;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::kube_proxy::Network;
use self::node::{Failure, Node};

/// Runs the programs of the cluster's network on a Windows node.
#[derive(Debug, Parser)]
#[command(name = "capw-node", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run flanneld.exe, and hand its network to containerd once it is there.
    Flannel(Pod),
    /// Run kube-proxy.exe in the network of the node, once that is there.
    KubeProxy {
        /// Whose network it is.
        #[arg(long, value_enum, default_value_t)]
        network: Network,
        #[command(flatten)]
        pod: Pod,
    },
}

/// What the pod has.
#[derive(Args, Debug)]
struct Pod {
    /// Folder with the settings of the program.
    #[arg(long, value_name = "DIR")]
    settings: PathBuf,
    /// Folder with the files token and ca.crt, with which the program asks the API server.
    #[arg(long, value_name = "DIR")]
    access: PathBuf,
    /// The API server, as Windows nodes reach it: no Service works before kube-proxy runs.
    #[arg(long, value_name = "URL", env = "API_SERVER")]
    api_server: String,
    /// Name of the Node.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: String,
    /// Address of the Node in the network of the nodes.
    #[arg(long, value_name = "ADDRESS", env = "NODE_ADDRESS")]
    node_address: IpAddr,
    /// The drive that Windows is on.
    #[arg(long, value_name = "DIR", default_value = r"C:\", hide = true)]
    drive: PathBuf,
}

impl Pod {
    fn node(self) -> Node {
        let Self { settings, access, api_server, node_name, node_address, drive } = self;
        Node { name: node_name, address: node_address, api_server, settings, access, drive }
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Flannel(pod) => flannel::run(&pod.node(), hcn::named),
        Command::KubeProxy { network, pod } => kube_proxy::run(&pod.node(), network),
    };
    let Err(Failure(why)) = done else { return ExitCode::SUCCESS };
    say(&why);
    ExitCode::FAILURE
}

/// Writes a line to the container's log.
#[allow(clippy::print_stderr, reason = "the log of a container is what its program prints")]
fn say(line: &str) {
    eprintln!("capw-node: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of the DaemonSets are parsed.
    #[test]
    fn the_network_is_flannels_unless_another_is_named() {
        let pod = ["--settings=s", "--access=a", "--api-server=https://10.0.0.1:6443", "--node-name=win-1", "--node-address=10.0.0.5"];
        for (words, expected) in
            [(vec![], Network::Flannel), (vec!["--network", "flannel"], Network::Flannel), (vec!["--network", "calico"], Network::Calico)]
        {
            let arguments = Arguments::try_parse_from([vec!["capw-node", "kube-proxy"], words, pod.to_vec()].concat()).unwrap();
            assert!(matches!(arguments.command, Command::KubeProxy { network, .. } if network == expected), "{arguments:?}");
        }
    }
}
