//! FACTS → BYTES (pure): everything that a Windows machine is given to become a node.
//!
//! ```text
//! facts ─► check::validate ─► render ─► check::lint ─► stages ─► delivery
//!                             documents                plan      user data, answer file, drive
//! ```
//!
//! [`fn@render`] turns [`facts::BootstrapFacts`] into a plan and the user data that carries it; [`delivery::build`] puts both into the
//! form that the machine's channel needs; [`read`] takes the bytes apart again, as a guest does. No clock, no randomness, no
//! network: the same facts give the same bytes.

mod check;
pub mod delivery;
mod digest;
mod error;
pub mod facts;
pub mod finding;
pub mod paths;
pub mod plan;
pub mod render;
mod runner;
mod secrets;
mod stages;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

pub use self::delivery::read;
pub use self::delivery::user_data::UserData;
pub use self::digest::ca_hash;
pub use self::error::{DataSize, RenderError};
pub use self::facts::BootstrapFacts;
pub use self::plan::{Plan, explain};
use self::render::Documents;
pub use self::secrets::Secrets;

/// What one machine gets.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// For people and tests; `user_data` holds the same as `node.json`.
    pub plan: Plan,
    /// What the bootstrap Secret holds, format `cloudbase-init`.
    pub user_data: UserData,
    /// What Windows Setup is told, in the channel `Unattend`.
    pub answer: Option<delivery::unattend::AnswerFile>,
    /// What the node keeps back, and why so much.
    pub reserves: render::reserves::Reserves,
    /// The image that every pod starts with.
    pub sandbox_image: String,
    /// What the rules warn about; it is rendered nevertheless.
    pub warnings: Vec<finding::LintFinding>,
}

/// Checks the facts and renders. Fails with the field, the value and the remedy, or with the exact size and the limit that it
/// exceeds.
pub fn render(facts: &BootstrapFacts) -> Result<Bootstrap, RenderError> {
    check::validate::check(facts)?;
    let documents = Documents::new(facts)?;
    let warnings = check::lint::check(facts, &documents)?;
    let (plan, mut files) = stages::plan(facts, &documents)?;
    check::validate::check_files(facts, &plan)?;
    let json = plan.json().map_err(|e| RenderError::Serialize { what: "the plan", reason: e.to_string() })?;
    files.insert("node.json".into(), json.into_bytes());
    for (name, script) in runner::SCRIPTS.into_iter().chain([(runner::LOADER_NAME, runner::LOADER.as_str())]) {
        files.insert(format!("runner/{name}"), script.as_bytes().to_vec());
    }
    let user_data = delivery::user_data::user_data(&files, facts.spec.channel)?;
    let answer = delivery::unattend::answer(facts)?;
    Ok(Bootstrap { plan, user_data, answer, reserves: documents.reserves, sandbox_image: documents.sandbox_image, warnings })
}

/// The plan of an ordinary machine, for tests of what reads plans.
#[cfg(test)]
pub(crate) fn sample_plan() -> Plan {
    render(&sample::facts()).map(|bootstrap| bootstrap.plan).unwrap()
}
