//! WindowsBootstrapConfig: observe → decide → act → report. The decisions are in [`lifecycle::bootstrap`].

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use secrecy::{ExposeSecret, SecretString};

use super::claim::Claim;
use super::data_secret::{self, Made};
use super::facts::{DataError, Sources};
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use super::{Context, clean_up, pattern, secret_values};
use crate::api::bootstrap_config::{FINALIZER, WindowsBootstrapConfig};
use crate::api::capi::{self, Cluster, Endpoint, Machine};
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachine;
use crate::api::pool::{cluster_of, joins};
use crate::bootstrap::{self, RenderError};
use crate::cluster::workload::{Workload, WorkloadError};
use crate::cluster::{ApiError, join_rights, token};
use crate::lifecycle::bootstrap::{Infrastructure, Situation, Step, data_secret as made_secret, token_id};
use crate::lifecycle::report::Token;
use crate::lifecycle::{self, Decision, paused, standalone};

pub(super) const MANAGER: &str = "capw-windowsbootstrapconfig";
const MEND: std::time::Duration = std::time::Duration::from_secs(10);

/// What the caches know.
struct Seen {
    namespace: String,
    claim: Claim,
    cluster: Option<Arc<Cluster>>,
    windows_machine: Option<Arc<WindowsMachine>>,
}

pub async fn reconcile(object: Arc<WindowsBootstrapConfig>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    if let Some(owner) = capi::owner(object.metadata.owner_references.as_ref(), capi::GROUP, "MachinePool") {
        return pattern::reconcile(ctx, &object, owner).await;
    }
    let mut seen = observe(&object, ctx);
    if let Err(error) = meet(ctx, &object, &mut seen).await {
        return unusable(ctx, &object, &error).await;
    }
    let owner = seen.claim.owner();
    let situation = Situation {
        object: &object,
        infrastructure: infrastructure(owner.machine(), seen.windows_machine.as_deref()),
        owner,
        cluster: seen.cluster.as_deref(),
        certificate_issued: ctx.certificates.issued(&seen.namespace, &object),
    };
    let decision = lifecycle::bootstrap::decide(&situation, ctx.now());
    if let (Some(cluster), Step::Wait | Step::ExtendToken { .. }) = (&situation.cluster, &decision.step) {
        ctx.certificates.watch_if_needed(ctx, &seen.namespace, &cluster.name_any(), &object).await;
    }
    match &decision.step {
        Step::Ignore => Ok(Outcome::done()),
        Step::Wait => say(ctx, &object, &decision, None, None).await,
        Step::Adopt => adopt(ctx, &object).await,
        Step::Restore { secret } => {
            let decision = decision
                .clone()
                .say(Desired::yes(ConditionType::DataSecretAvailable, Reason::Ready))
                .say(Desired::yes(ConditionType::Ready, Reason::Ready));
            restore(ctx, &object, &decision, secret).await
        }
        Step::MakeData { endpoint } => make_data(ctx, &object, &seen, endpoint).await,
        Step::ExtendToken { expires } => extend(ctx, &object, &seen, *expires).await,
        Step::DeleteToken { why } => delete_token(ctx, &object, &seen, *why).await,
        Step::CleanUp => leave(ctx, &object, &seen).await,
    }
}

fn observe(object: &WindowsBootstrapConfig, ctx: &Context) -> Seen {
    let namespace = object.namespace().unwrap_or_default();
    let claim = ctx.claim_of_config(object);
    let windows_machine = claim.machine().and_then(|m| ctx.stores.windows_machines.get(&namespace, &m.spec.infrastructure_ref.name));
    let pool = windows_machine.as_deref().and_then(|m| ctx.pool_of(m));
    let cluster = ctx.cluster_of(&object.metadata, pool.as_deref());
    Seen { namespace, claim, cluster, windows_machine }
}

/// Where the API server is, only the kubeconfig of a cluster without Cluster API knows: it is asked while the data is still to be made.
async fn meet(ctx: &Context, object: &WindowsBootstrapConfig, seen: &mut Seen) -> Result<(), WorkloadError> {
    let Some(joins) = joins(&object.metadata) else { return Ok(()) };
    if object.metadata.deletion_timestamp.is_some() || paused(&object.metadata, None).is_some() || made_secret(object).is_some() {
        return Ok(());
    }
    let workload = ctx.joined(&seen.namespace, joins).await?;
    let pool = seen.windows_machine.as_deref().and_then(|m| ctx.pool_of(m));
    let spec = pool.as_ref().and_then(|p| p.spec.cluster.as_ref());
    seen.cluster = Some(Arc::new(standalone::cluster(joins, spec, Some(workload.endpoint()))));
    Ok(())
}

fn infrastructure<'a>(owner: Option<&Machine>, found: Option<&'a WindowsMachine>) -> Infrastructure<'a> {
    let ours = owner
        .is_some_and(|m| m.spec.infrastructure_ref.kind == "WindowsMachine" && m.spec.infrastructure_ref.api_group.starts_with("infrastructure."));
    match (ours, found) {
        (false, _) => Infrastructure::Foreign,
        (true, None) => Infrastructure::Unseen,
        (true, Some(machine)) => Infrastructure::Ours(machine),
    }
}

/// The Machine has its data from a life before: what is said of it, and which token it was, so that what was made with that one
/// is found when the object goes.
async fn restore(ctx: &Context, object: &WindowsBootstrapConfig, said: &Decision<Step>, secret: &str) -> Result<Outcome, ReconcileError> {
    let mut next = lifecycle::report::bootstrap(object, &said.conditions, Some(secret), None, ctx.now());
    if let Some((id, _)) = data_secret::token(ctx, object).await?
        // A Secret that a user made may hold anything.
        && id.len() == 6
    {
        next.token_id = Some(id);
    }
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

/// Token, Secret, report. Each part finds what a try before a crash has left.
async fn make_data(ctx: &Context, object: &WindowsBootstrapConfig, seen: &Seen, endpoint: &Endpoint) -> Result<Outcome, ReconcileError> {
    let (Some(machine), Some(cluster)) = (seen.claim.machine(), &seen.cluster) else { return Ok(Outcome::done()) };
    // Once in the way, it is looked at before anything is tried again: a refused write is a write.
    if conflicts(object)
        && let Some(message) = data_secret::taken(ctx, object).await?
    {
        return conflict(ctx, object, message).await;
    }
    let workload = match ctx.workload(&seen.namespace, &cluster.name_any()).await {
        Ok(workload) => workload,
        Err(error) => return unusable(ctx, object, &error).await,
    };
    let secrets = match secret_values::read(ctx, object).await? {
        Ok(secrets) => secrets,
        Err(missing) => {
            let said = Decision::new(()).say(Desired::no(ConditionType::Ready, Reason::SecretMissing, missing)).look_again(MEND);
            return say(ctx, object, &said, None, None).await;
        }
    };
    let windows_machine = seen.windows_machine.as_deref();
    let sources = Sources { object, machine, cluster, windows_machine, endpoint, workload: &workload, secrets: &secrets };
    // What cannot be rendered gets no token: a secret of the same length stands in for it.
    let placeholder = SecretString::from(format!("{}.{}", token_id(object), "0".repeat(16)));
    let render = |token| sources.facts(token).and_then(|f| Ok(bootstrap::render(&f)?));
    if let Err(error) = render(placeholder) {
        return unrenderable(ctx, object, &error).await;
    }
    match make_data_in(ctx, object, seen, cluster, &workload, render).await {
        Ok(outcome) => Ok(outcome),
        Err(Failure::Workload(error)) => {
            ctx.workloads.doubt(&seen.namespace, &cluster.name_any(), &error).await;
            unusable(ctx, object, &error).await
        }
        Err(Failure::Render(error)) => unrenderable(ctx, object, &error).await,
        Err(Failure::Conflict(message)) => conflict(ctx, object, message).await,
        Err(Failure::Reconcile(error)) => Err(error),
    }
}

fn conflicts(object: &WindowsBootstrapConfig) -> bool {
    let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::Ready).is_some_and(|ready| ready.reason == Reason::SecretConflict)
}

async fn conflict(ctx: &Context, object: &WindowsBootstrapConfig, message: String) -> Result<Outcome, ReconcileError> {
    let said = Decision::new(()).say(Desired::no(ConditionType::Ready, Reason::SecretConflict, message)).look_again(MEND);
    say(ctx, object, &said, None, None).await
}

/// Why the data could not be made.
enum Failure {
    Workload(WorkloadError),
    Render(DataError),
    Conflict(String),
    Reconcile(ReconcileError),
}

impl From<WorkloadError> for Failure {
    fn from(error: WorkloadError) -> Self {
        Self::Workload(error)
    }
}

async fn make_data_in(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    seen: &Seen,
    cluster: &Cluster,
    workload: &Workload,
    render: impl Fn(SecretString) -> Result<bootstrap::Bootstrap, DataError>,
) -> Result<Outcome, Failure> {
    ctx.ensure_join_rights(workload).await?;
    if object.spec.kube_proxy.is_some() {
        join_rights::ensure_proxy(workload).await?;
    }
    ctx.certificates.watch(ctx, &seen.namespace, &cluster.name_any(), workload);
    let uid = object.uid().unwrap_or_default();
    let made = match ctx.unreported.take(&uid) {
        Some(made) => made,
        None => make(ctx, object, workload, render).await?,
    };
    let said = Decision::new(())
        .say(Desired::yes(ConditionType::DataSecretAvailable, Reason::Ready).with_message(made.warnings.clone()))
        .say(Desired::yes(ConditionType::JoinCredentialValid, Reason::TokenValid))
        .say(Desired::yes(ConditionType::Ready, Reason::Ready));
    let told = say(ctx, object, &said, Some(&made.secret), Some(made.token.clone())).await;
    if told.is_err() {
        ctx.unreported.keep(uid, made);
    }
    told.map_err(Failure::Reconcile)
}

/// The token, and the Secret with the data for it.
async fn make(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    workload: &Workload,
    render: impl Fn(SecretString) -> Result<bootstrap::Bootstrap, DataError>,
) -> Result<Made, Failure> {
    let now = ctx.now();
    let expires = now.saturating_add(SignedDuration::from_secs(object.spec.join.token_ttl_seconds)).unwrap_or(now);
    let token = token::create(workload, &token_id(object), &(ctx.new_token_secret)(), &owner_of(object), expires).await?;
    ctx.known_tokens.keep(object.uid().unwrap_or_default(), token.uid);
    let whole = SecretString::from(format!("{}.{}", token.id, token.secret.expose_secret()));
    let data = render(whole.clone()).map_err(Failure::Render)?;
    let secret = data_secret::ensure(ctx, object, &data, &whole).await.map_err(|e| match e {
        data_secret::Error::Foreign(message) => Failure::Conflict(message),
        data_secret::Error::Reconcile(error) => Failure::Reconcile(error),
    })?;
    let warnings = bootstrap::lint::message(&data.warnings);
    Ok(Made { secret, token: Token { id: token.id, created: now, expires: token.expires.unwrap_or(expires) }, warnings })
}

async fn extend(ctx: &Context, object: &WindowsBootstrapConfig, seen: &Seen, expires: Timestamp) -> Result<Outcome, ReconcileError> {
    let Some(cluster) = &seen.cluster else { return Ok(Outcome::done()) };
    let extended = async {
        let workload = ctx.workload(&seen.namespace, &cluster.name_any()).await?;
        match token::get(&workload, &token_id(object)).await? {
            Some(found) if found.mark.as_deref() == Some(&owner_of(object).mark) => token::extend(&workload, &found, expires).await.map(Some),
            Some(_) => Ok(None),
            // It expired and was cleaned while nobody was here: the guest still has it, so the same one is made again.
            None => match data_secret::token(ctx, object).await.map_err(WorkloadError::Management)? {
                Some((_, secret)) => token::create(&workload, &token_id(object), &secret, &owner_of(object), expires).await.map(Some),
                None => Ok(None),
            },
        }
    };
    match extended.await {
        Ok(_) => {
            let created = object.status.as_ref().and_then(|s| s.token_created_at.as_ref()).map_or(ctx.now(), |t| t.0);
            let said = Decision::new(()).say(Desired::yes(ConditionType::JoinCredentialValid, Reason::TokenValid));
            say(ctx, object, &said, None, Some(Token { id: token_id(object), created, expires })).await
        }
        Err(error) => {
            ctx.workloads.doubt(&seen.namespace, &cluster.name_any(), &error).await;
            Err(ReconcileError::Workload(error))
        }
    }
}

async fn delete_token(ctx: &Context, object: &WindowsBootstrapConfig, seen: &Seen, why: Reason) -> Result<Outcome, ReconcileError> {
    let Some(cluster) = &seen.cluster else { return Ok(Outcome::done()) };
    let workload = ctx.workload(&seen.namespace, &cluster.name_any()).await.map_err(ReconcileError::Workload)?;
    withdraw(ctx, object, &workload).await.map_err(ReconcileError::Workload)?;
    let said = if why == Reason::TokenExpired {
        let message = format!(
            "the machine has not joined within {} s (spec.join.tokenMaxAgeSeconds), so its bootstrap token was withdrawn: it can no longer join. Look at the WindowsMachine for the cause, then delete the Machine, or let a MachineHealthCheck do so",
            object.spec.join.token_max_age_seconds
        );
        Decision::new(()).say(Desired::no(ConditionType::JoinCredentialValid, why, message.clone())).say(Desired::no(
            ConditionType::Ready,
            why,
            message,
        ))
    } else {
        Decision::new(())
            .say(Desired::yes(ConditionType::JoinCredentialValid, why).with_message("the node has its certificate; the token was deleted"))
    };
    say(ctx, object, &said, None, None).await
}

async fn withdraw(ctx: &Context, object: &WindowsBootstrapConfig, workload: &Workload) -> Result<bool, WorkloadError> {
    if let Some(uid) = ctx.known_tokens.take(&object.uid().unwrap_or_default()) {
        match token::delete_made(workload, &token_id(object), &uid).await {
            // Not the one that was made here: it is looked at like any other.
            Err(WorkloadError::Api(ApiError::Conflict(_))) => {}
            done => return done,
        }
    }
    token::delete(workload, &token_id(object), &owner_of(object).mark).await
}

/// The object goes, and with it what the machine has left in the workload cluster.
async fn leave(ctx: &Context, object: &WindowsBootstrapConfig, seen: &Seen) -> Result<Outcome, ReconcileError> {
    let cluster = cluster_of(&object.metadata).unwrap_or_default();
    ctx.unreported.take(&object.uid().unwrap_or_default());
    ctx.known_tokens.take(&object.uid().unwrap_or_default());
    let mark = owner_of(object).mark;
    match clean_up::clean_up(ctx, object, seen.claim.machine().map(|m| &**m), seen.cluster.as_deref(), &mark).await {
        Ok(()) => release(ctx, object).await,
        // Nobody can use a token of a cluster that cannot be reached for ever: it ends by itself, the object must not stay.
        Err(error) if lost(&error) && token_is_over(object, ctx.now()) => release(ctx, object).await,
        Err(error) => {
            ctx.workloads.doubt(&seen.namespace, cluster, &error).await;
            Err(ReconcileError::Workload(error))
        }
    }
}

fn lost(error: &WorkloadError) -> bool {
    !matches!(error, WorkloadError::Api(_) | WorkloadError::Management(_))
}

fn token_is_over(object: &WindowsBootstrapConfig, now: Timestamp) -> bool {
    let expires = object.status.as_ref().and_then(|s| s.token_expires_at.as_ref());
    expires.is_none_or(|t| t.0 <= now)
}

async fn adopt(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Outcome, ReconcileError> {
    if let Some(written) = ctx.cluster.add_finalizer(object, FINALIZER).await? {
        ctx.written.note(&written);
    }
    Ok(Outcome::done())
}

async fn release(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Outcome, ReconcileError> {
    if let Some(written) = ctx.cluster.remove_finalizer(object, FINALIZER).await? {
        ctx.written.note(&written);
    }
    Ok(Outcome::done())
}

/// Whose token it is: a mark that `clusterctl move` does not change.
fn owner_of(object: &WindowsBootstrapConfig) -> token::Owner {
    let mark = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    token::Owner { description: format!("WindowsBootstrapConfig {mark}"), mark }
}

async fn unrenderable(ctx: &Context, object: &WindowsBootstrapConfig, error: &DataError) -> Result<Outcome, ReconcileError> {
    let why = match error {
        DataError::Render(RenderError::TooLarge { .. }) => Reason::PayloadTooLarge,
        DataError::Render(RenderError::Incompatible(_)) => Reason::Incompatible,
        _ => Reason::InvalidSpec,
    };
    let said = Decision::new(()).say(Desired::no(ConditionType::Ready, why, error.to_string()));
    say(ctx, object, &said, None, None).await
}

async fn unusable(ctx: &Context, object: &WindowsBootstrapConfig, error: &WorkloadError) -> Result<Outcome, ReconcileError> {
    let Some(why) = reason_of(error) else { return Err(ReconcileError::Workload(error.clone())) };
    let said = Decision::new(()).say(Desired::no(ConditionType::Ready, why, error.to_string())).look_again(MEND);
    say(ctx, object, &said, None, None).await
}

/// The reason of a condition for what hinders the use of a workload cluster; `None` for what passes by itself.
pub(super) fn reason_of(error: &WorkloadError) -> Option<Reason> {
    match error {
        WorkloadError::KubeconfigMissing { .. } => Some(Reason::KubeconfigMissing),
        WorkloadError::KubeconfigInvalid { .. } => Some(Reason::KubeconfigInvalid),
        WorkloadError::Unreachable { .. } => Some(Reason::WorkloadClusterUnreachable),
        WorkloadError::Unauthorized { .. } => Some(Reason::CredentialsRejected),
        WorkloadError::Forbidden { .. } => Some(Reason::WorkloadClusterForbidden),
        WorkloadError::Foreign { .. } => Some(Reason::SecretConflict),
        WorkloadError::Api(_) | WorkloadError::Management(_) => None,
    }
}

async fn say<S>(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    said: &Decision<S>,
    secret: Option<&str>,
    token: Option<Token>,
) -> Result<Outcome, ReconcileError> {
    let next = lifecycle::report::bootstrap(object, &said.conditions, secret, token, ctx.now());
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(said.look_again))
}
