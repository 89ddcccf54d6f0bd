//! `make demo`.
#![allow(clippy::print_stdout, reason = "it talks to a person")]

#[path = "world/mod.rs"]
mod world;

fn main() {
    world::run(async {
        let cp = world::ControlPlane::start(world::Options::default().named("demo")).await;
        println!("{}", cp.kubectl(&["version"]).await);
    });
}
