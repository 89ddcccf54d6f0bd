//! Empties the Node of a machine that stands alone, one step at each pass. The decisions are in [`lifecycle::drain`].

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::Context;
use crate::api::condition::Reason;
use crate::api::machine::WindowsMachine;
use crate::cluster::drain::Evicted;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::lifecycle::Decision;
use crate::lifecycle::drain::{self, EXCLUDE_ANNOTATION, Limits, Situation, Step, Victim, conditions, decide};

/// Evictions at the same time.
const AT_ONCE: usize = 8;

/// One step. `None`: the Node may go.
pub async fn drain(ctx: &Context, object: &WindowsMachine, workload: &Workload, node: &Node) -> Result<Option<Decision<()>>, WorkloadError> {
    let now = ctx.now();
    let pods;
    let mut s = Situation { node, pods: None, since: since(object, now), limits: limits(ctx, object), excluded: is_excluded(object) };
    let mut plan = decide(&s, now);
    if plan.step == Step::List {
        pods = workload.pods_on(&node.name_any()).await?;
        s.pods = Some(&pods);
        plan = decide(&s, now);
    }
    let mut refused = BTreeMap::new();
    match &plan.step {
        Step::Done => return Ok(None),
        Step::GiveUp => {
            give_up(ctx, object, &s).await;
            return Ok(None);
        }
        Step::Cordon => workload.cordon(node).await?,
        Step::Evict { pods, grace } => refused = evict(workload, pods, *grace).await?,
        Step::Force(pods) => force(workload, pods).await?,
        Step::Wait | Step::List => {}
    }
    let said = if plan.left.is_empty() { Vec::new() } else { conditions(&s, &plan.left, &refused).into() };
    Ok(Some(Decision { step: (), conditions: said, look_again: Some(plan.look_again) }))
}

/// Whether nobody waits any longer: then the machine goes even if its Node cannot be reached.
pub fn is_over(ctx: &Context, object: &WindowsMachine) -> bool {
    let now = ctx.now();
    let spent = now.duration_since(since(object, now));
    is_excluded(object) || limits(ctx, object).whole.is_some_and(|whole| spent.unsigned_abs() >= whole)
}

fn limits(ctx: &Context, object: &WindowsMachine) -> Limits {
    Limits::of(&ctx.pool_of(object).map(|pool| pool.spec.drain.clone()).unwrap_or_default())
}

fn is_excluded(object: &WindowsMachine) -> bool {
    object.annotations().contains_key(EXCLUDE_ANNOTATION)
}

fn since(object: &WindowsMachine, now: Timestamp) -> Timestamp {
    object.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0)
}

/// Asks all of them; what the API server said of those that it did not let go. The first error that is not about a pod ends it.
async fn evict(workload: &Workload, pods: &[Victim], grace: Option<u32>) -> Result<BTreeMap<Victim, String>, WorkloadError> {
    let mut calls = Vec::new();
    for pod in pods {
        calls.push(async move { Ok((pod, workload.evict(&pod.namespace, &pod.name, &pod.uid, grace).await?)) });
    }
    let answers: Vec<Result<(&Victim, Evicted), WorkloadError>> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    let mut refused = BTreeMap::new();
    for answer in answers {
        if let (pod, Evicted::Refused(why)) = answer? {
            refused.insert(pod.clone(), why);
        }
    }
    Ok(refused)
}

async fn force(workload: &Workload, pods: &[Victim]) -> Result<(), WorkloadError> {
    for pod in pods {
        workload.delete_pod_by_force(&pod.namespace, &pod.name, &pod.uid).await?;
        tracing::warn!(%pod, "hung in termination: deleted by force");
    }
    Ok(())
}

async fn give_up(ctx: &Context, object: &WindowsMachine, s: &Situation<'_>) {
    let words = drain::given_up(s);
    if s.excluded {
        tracing::info!("{words}");
    } else {
        tracing::warn!("{words}");
        ctx.events.warning(object, Reason::DrainGivenUp, "Drain", &words).await;
    }
}
