//! FACTS → BYTES (pure): everything that a Windows machine is given to become a node.
//!
//! [`render`] turns [`facts::BootstrapFacts`] into a plan and into user data that carries it; [`seed::build`] makes what a
//! machine gets by its channel; [`read`] takes the bytes apart again, as a guest does. No clock, no randomness, no network: the
//! same facts give the same bytes.

mod archive;
mod cloudbase;
mod containerd;
mod error;
mod explain;
pub mod facts;
mod iso;
mod join;
mod kube_proxy;
pub mod kubelet;
pub mod lint;
pub mod paths;
pub mod plan;
mod procedure;
pub mod read;
pub mod reserve;
mod runner;
mod secrets;
pub mod seed;
pub mod unattend;
mod valid;
mod yaml;

#[cfg(test)]
mod node_tests;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

pub use cloudbase::{Room, UserData};
pub use error::RenderError;
pub use explain::explain;
pub use facts::{BootstrapFacts, ca_hash};
pub use plan::Plan;
use reserve::Reserves;
pub use secrets::Secrets;

/// What one machine gets.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// For people and tests; `user_data` holds the same as `node.json`.
    pub plan: Plan,
    /// What the bootstrap Secret holds, format `cloudbase-init`.
    pub user_data: UserData,
    /// What Windows Setup is told, in the channel `Unattend`.
    pub answer: Option<unattend::AnswerFile>,
    /// What the node keeps back, and why so much.
    pub reserves: Reserves,
    /// What the rules have to say of what is rendered nevertheless.
    pub warnings: Vec<lint::Finding>,
}

/// Checks the facts and renders. Fails with the field, the value and the remedy, or with the exact size and the limit that it
/// exceeds.
pub fn render(facts: &BootstrapFacts) -> Result<Bootstrap, RenderError> {
    valid::check(facts)?;
    let warnings = lint::check(facts)?;
    let (plan, mut files) = procedure::plan(facts)?;
    let json = plan.json().map_err(|e| RenderError::Serialize { what: "the plan", reason: e.to_string() })?;
    files.insert("node.json".into(), json.into_bytes());
    for (name, script) in runner::SCRIPTS.into_iter().chain([(runner::LOADER_NAME, runner::LOADER.as_str())]) {
        files.insert(format!("runner/{name}"), script.as_bytes().to_vec());
    }
    let user_data = cloudbase::user_data(&files, facts.spec.channel)?;
    let answer = unattend::answer(facts)?;
    Ok(Bootstrap { plan, user_data, answer, reserves: reserve::reserves(facts)?, warnings })
}

/// The plan of an ordinary machine, for tests of what reads plans.
#[cfg(test)]
pub(crate) fn sample_plan() -> Plan {
    render(&sample::facts()).map(|bootstrap| bootstrap.plan).unwrap()
}
