//! Creates the bootstrap data: token, Secret, report. Each part finds what an earlier pass created before a crash.

use jiff::SignedDuration;
use kube::ResourceExt;
use secrecy::{ExposeSecret, SecretString};

use super::context::{Context, report_status, unusable};
use super::decide::outcome::{self, DataProblem};
use super::decide::step::token_id;
use super::facts::{DataError, Sources};
use super::memory::Made;
use super::observe::Found;
use super::report::Token;
use super::token::owner_of;
use super::{data_secret, secret_values};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::Endpoint;
use crate::api::cluster_ref::ClusterRef;
use crate::api::kubernetes_version::minor;
use crate::bootstrap::{self, RenderError};
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::kube_api::workload::{Workload, WorkloadError};
use crate::kube_api::{join_rights, token};

/// A token that is not created yet, and the data that holds it.
struct New {
    /// The secret half of the token.
    secret: SecretString,
    data: bootstrap::Bootstrap,
}

/// Why the data could not be created.
enum Failure {
    Workload(WorkloadError),
    Render(DataError),
    SecretTaken(String),
    Reconcile(ReconcileError),
}

impl From<WorkloadError> for Failure {
    fn from(error: WorkloadError) -> Self {
        Self::Workload(error)
    }
}

pub async fn make(ctx: &Context, object: &WindowsBootstrapConfig, found: &Found, endpoint: &Endpoint) -> Result<Outcome, ReconcileError> {
    let (Some(request), Some(target)) = (found.owner.request(), &found.cluster) else { return Ok(Outcome::done()) };
    // Even a refused write counts as a write. So after a refusal, the conflicting Secret is read first, before anything is tried again.
    if outcome::was_taken(object)
        && let Some(message) = data_secret::taken(ctx, object).await?
    {
        return problem(ctx, object, DataProblem::SecretTaken, message).await;
    }
    let workload = match ctx.clusters.get(&target.cluster).await {
        Ok(workload) => workload,
        Err(error) => return unusable(ctx, object, &error).await,
    };
    let secrets = match secret_values::read(ctx, object).await {
        Ok(secrets) => secrets,
        Err(secret_values::ValueError::Missing(message)) => return problem(ctx, object, DataProblem::ValueMissing, message).await,
        Err(secret_values::ValueError::Api(error)) => return Err(error.into()),
    };
    let windows_machine = found.windows_machine.as_deref();
    let api_server_minor = match workload.minor_for(request.version.as_deref().and_then(minor).unwrap_or_default()).await {
        Ok(minor) => minor,
        Err(error) => {
            ctx.clusters.note_error(&target.cluster, &error).await;
            return unusable(ctx, object, &error).await;
        }
    };
    let sources = Sources { object, request, target, windows_machine, endpoint, workload: &workload, api_server_minor, secrets: &secrets };
    let render = |token| sources.facts(token).and_then(|facts| Ok(bootstrap::render(&facts)?));
    // A spec that cannot be rendered gets no token.
    let secret = (ctx.new_token_secret)();
    let new = match render(whole_token(object, &secret)) {
        Ok(data) => New { secret, data },
        Err(error) => {
            // The size of the data depends slightly on the token, but the message about the same object must stay the same.
            let error = render(whole_token(object, &"0".repeat(16).into())).err().unwrap_or(error);
            return unrenderable(ctx, object, &error).await;
        }
    };
    match make_in(ctx, object, &target.cluster, &workload, new, render).await {
        Ok(outcome) => Ok(outcome),
        Err(Failure::Workload(error)) => {
            ctx.clusters.note_error(&target.cluster, &error).await;
            unusable(ctx, object, &error).await
        }
        Err(Failure::Render(error)) => unrenderable(ctx, object, &error).await,
        Err(Failure::SecretTaken(message)) => problem(ctx, object, DataProblem::SecretTaken, message).await,
        Err(Failure::Reconcile(error)) => Err(error),
    }
}

async fn make_in(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    cluster: &ClusterRef,
    workload: &Workload,
    new: New,
    render: impl Fn(SecretString) -> Result<bootstrap::Bootstrap, DataError>,
) -> Result<Outcome, Failure> {
    ctx.clusters.ensure_join_rights(cluster, workload)?;
    if object.spec.kube_proxy.is_some() {
        join_rights::ensure_proxy(workload).await?;
    }
    ctx.clusters.watch_certificates(cluster, workload);
    let uid = object.uid().unwrap_or_default();
    let made = match ctx.unreported.take(&uid) {
        Some(made) => made,
        None => make_token_and_secret(ctx, object, cluster, workload, new, render).await?,
    };
    let reported = report_status(ctx, object, &outcome::made(made.warnings.clone()), Some(&made.secret), Some(made.token.clone())).await;
    if reported.is_err() {
        ctx.unreported.keep(uid, made);
    }
    reported.map_err(Failure::Reconcile)
}

async fn make_token_and_secret(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    cluster: &ClusterRef,
    workload: &Workload,
    new: New,
    render: impl Fn(SecretString) -> Result<bootstrap::Bootstrap, DataError>,
) -> Result<Made, Failure> {
    let now = ctx.management.now();
    let expires = now.saturating_add(SignedDuration::from_secs(object.spec.join.token_ttl_seconds)).unwrap_or(now);
    let token = token::create(workload, &token_id(object), &new.secret, &owner_of(object), expires).await?;
    ctx.known_tokens.keep(object.uid().unwrap_or_default(), token.uid);
    let whole = whole_token(object, &token.secret);
    let is_new = token.secret.expose_secret() == new.secret.expose_secret();
    // A token that an earlier try created has another secret.
    let data = if is_new { new.data } else { render(whole.clone()).map_err(Failure::Render)? };
    let secret = data_secret::ensure(ctx, object, &data, &whole).await.map_err(|error| match error {
        data_secret::Error::Taken(message) => Failure::SecretTaken(message),
        data_secret::Error::Api(error) => Failure::Reconcile(error.into()),
    })?;
    let warnings = bootstrap::finding::message(&data.warnings);
    let token = Token { id: token.id, created: now, expires: token.expires.unwrap_or(expires), cluster_uid: ctx.clusters.uid(cluster) };
    Ok(Made { secret, token, warnings })
}

/// Both halves of a configuration's token.
fn whole_token(object: &WindowsBootstrapConfig, secret: &SecretString) -> SecretString {
    format!("{}.{}", token_id(object), secret.expose_secret()).into()
}

async fn unrenderable(ctx: &Context, object: &WindowsBootstrapConfig, error: &DataError) -> Result<Outcome, ReconcileError> {
    let kind = match error {
        DataError::Render(RenderError::TooLarge { .. }) => DataProblem::TooLarge,
        DataError::Render(RenderError::Incompatible(_)) => DataProblem::Incompatible,
        DataError::Render(_) | DataError::Facts(_) => DataProblem::InvalidSpec,
    };
    problem(ctx, object, kind, error.to_string()).await
}

async fn problem(ctx: &Context, object: &WindowsBootstrapConfig, problem: DataProblem, message: String) -> Result<Outcome, ReconcileError> {
    report_status(ctx, object, &outcome::not_made(problem, message), None, None).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::bootstrap::paths::JOIN_CONFIG;
    use crate::bootstrap::read::Payload;
    use crate::bootstrap::{BootstrapFacts, sample};
    use crate::engine::caches::Caches;
    use crate::kube_api::mock::{Script, refuse, step};
    use crate::testing::{read, shared};

    /// CAPW crashed after it created the token. The guest joins with the token in its data, and no other one exists.
    #[tokio::test]
    async fn the_data_holds_the_token_that_an_earlier_try_created() {
        const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
        let object: WindowsBootstrapConfig = read(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
            "metadata": {"name": "win-1", "namespace": "lab", "uid": "c"}, "spec": {}}));
        let name = format!("bootstrap-token-{}", token_id(&object));
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let found = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "uid": "t", "resourceVersion": "1",
            "annotations": {"capw.cluster.x-k8s.io/owner": "lab/win-1"}},
            "data": {"token-id": bytes(&token_id(&object)), "token-secret": bytes("before0123456789")}});
        let (client, _asked) =
            Script::new(vec![refuse(&format!("POST {TOKENS}"), 409, "AlreadyExists"), step(&format!("GET {TOKENS}/{name}"), found)]);
        let made = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab"}});
        let (shared, script) = shared(Caches::empty(), 1, vec![step("POST /api/v1/namespaces/lab/secrets", made)]);
        let ctx = shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into()));
        let render = |token: SecretString| Ok::<_, DataError>(bootstrap::render(&BootstrapFacts { token, ..sample::facts() })?);
        let secret = (ctx.new_token_secret)();
        let new = New { data: render(whole_token(&object, &secret)).unwrap(), secret };
        let cluster = ClusterRef::cluster_api("lab", "c1");
        assert!(make_token_and_secret(&ctx, &object, &cluster, &Workload::of(client), new, render).await.is_ok());
        let text = |key: &str| {
            let value: ByteString = read(script.seen()[0].body["data"][key].clone());
            String::from_utf8(value.0).unwrap()
        };
        let token = format!("{}.before0123456789", token_id(&object));
        assert_eq!(text("token"), token);
        let payload = Payload::from_user_data(text("value").as_bytes()).unwrap();
        let join = std::str::from_utf8(payload.file(JOIN_CONFIG).unwrap()).unwrap();
        assert!(join.contains(&token), "{join}");
    }
}
