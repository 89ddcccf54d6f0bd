//! Guests of kind `Wine` in a program without the feature `wine-guests`, which releases do not have: each reports why it cannot run.

use std::path::Path;

use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::powered::Guest;
use super::windows::INPUT;
use crate::bootstrap::plan::{REPORT_PLAN, state};
use crate::vm::GuestReport;

/// What the machine reports; a report has at most 240 characters.
const REFUSAL: &str = "spec.simulated.guest of the WindowsHypervisor is Wine, but releases have no Wine guests: set Model and delete the \
                       Machine, or run a capw that was built with the feature wine-guests";

/// Reports that the machine has failed permanently. Programs and power do not matter: nothing runs.
pub async fn live(guest: &Guest, _programs: Option<&Path>, _power: &CancellationToken) {
    match guest.files(|home| home.report()).await {
        Ok(newest) => {
            if let Some(report) = refusal(newest) {
                guest.print(report.line() + "\n").await;
            }
        }
        Err(error) => debug!(vm = %guest.record.vm, %error, "the console of a Wine guest cannot be read"),
    }
}

/// The report after the newest one, which may come from a program that has Wine guests; `None` if the newest one already is this failure.
fn refusal(newest: Option<GuestReport>) -> Option<GuestReport> {
    let (sequence, boot) = newest.as_ref().map_or((0, 0), |newest| (newest.sequence, newest.boot));
    let is_known = newest.is_some_and(|newest| newest.is_final_failure() && newest.message == REFUSAL);
    (!is_known).then(|| GuestReport {
        sequence: sequence.saturating_add(1),
        boot,
        item: REPORT_PLAN.into(),
        state: state::FAILED.into(),
        code: INPUT,
        message: REFUSAL.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use jiff::Timestamp;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::api::hypervisor::GuestKind;
    use crate::api::name::VmUuid;
    use crate::hypervisor::contract::spec;
    use crate::hypervisor::drivers::simulated::record::{Home, Record};
    use crate::vm::MachineKey;

    fn guest(home: Home) -> Guest {
        let key = MachineKey { vm: VmUuid::of("x"), cluster: "lab/one".into(), name: "win-1".into() };
        let record = Record { guest: GuestKind::Wine, ..Record::new(&key, &spec(), vec![], 0, Timestamp::UNIX_EPOCH) };
        Guest { home, record, clock: Arc::new(|| Timestamp::UNIX_EPOCH), requests: Arc::new(Semaphore::new(1)) }
    }

    #[tokio::test]
    async fn the_machine_fails_once_with_field_value_and_remedy() {
        let state = tempfile::tempdir().unwrap();
        let guest = guest(Home(state.path().to_owned()));
        live(&guest, None, &CancellationToken::new()).await;
        let report = guest.home.report().unwrap().unwrap();
        assert!(report.is_final_failure());
        assert_eq!((report.sequence, report.code, report.subject()), (1, INPUT, ("plan", REFUSAL)));
        for part in ["spec.simulated.guest", "Wine", "Model", "wine-guests"] {
            assert!(report.message.contains(part), "{part}");
        }
        let console = fs::read_to_string(guest.home.console()).unwrap();
        live(&guest, None, &CancellationToken::new()).await;
        assert_eq!(fs::read_to_string(guest.home.console()).unwrap(), console, "another start of the operator adds nothing");
    }

    #[test]
    fn it_is_the_newest_report_after_those_of_a_program_that_has_wine_guests() {
        let report = |state: &str, message: &str| GuestReport {
            sequence: 9,
            boot: 2,
            item: REPORT_PLAN.into(),
            state: state.into(),
            code: 0,
            message: message.into(),
        };
        for newest in [report(state::FINISHED, "25 items are true"), report(state::FAILED, "join: exit: 1")] {
            let refusal = refusal(Some(newest)).unwrap();
            assert_eq!((refusal.sequence, refusal.boot, refusal.message.as_str()), (10, 2, REFUSAL));
        }
        assert_eq!(refusal(Some(report(state::FAILED, REFUSAL))), None);
    }
}
