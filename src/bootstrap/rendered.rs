//! The rendered data of one machine, and the whole flow that leads to it.

use super::delivery::unattend::{self, AnswerFile};
use super::delivery::user_data::{self, UserData};
use super::error::RenderError;
use super::facts::BootstrapFacts;
use super::finding::LintFinding;
use super::plan::Plan;
use super::render::Documents;
use super::render::reserves::Reserves;
use super::{check, stages};

/// The rendered data of one machine.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// The plan, for people and tests; `user_data` holds the same plan as `node.json`.
    pub plan: Plan,
    /// The content of the bootstrap Secret, format `cloudbase-init`.
    pub user_data: UserData,
    /// The answer file for Windows Setup, in the channel `Unattend`.
    pub answer: Option<AnswerFile>,
    /// The node's reserves, and the arithmetic behind them.
    pub reserves: Reserves,
    /// The image that every pod starts with.
    pub sandbox_image: String,
    /// The warnings of the rules, which do not prevent rendering.
    pub warnings: Vec<LintFinding>,
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
    let user_data = user_data::user_data(&files, facts.spec.channel)?;
    let answer = unattend::answer(facts)?;
    Ok(Bootstrap { plan, user_data, answer, reserves: documents.reserves, sandbox_image: documents.sandbox_image, warnings })
}
