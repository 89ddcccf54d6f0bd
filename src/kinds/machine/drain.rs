//! Drains the Node of a machine of a standalone pool, one step per pass. The decisions are in [`crate::domain::node::drain`].

use std::collections::{BTreeMap, HashMap};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::context::Context;
use crate::api::condition::Reason;
use crate::api::machine::WindowsMachine;
use crate::domain::decision::Decision;
use crate::domain::identity::vm_uuid;
use crate::domain::node::drain::{self, DrainStep, Limits, ObservedNode, Victim, decide, is_excluded, since};
use crate::kube_api::drain::Evicted;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The most evictions at the same time.
const AT_ONCE: usize = 8;

/// Takes one step. `None` if the Node may be deleted.
pub async fn drain(ctx: &Context, object: &WindowsMachine, workload: &Workload, node: &Node) -> Result<Option<Decision<()>>, WorkloadError> {
    let now = ctx.management.now();
    let none = HashMap::new();
    let (pods, endings);
    let mut s =
        ObservedNode { node, pods: None, endings: &none, since: since(object, now), limits: limits(ctx, object), excluded: is_excluded(object) };
    let mut plan = decide(&s, now);
    if plan.step == DrainStep::List {
        pods = workload.pods_on(&node.name_any()).await?;
        endings = ctx.endings.note(vm_uuid(object), &pods, now);
        s.pods = Some(&pods);
        s.endings = &endings;
        plan = decide(&s, now);
    }
    let mut refused = BTreeMap::new();
    match &plan.step {
        DrainStep::Done => return Ok(None),
        DrainStep::GiveUp => {
            give_up(ctx, object, &s).await;
            return Ok(None);
        }
        DrainStep::Cordon => workload.cordon(node).await?,
        DrainStep::Evict { pods, grace } => refused = evict(workload, pods, *grace).await?,
        DrainStep::Force(pods) => force(workload, pods).await?,
        DrainStep::Wait | DrainStep::List => {}
    }
    let conditions = if plan.left.is_empty() { Vec::new() } else { drain::conditions(&s, &plan.left, &refused).into() };
    Ok(Some(Decision { step: (), conditions, requeue_after: Some(plan.requeue_after) }))
}

/// Whether the time for the drain has passed: the machine is then deleted even if its Node cannot be reached.
pub fn is_over(ctx: &Context, object: &WindowsMachine) -> bool {
    drain::is_over(object, &limits(ctx, object), ctx.management.now())
}

fn limits(ctx: &Context, object: &WindowsMachine) -> Limits {
    Limits::of(&ctx.caches.pool_of(object).map(|pool| pool.spec.drain.clone()).unwrap_or_default())
}

/// Evicts the pods. Returns the API server's answers for pods whose eviction it refused. The first other error ends the evictions.
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
        tracing::warn!(%pod, "stuck in termination: deleted by force");
    }
    Ok(())
}

async fn give_up(ctx: &Context, object: &WindowsMachine, s: &ObservedNode<'_>) {
    let text = drain::given_up(s);
    if s.excluded {
        tracing::info!("{text}");
    } else {
        tracing::warn!("{text}");
        ctx.management.events.warning(object, Reason::DrainTimedOut, "Drain", &text).await;
    }
}
