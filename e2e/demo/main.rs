//! `make demo`: three Windows nodes in a real cluster, from the README's own YAML. The other files of this folder implement its scenes.

mod host;
mod late;
mod network;
mod progress;
mod sample;
mod stage;
mod tour;
#[path = "../world/mod.rs"]
mod world;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Three Windows nodes in a cluster made for it, or in yours.
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Arguments {
    /// Show everything to the end (a new version, fewer machines, none) and stop, instead of waiting for Ctrl-C. So it does
    /// without a terminal, too.
    #[arg(long, env = "CI")]
    once: bool,
    /// Use the cluster of this kubeconfig; Cluster API core must be installed there.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where the VMs are made: by CAPW's simulator, or by a libvirt daemon that the demo starts. Its VMs are real, their guests a Linux that
    /// stands for Windows.
    #[arg(long, value_enum, default_value_t)]
    hypervisor: stage::Hypervisor,
    /// A disk image of Windows Server 2022 of yours (qcow2 or raw, made as docs/hypervisors/libvirt-image.md says) for one machine on the demo's
    /// libvirt daemon. It is not changed. The demo's API server listens on this machine's address then, not only on the loopback one.
    #[arg(long, value_name = "FILE")]
    image: Option<String>,
    /// How that image starts.
    #[arg(long, value_enum, default_value_t, requires = "image")]
    firmware: stage::Firmware,
    #[command(flatten)]
    host: Option<stage::Host>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Takes minutes on a fresh clone, so it runs before there is anything that Ctrl-C has to clean up.
    world::Tools::ensure();
    let own = arguments.image.map(|image| stage::OwnImage { image, firmware: arguments.firmware, host: arguments.host });
    let once = arguments.once || !std::io::stdin().is_terminal();
    match world::run(stage::play(arguments.kubeconfig.as_deref(), arguments.hypervisor, own, once)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            progress::say(format!("the demo cannot go on: {why}"));
            ExitCode::FAILURE
        }
    }
}
