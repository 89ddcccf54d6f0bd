//! WindowsMachine, second half: the hypervisor has answered, and the next step is decided.

use std::time::Duration;

use jiff::Timestamp;

use super::guest;
use super::join;
use super::step::{Goal, Target};
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::machine::{FINALIZER, WindowsMachine};
use crate::api::name::ProviderId;
use crate::domain::age::{created, seconds};
use crate::domain::decision::{Decision, quiet_left};
use crate::domain::identity::{is_provisioned, provider_id};
use crate::domain::owner::Owner;
use crate::guards::Guard;
use crate::vm::{Journal, Observed, Power, Present, REPORT_PLAN, Seeded, StopMode, state};

/// The state of the VM that the hypervisor has returned.
pub struct ObservedVm<'a> {
    pub object: &'a WindowsMachine,
    pub owner: &'a Owner,
    pub target: &'a Target,
    pub observed: &'a Observed,
    /// How long the guest may take to shut down.
    pub stop: Duration,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum VmStep {
    Wait,
    /// Check the image, reserve ids and store them if there are any, then create the VM.
    Create,
    /// Take the next step towards a running VM, with one driver call.
    Advance,
    /// Store `spec.providerID`.
    SetProviderId(ProviderId),
    /// Report the VM to Cluster API and users; the report itself is the effect.
    Report(Box<Present>),
    /// Detach the seed with one driver call: its secrets are no longer needed.
    Detach(Box<Present>),
    /// Take the next step towards the removal of the VM, with one driver call.
    Retire(StopMode),
    /// Absence is proven: release the object.
    Release,
}

pub fn decide(s: &ObservedVm<'_>, now: Timestamp) -> Decision<VmStep> {
    match (&s.target.goal, s.observed) {
        (Goal::Gone, Observed::Present(_)) if !Guard::ProofOfAbsence.holds() => Decision::new(VmStep::Release),
        (Goal::Gone, Observed::Present(_)) => deleting(VmStep::Retire(stop_mode(s.object, s.stop, now)), s.object, now),
        (Goal::Gone, Observed::Foreign { what, is_marked: true }) => in_doubt(what, &s.target.hypervisor),
        // A VM with the mark of another machine is not ours: our VM does not exist any more.
        (Goal::Gone, Observed::Absent | Observed::Foreign { .. }) => Decision::new(VmStep::Release),
        (Goal::Run { .. }, Observed::Foreign { what, .. }) => {
            let message = format!(
                "{what} is in the way on WindowsHypervisor {} and was not made for this machine; it is not touched. Rename or remove it, or delete this Machine",
                s.target.hypervisor
            );
            Decision::new(VmStep::Wait)
                .with_condition(Desired::no(ConditionType::Ready, Reason::ForeignVirtualMachine, message))
                .requeue_after(Duration::from_secs(60))
        }
        (Goal::Run { .. }, Observed::Absent) => match provider_id(s.object) {
            Some(id) => removed(&id, &s.target.hypervisor),
            None => Decision::new(VmStep::Create),
        },
        (Goal::Run { .. }, Observed::Present(vm)) => running(s, vm, now),
    }
}

/// A changed label must neither cost a VM nor leave a VM behind.
fn in_doubt(what: &str, hypervisor: &str) -> Decision<VmStep> {
    let message = format!(
        "{what} on WindowsHypervisor {hypervisor} was made for this machine, but for another cluster; it is not touched. Give this object the namespace and the cluster label of its mark; or, if the VM belongs to another object, remove the finalizer {FINALIZER}"
    );
    Decision::new(VmStep::Wait)
        .with_condition(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message.clone()))
        .with_condition(Desired::no(ConditionType::Ready, Reason::ForeignVirtualMachine, message))
        .requeue_after(Duration::from_secs(60))
}

fn running(s: &ObservedVm<'_>, vm: &Present, now: Timestamp) -> Decision<VmStep> {
    let provisioned = is_provisioned(s.object);
    let id = ProviderId { hypervisor: s.target.hypervisor.clone(), vm: s.target.key.vm };
    if !vm.vm && provider_id(s.object).is_some() {
        return removed(&id, &s.target.hypervisor);
    }
    // The provider ID is stored once the VM ran with its seed. It survives a move to another cluster; the status does not.
    let has_run = provisioned || provider_id(s.object).is_some();
    if let (true, Some(trouble)) = (provisioned, &vm.trouble) {
        let message = format!("the VM on WindowsHypervisor {} does not run: {trouble}", s.target.hypervisor);
        return Decision::new(VmStep::Wait)
            .with_condition(Desired::no(ConditionType::VirtualMachineReady, Reason::VirtualMachineHalted, message.clone()))
            .with_condition(Desired::no(ConditionType::Ready, Reason::VirtualMachineHalted, message));
    }
    if vm.power == Power::On && (vm.seeded != Seeded::No || has_run) {
        if provider_id(s.object).is_none() {
            return Decision::new(VmStep::SetProviderId(id));
        }
        let ready = Desired::yes(ConditionType::VirtualMachineReady, Reason::Provisioned).with_message(vm.warning.clone().unwrap_or_default());
        let decision = Decision::new(VmStep::Report(Box::new(vm.clone()))).with_condition(ready);
        let decision = join::progress(s.object, s.owner, vm, decision, now);
        let decision = if has_read_its_seed(s.object, vm) { Decision { step: VmStep::Detach(Box::new(vm.clone())), ..decision } } else { decision };
        return match news_in(s.object, vm, now) {
            Some(after) => Decision { requeue_after: Some(decision.requeue_after.map_or(after, |next| next.min(after))), ..decision },
            None => decision,
        };
    }
    if provisioned {
        let message = format!(
            "the VM on WindowsHypervisor {} is switched off, but not by this controller. Switch it on, or delete the Machine",
            s.target.hypervisor
        );
        return Decision::new(VmStep::Wait)
            .with_condition(Desired::no(ConditionType::VirtualMachineReady, Reason::VirtualMachineOff, message.clone()))
            .with_condition(Desired::no(ConditionType::Ready, Reason::VirtualMachineOff, message));
    }
    let advance = Decision::new(VmStep::Advance);
    // Another wait may have been reported a moment ago.
    let conditions = s.object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let waiting = condition::find(conditions, ConditionType::Ready).filter(|ready| condition::problem(ready).is_none());
    let reported = waiting.map(|ready| ready.last_transition_time.0);
    match quiet_left(reported.or_else(|| created(&s.object.metadata)), now) {
        Some(_) => advance,
        None => advance.with_condition(Desired::no(
            ConditionType::Ready,
            Reason::Provisioning,
            format!("the VM is being made on WindowsHypervisor {}", s.target.hypervisor),
        )),
    }
}

/// Whether the guest needs its seed no more: its Node has joined, as already reported, and its plan is done. A guest that lies harms only itself.
fn has_read_its_seed(object: &WindowsMachine, vm: &Present) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let finished = |item: &str, said: &str| item == REPORT_PLAN && said == state::FINISHED;
    let done = vm.report.as_ref().is_some_and(|report| finished(&report.item, &report.state)) || has_finished(object);
    vm.seeded == Seeded::Yes
        && done
        && condition::is_true(conditions, ConditionType::NodeJoined)
        && condition::find(conditions, ConditionType::SeedDetached).is_none()
}

/// Whether the guest has sent its last report, according to the status.
pub fn has_finished(object: &WindowsMachine) -> bool {
    let told = object.status.as_ref().and_then(|status| status.bootstrap.as_ref());
    told.is_some_and(|told| told.item == REPORT_PLAN && told.state == state::FINISHED)
}

/// A guest that may run pods is shut down gracefully, within a time limit. A guest that never joined has nothing to lose.
fn stop_mode(object: &WindowsMachine, stop: Duration, now: Timestamp) -> StopMode {
    let status = object.status.as_ref();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let since = status.and_then(|status| status.stopping_since.as_ref());
    let late = since.is_some_and(|since| u64::try_from(seconds(since.0, now)).unwrap_or_default() >= stop.as_secs());
    if late || !condition::is_true(conditions, ConditionType::NodeJoined) { StopMode::Hard } else { StopMode::Graceful }
}

/// The condition when the hypervisor cannot detach the seed. The call is not tried again.
pub fn seed_not_detached(hypervisor: &str, cause: &str) -> Desired {
    let message = format!(
        "WindowsHypervisor {hypervisor} cannot take the configuration drive from the machine: {cause}. Its token has expired, but other secrets of the bootstrap data stay readable in the guest: remove the drive by hand"
    );
    Desired::no(ConditionType::SeedDetached, Reason::SeedNotDetached, message)
}

/// When the guest's newest report may be written, if that is not now.
fn news_in(object: &WindowsMachine, vm: &Present, now: Timestamp) -> Option<Duration> {
    let (left, _) = guest::news(object.status.as_ref(), vm.report.as_ref()?, now)?;
    Some(left).filter(|left| !left.is_zero())
}

fn removed(id: &ProviderId, hypervisor: &str) -> Decision<VmStep> {
    let message = format!(
        "the VM {} was removed from WindowsHypervisor {hypervisor}, but not by CAPW. It is not made again: delete the Machine, or let a MachineHealthCheck do so",
        id.vm
    );
    Decision::new(VmStep::Wait)
        .with_condition(Desired::no(ConditionType::VirtualMachineReady, Reason::VirtualMachineRemoved, message.clone()))
        .with_condition(Desired::no(ConditionType::Ready, Reason::VirtualMachineRemoved, message))
}

fn deleting(step: VmStep, object: &WindowsMachine, now: Timestamp) -> Decision<VmStep> {
    let decision = Decision::new(step);
    match quiet_left(object.metadata.deletion_timestamp.as_ref().map(|t| t.0), now) {
        Some(_) => decision,
        None => decision
            .with_condition(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message("the VM is being stopped and removed"))
            .with_condition(Desired::no(ConditionType::Ready, Reason::Deleting, "the VM is being stopped and removed")),
    }
}

/// The journal in the machine's status.
pub fn journal(object: &WindowsMachine) -> Journal {
    object.status.as_ref().map(|s| s.journal.clone()).unwrap_or_default()
}
