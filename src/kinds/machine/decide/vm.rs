//! WindowsMachine, second half: the hypervisor has answered, and the next step is decided.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::guest::{self, Progress};
use super::step::{Goal, Target};
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::machine::{FINALIZER, WindowsMachine};
use crate::api::name::ProviderId;
use crate::diagnosis;
use crate::domain::age::{created, seconds};
use crate::domain::decision::{Decision, quiet_left};
use crate::domain::identity::{is_provisioned, provider_id};
use crate::domain::owner::Owner;
use crate::guards::Guard;
use crate::vm::{Journal, Observed, Power, Present, REPORT_PLAN, Seeded, StopMode, state};

/// In the message of NodeJoined, precedes the problem of a Node that has joined and is not Ready.
const NOT_READY: &str = "; it is not Ready: ";

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
        let decision = joined(s, vm, decision, now);
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
    match quiet_left(created(&s.object.metadata), now) {
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
    let known = object.status.as_ref().and_then(|s| s.bootstrap.as_ref());
    match guest::progress(known, vm.report.as_ref()?, now) {
        Progress::Later(left) => Some(left),
        Progress::Known | Progress::News(_) => None,
    }
}

/// Reports the progress of the join. Ready stays true while the node may still join, since MachineHealthCheck counts from its last change.
/// Once the guest has given up, Ready is false, which a MachineHealthCheck can see (`InfrastructureReady` of the Machine). A finding of the
/// diagnosis changes only the message, never a status: an intermittent cause must not restart a timeout.
fn joined(s: &ObservedVm<'_>, vm: &Present, decision: Decision<VmStep>, now: Timestamp) -> Decision<VmStep> {
    let condition = |reason, message: String| Desired::no(ConditionType::NodeJoined, reason, message);
    let node = s.owner.request().and_then(|owner| Some((owner, owner.node.as_ref()?)));
    let given_up = vm.report.as_ref().filter(|report| report.is_final_failure());
    if let (None, Some(report)) = (node, given_up) {
        let (why, message) = guest::failure(report);
        return decision.with_condition(condition(why, message.clone())).with_condition(Desired::no(ConditionType::Ready, why, message));
    }
    let decision = decision.with_condition(Desired::yes(ConditionType::Ready, Reason::Provisioned));
    if let Some((owner, node)) = node {
        let ready = diagnosis::of_node_ready(&owner.conditions, node, now);
        let trouble = ready.sentence().map(|why| format!("{NOT_READY}{why}")).unwrap_or_default();
        let joined = Desired::yes(ConditionType::NodeJoined, Reason::Joined).with_message(format!("Node {node}{trouble}"));
        return Decision { requeue_after: ready.next, ..decision.with_condition(joined) };
    }
    let status = s.object.status.as_ref();
    let last = guest::told(status.and_then(|s| s.bootstrap.as_ref()), vm.report.as_ref(), now);
    let symptoms = diagnosis::of_guest(s.object, last.as_ref(), now);
    let trouble = symptoms.sentence();
    let deadline = s.object.spec.join_deadline_seconds;
    let left = status.and_then(|s| s.powered_on_at.as_ref()).map_or(deadline, |since| deadline - seconds(since.0, now));
    if left > 0 {
        let trouble = trouble.map(|why| format!(": {why}")).unwrap_or_default();
        let joining = condition(Reason::Joining, format!("the VM runs; its Node has not appeared yet{trouble}"));
        let left = Duration::from_secs(left.unsigned_abs());
        return decision.with_condition(joining).requeue_after(symptoms.next.map_or(left, |next| next.min(left)));
    }
    let said = last.map(|l| format!("; the guest's last word: {} {} ({}): {}", l.item, l.state, l.code, l.message)).unwrap_or_default();
    let trouble = trouble.unwrap_or_else(|| r"Look at the VM's console and at C:\ProgramData\capw\bootstrap.log".into());
    let never = format!("no Node has appeared {deadline} s after power on{said}. {trouble}; a MachineHealthCheck replaces such machines");
    Decision { requeue_after: symptoms.next, ..decision.with_condition(condition(Reason::NodeNeverJoined, never)) }
}

/// Why the Node of a machine is not Ready, from its condition NodeJoined.
pub fn node_trouble(joined: &Condition) -> Option<&str> {
    joined.message.split_once(NOT_READY).map(|(_, why)| why)
}

/// Whether the next report is that no Node will appear. It includes the guest's last message, which must not be outdated.
pub fn is_given_up(object: &WindowsMachine, now: Timestamp) -> bool {
    let Some(status) = &object.status else { return false };
    let joining = condition::find(&status.conditions, ConditionType::NodeJoined).is_some_and(|c| c.reason == Reason::Joining);
    joining && status.powered_on_at.as_ref().is_some_and(|since| seconds(since.0, now) >= object.spec.join_deadline_seconds)
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
