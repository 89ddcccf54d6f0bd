//! The runner of simulated guests: run.ps1 in Rust, for the model and for Wine alike. Every start takes the items from the
//! first on: test, act, test again. Recorded runs of run.ps1 verify its reports, see traces/README.md.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use super::journal::{Ended, Journal};
use crate::bootstrap::plan::{Check, Item, Kind, Plan, REPORT_PLAN, state};

/// Why an item could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// No retry: wrong data stay wrong.
    pub last: bool,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, last: false }
    }
}

/// The machine that the runner works on. A state that cannot be determined is an error with a message.
pub trait Machine {
    fn journal(&mut self) -> &mut Journal;

    /// Whether the item is true. Changes nothing.
    async fn is_true(&mut self, item: &Item) -> Result<bool, String>;

    /// Tries to apply the item.
    async fn act(&mut self, item: &Item) -> Result<(), Failure>;

    /// Removes the remains of an attempt at the item with that program. A failure does not matter.
    async fn undo(&mut self, item: &Item, argv: &[String]);

    async fn holds(&mut self, check: &Check) -> Result<bool, String>;

    /// A value of the registry as text.
    async fn value(&mut self, key: &str, name: &str) -> Option<String>;

    /// Prints a line on the console.
    async fn say(&mut self, line: String);

    /// Stores everything so that another process can continue from here.
    async fn keep(&mut self) -> io::Result<()>;
}

enum Outcome {
    True,
    Restart,
    Failed(String),
}

/// Carries out the plan from its first item on.
pub async fn carry_out<M: Machine>(machine: &mut M, plan: &Plan) -> io::Result<Ended> {
    if let Some(ended) = machine.journal().outcome() {
        return Ok(ended);
    }
    machine.journal().begin();
    for (number, item) in plan.items.iter().enumerate() {
        if machine.journal().leaves_out(item, number + 1 == plan.items.len()) {
            continue;
        }
        match make_true(machine, plan, item).await? {
            Outcome::True => {}
            Outcome::Restart => {
                let number = machine.journal().ask_restart();
                report(machine, &item.id, state::REBOOT, 0, &format!("restart {number} of {}", plan.limits.reboots)).await;
                machine.keep().await?;
                return Ok(Ended::ForRestart);
            }
            Outcome::Failed(why) if item.optional => {
                report(machine, &item.id, state::WARNED, item.code.number(), &why).await;
                machine.keep().await?;
            }
            Outcome::Failed(why) => {
                report(machine, &item.id, state::FAILED, item.code.number(), &why).await;
                report(machine, REPORT_PLAN, state::FAILED, item.code.number(), &format!("{}: {why}", item.id)).await;
                return end(machine, state::FAILED).await;
            }
        }
    }
    // The end is stored before it is reported: after the report the seed may be removed.
    end(machine, state::FINISHED).await?;
    let line = machine.journal().finish(&format!("{} items are true", plan.items.len())).line() + "\n";
    machine.say(line).await;
    end(machine, state::FINISHED).await
}

async fn end<M: Machine>(machine: &mut M, how: &str) -> io::Result<Ended> {
    machine.journal().end = Some(how.to_owned());
    machine.keep().await?;
    Ok(Ended::ForGood)
}

/// Runs all attempts of one item: `Invoke-PlanItem`.
async fn make_true<M: Machine>(machine: &mut M, plan: &Plan, item: &Item) -> io::Result<Outcome> {
    if let Some(check) = &item.unless {
        match machine.holds(check).await {
            Ok(true) => return Ok(Outcome::True),
            Ok(false) => {}
            Err(why) => return Ok(Outcome::Failed(why)),
        }
    }
    if is_true(machine, item).await {
        if machine.journal().was_true(item) {
            report(machine, &item.id, state::DONE, 0, "was true already").await;
            machine.keep().await?;
        }
        return Ok(Outcome::True);
    }
    if matches!(item.kind, Kind::Reboot { .. }) {
        let spent = machine.journal().reboots >= plan.limits.reboots;
        let why = || format!("expected at most {} restarts, and one more is asked for", plan.limits.reboots);
        return Ok(if spent { Outcome::Failed(why()) } else { Outcome::Restart });
    }
    let mut problem = String::new();
    for attempt in 1..=item.attempts {
        if let Some(why) = machine.journal().too_late(&plan.limits) {
            return Ok(Outcome::Failed(why));
        }
        report(machine, &item.id, state::STARTED, 0, &format!("attempt {attempt} of {}", item.attempts)).await;
        begin(machine, item).await?;
        problem = match machine.act(item).await {
            Ok(()) => "it is still not true after it was done".to_owned(),
            Err(failure) if failure.last => return Ok(Outcome::Failed(failure.message)),
            Err(failure) => failure.message,
        };
        if is_true(machine, item).await {
            machine.journal().became_true(item);
            report(machine, &item.id, state::DONE, 0, &format!("attempt {attempt}")).await;
            machine.keep().await?;
            return Ok(Outcome::True);
        }
        if attempt < item.attempts {
            report(machine, &item.id, state::RETRY, item.code.number(), &problem).await;
            machine.keep().await?;
            sleep(pause(attempt)).await;
        }
    }
    Ok(Outcome::Failed(problem))
}

/// Undoes the remains of an earlier attempt, also of a killed attempt.
async fn begin<M: Machine>(machine: &mut M, item: &Item) -> io::Result<()> {
    let undo: &[String] = if let Kind::Command { undo, .. } = &item.kind { undo } else { &[] };
    if machine.journal().is_begun(&item.id) && !undo.is_empty() {
        machine.undo(item, undo).await;
    }
    machine.journal().begin_item(&item.id);
    // Without an undo program the begin need not be stored.
    if undo.is_empty() { Ok(()) } else { machine.keep().await }
}

/// Whether the item is true. A failed test counts as false.
async fn is_true<M: Machine>(machine: &mut M, item: &Item) -> bool {
    machine.is_true(item).await.unwrap_or(false)
}

async fn report<M: Machine>(machine: &mut M, item: &str, state: &str, code: u32, message: &str) {
    let line = machine.journal().report(item, state, code, message).line() + "\n";
    machine.say(line).await;
}

/// The pause before another attempt. run.ps1 waits longer: 5 s, then 10 s, up to a minute.
fn pause(attempt: u32) -> Duration {
    Duration::from_secs(1 << attempt.min(5))
}

/// The state that was found instead of the expected state of a check: `Get-Finding`.
pub async fn finding<M: Machine>(machine: &mut M, mut check: &Check) -> String {
    while let Check::All(checks) = check {
        let mut failed = None;
        for one in checks {
            if failed.is_none() && !machine.holds(one).await.unwrap_or(false) {
                failed = Some(one);
            }
        }
        let Some(failed) = failed else { break };
        check = failed;
    }
    let (what, value) = match check {
        Check::Registry { key, name, equals } => {
            let found = machine.value(key, name).await.unwrap_or_default();
            return format!("expected {name} {equals}, found '{found}'");
        }
        Check::Succeeds(argv) => return format!("expected that {} succeeds, and it does not", argv.join(" ")),
        Check::File(path) => ("file", path.clone()),
        Check::Pipe(name) => ("pipe", name.clone()),
        Check::Url(url) => ("url", url.clone()),
        Check::RegistryKey(key) => ("registryKey", key.clone()),
        Check::Port(port) => ("port", port.to_string()),
        Check::Service(name) => ("service", name.clone()),
        Check::RegistryValue { .. } | Check::Not(_) | Check::All(_) => return "expected something else".into(),
    };
    format!("expected {what} {value}, found none")
}
