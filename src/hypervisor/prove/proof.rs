//! The proof: all cases in their order, each with the removal of its VMs.

use tokio::time::Instant;

use super::bench::Bench;
use super::cases::CASES;
use super::outcome::Outcome;
use super::removal::clean;
use super::trial::Trial;

/// Runs all cases one after the other, and removes the VMs of each case after it.
pub async fn prove(bench: &Bench<'_>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (index, case) in CASES.iter().enumerate() {
        let number = index + 1;
        if let Some(why) = obstacle(&outcomes, bench.stop.is_cancelled()) {
            outcomes.push(Outcome::not_run(case, &why));
            continue;
        }
        bench.say(&format!("{number}/{} {}", CASES.len(), case.name));
        let begun = Instant::now();
        let ended = (case.run)(&Trial::new(bench, number, begun + bench.limit)).await;
        let took = begun.elapsed();
        let outcome = Outcome::of(case, ended, took, clean(bench).await);
        bench.say(&format!("  {}: {}", outcome.verdict.as_str(), outcome.told()));
        outcomes.push(outcome);
    }
    outcomes
}

/// Why the next case is not started.
fn obstacle(outcomes: &[Outcome], is_stopped: bool) -> Option<String> {
    if is_stopped {
        return Some("stopped".into());
    }
    if outcomes.iter().any(|outcome| outcome.is_left) {
        return Some("something is left of an earlier case".into());
    }
    let failed = outcomes.iter().find(|outcome| outcome.case.is_first && !outcome.is_good())?;
    Some(format!("it needs: {}", failed.case.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::prove::outcome::Verdict;

    #[test]
    fn a_case_is_begun_unless_something_forbids_it() {
        let outcome = |case: usize, verdict, is_left| Outcome { is_left, verdict, ..Outcome::not_run(&CASES[case], "") };
        for (outcomes, is_stopped, why) in [
            (vec![], false, None),
            (vec![], true, Some("stopped")),
            (vec![outcome(0, Verdict::Passed, false), outcome(2, Verdict::Failed, false)], false, None),
            (vec![outcome(0, Verdict::Failed, false)], false, Some("it needs: login, identity and rights")),
            (vec![outcome(0, Verdict::Passed, false), outcome(2, Verdict::Failed, true)], false, Some("something is left of an earlier case")),
        ] {
            assert_eq!(obstacle(&outcomes, is_stopped).as_deref(), why);
        }
    }
}
