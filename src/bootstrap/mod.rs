//! FACTS → BYTES (pure): all data that turns a Windows machine into a node.
//!
//! ```text
//! facts ─► check::validate ─► render ─► check::lint ─► stages ─► delivery
//!                             documents                plan      user data, answer file, drive
//! ```
//!
//! [`fn@render`] turns [`facts::BootstrapFacts`] into a plan and the user data that carries it; [`delivery::build`] converts both into the
//! form that the machine's channel needs; [`read`] unpacks the bytes again, as a guest does. No clock, no randomness, no
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

/// The rendered data of one machine.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// The plan, for people and tests; `user_data` holds the same plan as `node.json`.
    pub plan: Plan,
    /// The content of the bootstrap Secret, format `cloudbase-init`.
    pub user_data: UserData,
    /// The answer file for Windows Setup, in the channel `Unattend`.
    pub answer: Option<delivery::unattend::AnswerFile>,
    /// The node's reserves, and the arithmetic behind them.
    pub reserves: render::reserves::Reserves,
    /// The image that every pod starts with.
    pub sandbox_image: String,
    /// The warnings of the rules, which do not prevent rendering.
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

/// Returns the plan of an ordinary machine, for tests of code that reads plans.
#[cfg(test)]
pub(crate) fn sample_plan() -> Plan {
    render(&sample::facts()).map(|bootstrap| bootstrap.plan).unwrap()
}
