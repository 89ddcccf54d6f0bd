//! WindowsHypervisor: what a listing of its VMs means for people, and when it is listed again.

use std::time::Duration;

use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::lifecycle::Decision;
use crate::lifecycle::identity::chosen;
use crate::vm::DriverError;

/// Between two listings of an endpoint that answers.
const TICK: Duration = Duration::from_secs(10);
/// After a listing that failed: doubled each time, up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The endpoint has answered.
pub fn answered() -> Decision<()> {
    Decision::new(())
        .say(Desired::yes(ConditionType::Reachable, Reason::Reachable))
        .say(Desired::yes(ConditionType::Ready, Reason::Reachable))
        .look_again(TICK)
}

/// The endpoint has failed, `failures` times in a row (1 is the first).
pub fn failed(error: &DriverError, failures: u32) -> Decision<()> {
    let why = match error {
        DriverError::Auth(_) => Reason::Unauthorized,
        DriverError::Invalid(_) => Reason::InvalidSpec,
        _ => Reason::HypervisorUnreachable,
    };
    let after = BACKOFF.0.saturating_mul(1 << failures.min(10).saturating_sub(1)).min(BACKOFF.1);
    Decision::new(())
        .say(Desired::no(ConditionType::Reachable, why, error.to_string()))
        .say(Desired::no(ConditionType::Ready, why, error.to_string()))
        .look_again(after)
}

/// Whether the endpoint must be described again: it was not known to answer.
pub fn must_describe(object: &WindowsHypervisor) -> bool {
    !object.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, ConditionType::Reachable) && s.version.is_some())
}

/// Whether a machine has, or may have, a VM there.
pub fn is_used_by(object: &WindowsHypervisor, machine: &WindowsMachine) -> bool {
    chosen(machine).as_deref() == object.metadata.name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_fails_is_asked_less_and_less() {
        let error = DriverError::Unreachable("cut".into());
        let waits: Vec<u64> = (1..8).map(|n| failed(&error, n).look_again.unwrap().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 15, 15, 15]);
        assert_eq!(failed(&error, u32::MAX).look_again.unwrap().as_secs(), 15);
    }

    #[test]
    fn each_class_of_error_has_its_reason() {
        for (error, reason) in [
            (DriverError::Auth("x".into()), Reason::Unauthorized),
            (DriverError::Invalid("x".into()), Reason::InvalidSpec),
            (DriverError::Unreachable("x".into()), Reason::HypervisorUnreachable),
            (DriverError::Transient("x".into()), Reason::HypervisorUnreachable),
        ] {
            let decision = failed(&error, 1);
            assert!(decision.conditions.iter().all(|c| c.reason == reason && c.status == Some(false)), "{decision:?}");
        }
    }
}
