//! `make bench`: the cost of a machine's life, from the audit log of a real API server and from the program's own counters.
//! It reports, with the goals beside the numbers; with `--goals`, it fails where a goal that holds on every machine is missed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark: it fails by panicking, lives by the clock and prints its results"
)]

mod cost;
mod life;
mod report;
#[allow(dead_code, reason = "shared with the stories, which use more of it")]
#[path = "../stories/workers.rs"]
mod workers;
#[path = "../world/mod.rs"]
mod world;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Measures API requests, hypervisor calls, memory, processor and times for so many machines.
#[derive(Debug, Parser)]
#[command(name = "lifecycle")]
struct Arguments {
    /// How many machines, one run for each.
    #[arg(default_values_t = [10, 100, 1000], value_name = "MACHINES")]
    sizes: Vec<usize>,
    /// What the machines belong to.
    #[arg(long, value_enum, default_value_t)]
    of: life::Group,
    /// Where their VMs are.
    #[arg(long, value_enum, default_value_t)]
    hypervisor: life::Hypervisor,
    /// Seconds that machines may take to come, and to go; what is not done by then is left out and said so.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    limit: u64,
    /// End with an error where a goal is missed.
    #[arg(long)]
    goals: bool,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let limit = Duration::from_secs(arguments.limit);
    let lives: Vec<life::Life> = arguments
        .sizes
        .iter()
        .map(|machines| {
            let life = world::run(life::measure(*machines, arguments.of, arguments.hypervisor, limit));
            // Printed at once, so that a long run that is cut short still gives results.
            println!("{}", report::costs(&life));
            life
        })
        .collect();
    println!("{}", report::table(arguments.of, &lives));
    let missed: Vec<String> = lives.iter().flat_map(report::missed).collect();
    for goal in &missed {
        println!("GOAL MISSED: {goal}");
    }
    if arguments.goals && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
