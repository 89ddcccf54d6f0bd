//! Runs one life.

use super::plan::Plan;
use super::world::World;

/// Runs a life in a runtime of its own.
pub fn in_paused_time<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(life)
}

/// Runs one life and returns its requests.
pub fn live(plan: &Plan) -> Vec<String> {
    in_paused_time(async { World::new(plan).live().await }).requests
}
