//! `make demo`: three Windows nodes in a real cluster, from the README's own YAML. What it shows is in `demo/`.

#[path = "demo/progress.rs"]
mod progress;
#[path = "demo/stage.rs"]
mod stage;
#[path = "demo/tour.rs"]
mod tour;
#[path = "world/mod.rs"]
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Minutes on a fresh clone; before anything that Ctrl-C would have to clean up.
    world::Tools::ensure();
    let once = arguments.once || !std::io::stdin().is_terminal();
    match world::run(stage::play(arguments.kubeconfig.as_deref(), once)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            progress::say(format!("the demo cannot go on: {why}"));
            ExitCode::FAILURE
        }
    }
}
