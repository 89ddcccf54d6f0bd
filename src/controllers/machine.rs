//! WindowsMachine: observe → decide → act → report. The decisions are in [`lifecycle::machine`] and [`lifecycle::vm`].

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use super::claim::Claim;
use super::farewell::{Farewell, farewell, last_word};
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use super::{Context, seed};
use crate::api::capi::Cluster;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::{FINALIZER, WindowsMachine};
use crate::hypervisor::{Driver, DriverError, Step as Done};
use crate::lifecycle::machine::{Goal, HYPERVISOR_ANNOTATION, Reach, Situation, Step, Target, is_provisioned};
use crate::lifecycle::{self, Decision, Owner, vm};
use crate::vm::{Journal, Observed, Present};

const MANAGER: &str = "capw-windowsmachine";
/// What a person can mend outside the cluster (an image, room) is looked at again after that time.
const MEND: Duration = Duration::from_secs(15);

/// What the caches know of a machine.
struct Seen {
    namespace: String,
    claim: Claim,
    cluster: Option<Arc<Cluster>>,
    hypervisors: Vec<String>,
}

pub async fn reconcile(object: Arc<WindowsMachine>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    let seen = observe(&object, ctx);
    let owner = seen.claim.owner();
    let reach = |name: &str| ctx.reach(&seen.namespace, name);
    let situation =
        Situation { object: &object, owner: owner.clone(), cluster: seen.cluster.as_deref(), hypervisors: &seen.hypervisors, reach: &reach };
    let decision = lifecycle::machine::decide(&situation, ctx.now());
    match &decision.step {
        Step::Ignore => Ok(Outcome::done()),
        Step::Wait => say(ctx, &object, &decision, None).await,
        Step::Adopt { hypervisor } => adopt(ctx, &object, hypervisor).await,
        Step::Release => release(ctx, &object).await,
        Step::Ask(target) if target.goal == Goal::Gone => match farewell(ctx, &object).await? {
            Farewell::Done => ask(ctx, &object, &owner, &seen.namespace, target).await,
            Farewell::Wait(decision) => say(ctx, &object, &decision, None).await,
        },
        Step::Ask(target) => {
            ctx.complete_node(&object).await?;
            ask(ctx, &object, &owner, &seen.namespace, target).await
        }
    }
}

fn observe(object: &WindowsMachine, ctx: &Context) -> Seen {
    let namespace = object.namespace().unwrap_or_default();
    let cluster = ctx.cluster_of(&object.metadata, None);
    let hypervisors = ctx.stores.hypervisors.names(&namespace);
    Seen { namespace, claim: ctx.claim(object), cluster, hypervisors }
}

async fn ask(ctx: &Context, object: &WindowsMachine, owner: &Owner<'_>, namespace: &str, target: &Target) -> Result<Outcome, ReconcileError> {
    let place = (namespace.to_owned(), target.hypervisor.clone());
    let Some(hypervisor) = ctx.stores.hypervisors.get(namespace, &target.hypervisor) else {
        return Ok(Outcome::look_again(Duration::from_secs(1)));
    };
    let driver = match ctx.drivers.get(&hypervisor) {
        Ok(driver) => driver,
        Err(error) => return problem(ctx, object, target, &error).await,
    };
    let journal = vm::journal(object);
    let observed = match steady(ctx, object, &place, target) {
        Some(row) => Observed::Present(row),
        None => match driver.observe(&target.key, &journal).await {
            Ok(observed) => observed,
            Err(error) => return problem(ctx, object, target, &error).await,
        },
    };
    ctx.inventories.note(&place, target.key.vm, present(&observed).cloned());
    let decision = vm::decide(&vm::Situation { object, owner, target, observed: &observed }, ctx.now());
    let look = decision.look_again;
    let acted = match &decision.step {
        vm::Step::Wait => return say(ctx, object, &decision, None).await,
        vm::Step::Report(present) => {
            ctx.seeds.forget(target.key.vm);
            return say(ctx, object, &decision, Some(present)).await;
        }
        vm::Step::Detach(present) => match driver.detach(&target.key, &journal, &observed).await {
            Ok(Done::Done | Done::Changed) => {
                // Until the next listing shows it.
                ctx.inventories.note(&place, target.key.vm, Some(Present { seeded: false, ..(**present).clone() }));
                tracing::info!("the node is there: its seed was taken away");
                return say(ctx, object, &decision, Some(present)).await;
            }
            Err(DriverError::Invalid(cause)) => {
                let decision = decision.say(vm::seed_stays(&target.hypervisor, &cause));
                return say(ctx, object, &decision, None).await;
            }
            other => other.map_err(Failure::Driver),
        },
        vm::Step::SetProviderId(id) => return set_provider_id(ctx, object, &id.to_string()).await,
        vm::Step::Release => {
            ctx.seeds.forget(target.key.vm);
            ctx.inventories.note(&place, target.key.vm, None);
            last_word(ctx, object).await?;
            return release(ctx, object).await;
        }
        vm::Step::Create => create(ctx, object, &*driver, target, &journal, &observed).await,
        vm::Step::Advance => advance(ctx, object, &*driver, target, &journal, &observed).await,
        vm::Step::Retire(how) => driver.retire(&target.key, *how, &journal, &observed).await.map_err(Failure::Driver),
    };
    match acted {
        Ok(Done::Started { journal }) => {
            // One write: a second one would name a version of the object that is gone.
            let next = lifecycle::report::machine(object, &decision.conditions, None, Some(journal), ctx.now());
            report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
            Ok(Outcome::done())
        }
        Ok(Done::Done | Done::Changed) => {
            say(ctx, object, &decision, None).await?;
            Ok(Outcome::now())
        }
        Ok(Done::Wait { after }) => {
            say(ctx, object, &decision, None).await?;
            Ok(Outcome::look_again(look.map_or(after, |l| l.min(after))))
        }
        Err(Failure::Driver(error)) => problem(ctx, object, target, &error).await,
        Err(Failure::NoSecret(message)) => {
            let decision = Decision::new(()).say(Desired::no(ConditionType::Ready, Reason::BootstrapSecretMissing, message)).look_again(MEND);
            say(ctx, object, &decision, None).await
        }
        Err(Failure::Reconcile(error)) => Err(error),
    }
}

/// Why a step towards a running VM failed.
enum Failure {
    Driver(DriverError),
    NoSecret(String),
    Reconcile(ReconcileError),
}

/// The row of the last listing, for a machine that needs nothing: it saves a call per machine and tick.
fn steady(ctx: &Context, object: &WindowsMachine, place: &(String, String), target: &Target) -> Option<Present> {
    let settled = matches!(target.goal, Goal::Run { .. }) && (is_provisioned(object) || object.spec.provider_id.is_some());
    (settled && !vm::is_given_up(object, ctx.now())).then(|| ctx.inventories.running(place, target.key.vm)).flatten()
}

/// The image must exist, and ids that the driver reserves are stored before it acts on them.
async fn create(
    ctx: &Context,
    object: &WindowsMachine,
    driver: &dyn Driver,
    target: &Target,
    journal: &Journal,
    observed: &Observed,
) -> Result<Done, Failure> {
    let Goal::Run { spec, .. } = &target.goal else { return Ok(Done::Done) };
    driver.check(spec).await.map_err(Failure::Driver)?;
    let planned = driver.plan(&target.key, spec, journal).await.map_err(Failure::Driver)?;
    if planned != *journal {
        return Ok(Done::Started { journal: planned });
    }
    advance(ctx, object, driver, target, journal, observed).await
}

async fn advance(
    ctx: &Context,
    object: &WindowsMachine,
    driver: &dyn Driver,
    target: &Target,
    journal: &Journal,
    observed: &Observed,
) -> Result<Done, Failure> {
    let Goal::Run { spec, secret } = &target.goal else { return Ok(Done::Done) };
    let seed = match seed::of_secret(ctx, object, target, &spec.host_name, secret).await.map_err(Failure::Reconcile)? {
        Ok(seed) => seed,
        Err(message) => return Err(Failure::NoSecret(message)),
    };
    driver.advance(&target.key, spec, &seed, journal, observed).await.map_err(Failure::Driver)
}

/// The report of a decision; the write wakes the object again, so nothing else needs to.
async fn say<S>(ctx: &Context, object: &WindowsMachine, decision: &Decision<S>, present: Option<&Present>) -> Result<Outcome, ReconcileError> {
    let next = lifecycle::report::machine(object, &decision.conditions, present, None, ctx.now());
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(decision.look_again))
}

/// A failure of the driver, in the words of a condition. What passes by itself is retried with back-off and not reported.
async fn problem(ctx: &Context, object: &WindowsMachine, target: &Target, error: &DriverError) -> Result<Outcome, ReconcileError> {
    let why = match error {
        DriverError::NotFound(_) => Reason::ImageMissing,
        DriverError::Conflict(_) => Reason::ForeignVirtualMachine,
        DriverError::Auth(_) => Reason::Unauthorized,
        DriverError::Capacity(_) => Reason::NoCapacity,
        DriverError::Invalid(_) => Reason::RefusedByHypervisor,
        DriverError::Unreachable(_) => Reason::HypervisorUnreachable,
        DriverError::Busy { after } => return Ok(Outcome::look_again(*after)),
        DriverError::Transient(_) | DriverError::Unknown(_) => return Err(ReconcileError::Driver(error.clone())),
    };
    let message = format!("WindowsHypervisor {}: {error}", target.hypervisor);
    let said = match (is_provisioned(object), object.metadata.deletion_timestamp.is_some()) {
        (_, true) => vec![Desired::no(ConditionType::Ready, why, message.clone()), Desired::yes(ConditionType::Deleting, why).with_message(message)],
        (true, _) => vec![Desired::unknown(ConditionType::VirtualMachineReady, why, message)],
        (false, _) => vec![Desired::no(ConditionType::Ready, why, message)],
    };
    let decision = Decision { step: (), conditions: said, look_again: Some(MEND) };
    say(ctx, object, &decision, None).await
}

/// Finalizer and choice of hypervisor, in one write, before the first call outside.
async fn adopt(ctx: &Context, object: &WindowsMachine, hypervisor: &str) -> Result<Outcome, ReconcileError> {
    let finalizers: Vec<&str> = object.finalizers().iter().map(String::as_str).chain([FINALIZER]).collect();
    let patch = json!({ "metadata": {
        "resourceVersion": object.resource_version(),
        "finalizers": finalizers,
        "annotations": { HYPERVISOR_ANNOTATION: hypervisor },
    }});
    ctx.written.note(&ctx.cluster.merge(object, patch).await?);
    Ok(Outcome::done())
}

async fn set_provider_id(ctx: &Context, object: &WindowsMachine, id: &str) -> Result<Outcome, ReconcileError> {
    ctx.written.note(&ctx.cluster.merge_spec(object, json!({ "providerID": id })).await?);
    Ok(Outcome::done())
}

async fn release(ctx: &Context, object: &WindowsMachine) -> Result<Outcome, ReconcileError> {
    if let Some(written) = ctx.cluster.remove_finalizer(object, FINALIZER).await? {
        ctx.written.note(&written);
    }
    tracing::info!("nothing is left of the VM: released");
    Ok(Outcome::done())
}

fn present(observed: &Observed) -> Option<&Present> {
    match observed {
        Observed::Present(present) => Some(present),
        _ => None,
    }
}

impl Context {
    /// What is known of a hypervisor without asking it.
    pub fn reach(&self, namespace: &str, name: &str) -> Reach {
        match self.stores.hypervisors.get(namespace, name) {
            Some(_) => self.inventories.reach(&(namespace.to_owned(), name.to_owned())),
            None => Reach::Missing,
        }
    }
}
