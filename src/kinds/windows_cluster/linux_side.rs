//! The Linux side of a workload cluster: its pod network. It is read, watched, and changed where the WindowsCluster requires that.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use serde_json::Value;

use super::context::Context;
use super::decide::network::{NetworkReport, RECHECK, RECHECK_SOON, progress, report, unread};
use super::decide::windows_side::taint_not_removed;
use super::windows_side::{self, Brought};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::api::components::{Components, ComponentsMode, ComponentsStatus, LinuxSideMode};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::listing::Listing;
use crate::components::{FIRST, LinuxSide, Step, Write, judge, misplaced, next_step, read, wanted};
use crate::domain::owner::TargetCluster;
use crate::engine::linux_sides;
use crate::engine::workload_clusters::{WorkloadClusters, fault};
use crate::kube_api::error::{ApiError, Retry};
use crate::kube_api::linux_side::Watched;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The delay after a write conflict: by then, the watches show what another client has written.
const CONFLICT: Duration = Duration::from_secs(1);

/// The report about the Linux side, and when to check it again.
pub struct Seen {
    /// `None` if it could not be read.
    pub status: Option<ComponentsStatus>,
    pub conditions: Vec<Desired>,
    pub requeue_after: Duration,
}

/// The objects that were read, and what to watch for changes.
struct Observed {
    objects: Vec<Value>,
    side: LinuxSide,
    watched: Vec<Watched>,
    /// Why the objects that CAPW brings could not be read, in the mode that only reports.
    unknown: Option<WorkloadError>,
}

/// Reads the Linux side, takes the next step of its change, and brings to Windows nodes what they need, as far as `components` requires it. Fails
/// while an answer is pending.
pub async fn reconcile(ctx: &Context, object: &WindowsCluster, cluster: &TargetCluster, components: &Components) -> Result<Seen, WorkloadError> {
    if !cluster.control_plane_initialized {
        let (condition, requeue_after) =
            unread(Reason::WaitingForControlPlaneInitialized, "the control plane of the Cluster is not initialized yet".into());
        return Ok(Seen { status: None, conditions: vec![condition], requeue_after });
    }
    let name = &cluster.cluster;
    let looked = async {
        let workload = ctx.clusters.get(name).await?;
        let reader = Reader { clusters: &ctx.clusters, cluster: name, workload: &workload };
        let Observed { objects, side, watched, unknown } = observe(&reader, object, components).await?;
        ctx.clusters.watch_linux_side(name, &workload, &linux_sides::LinuxSide { object: ObjectRef::from_obj(object), watched });
        Ok::<_, WorkloadError>((workload, objects, side, unknown))
    };
    let (workload, objects, side, unknown) = match looked.await {
        Ok(looked) => looked,
        Err(error) if error.is_pending() => return Err(error),
        Err(error) => {
            ctx.clusters.note_error(name, &error).await;
            tracing::warn!(error = error.label(), "the pod network cannot be read: {error}");
            // A fault that passes automatically is not reported.
            let conditions = fault(&error).map(|fault| unread(fault.reason(), error.to_string()).0).into_iter().collect();
            return Ok(Seen { status: None, conditions, requeue_after: again(&error) });
        }
    };
    let found = judge(&side);
    let NetworkReport { mut status, condition, scheduling } = report(&side, &found, &misplaced(&objects));
    (status.parts, status.objects) = (object.parts().to_vec(), object.objects().to_vec());
    let mut seen = Seen { status: Some(status), conditions: vec![condition, scheduling], requeue_after: RECHECK };
    if components.linux_side == LinuxSideMode::Change {
        let step = next_step(&objects, &side, &found);
        let (condition, requeue_after) = progress(&step);
        let (said, requeue_after) = match act(&workload, &step).await {
            Ok(()) => (Some(condition), requeue_after),
            Err(error) => {
                ctx.clusters.note_error(name, &error).await;
                (refused(ConditionType::LinuxSideReady, Reason::ChangeNeeded, &error), again(&error))
            }
        };
        seen.conditions.extend(said);
        seen.requeue_after = requeue_after;
    }
    if components.mode == ComponentsMode::Auto {
        match windows_side::bring(ctx, &workload, &objects, &side, object, cluster).await {
            Ok(brought) => {
                let status = seen.status.get_or_insert_default();
                (status.parts, status.objects, status.verified) = (brought.parts, brought.objects, brought.verified);
                seen.conditions.push(brought.condition);
                seen.requeue_after = seen.requeue_after.min(brought.requeue_after);
            }
            Err(error) => {
                ctx.clusters.note_error(name, &error).await;
                seen.conditions.extend(refused(ConditionType::ComponentsReady, Reason::NotDeployed, &error));
                seen.requeue_after = again(&error);
            }
        }
    } else {
        let planned = match unknown {
            Some(error) => Err(error),
            None => windows_side::planned(ctx, &workload, &objects, &side, object, cluster).await,
        };
        let status = seen.status.get_or_insert_default();
        match planned {
            Ok(planned) => status.planned = planned,
            Err(error) if error.is_lasting() => status.planned = vec![unplanned(&error)],
            // The last known plan stays.
            Err(error) => {
                ctx.clusters.note_error(name, &error).await;
                status.planned = object.planned().to_vec();
                seen.requeue_after = RECHECK_SOON;
            }
        }
        seen.conditions.extend(taint_not_removed(&side.nodes));
    }
    Ok(seen)
}

/// Stops the watches of the cluster, and removes what CAPW brought there. Returns what is left, or `None`. Fails while an answer is pending.
pub async fn teardown(ctx: &Context, object: &WindowsCluster, cluster: &TargetCluster) -> Result<Option<Seen>, WorkloadError> {
    ctx.clusters.linux_sides().forget(&cluster.cluster);
    let left = windows_side::teardown(ctx, object, cluster).await?;
    Ok(left.map(|Brought { parts, objects, condition, requeue_after, .. }| {
        let status = ComponentsStatus { parts, objects, ..ComponentsStatus::default() };
        Seen { status: Some(status), conditions: vec![condition], requeue_after }
    }))
}

/// Reads a cluster for one pass.
struct Reader<'a> {
    clusters: &'a WorkloadClusters,
    cluster: &'a ClusterRef,
    workload: &'a Workload,
}

/// Objects that CAPW brings are read only if they are requested: a user who disables a policy need not grant its rights. With `mode: Report`, a
/// user need not grant these rights either.
async fn observe(reader: &Reader<'_>, object: &WindowsCluster, asked: &Components) -> Result<Observed, WorkloadError> {
    let (mut objects, mut watched) = (Vec::new(), Vec::new());
    reader.read(kinds(&FIRST), &mut objects, &mut watched).await?;
    let wanted = wanted(&objects);
    let maps = wanted.config_maps.into_iter().map(|map| Watched::ConfigMap { namespace: map.namespace.unwrap_or_default(), name: map.name });
    reader.read(kinds(&wanted.lists).chain(maps), &mut objects, &mut watched).await?;
    let side = read(&objects);
    let brought = windows_side::kinds(&side, asked, object.objects());
    let unknown = match reader.read(kinds(&brought), &mut objects, &mut watched).await {
        Err(error) if asked.mode == ComponentsMode::Report && error.is_lasting() => Some(error),
        read => read.map(|()| None)?,
    };
    Ok(Observed { objects, side, watched, unknown })
}

fn kinds(listings: &[Listing]) -> impl Iterator<Item = Watched> {
    listings.iter().copied().map(Watched::Kind)
}

impl Reader<'_> {
    async fn read(&self, what: impl Iterator<Item = Watched>, objects: &mut Vec<Value>, watched: &mut Vec<Watched>) -> Result<(), WorkloadError> {
        for what in what {
            objects.extend(self.clusters.observe(self.cluster, self.workload, &what).await?.unwrap_or_default());
            watched.push(what);
        }
        Ok(())
    }
}

/// Takes one step of a change.
async fn act(workload: &Workload, step: &Step) -> Result<(), WorkloadError> {
    let Step::Write(Write { kind, object, patch, is_new, what }) = step else { return Ok(()) };
    let (namespace, name) = (object.namespace.as_deref(), object.name.as_str());
    match is_new {
        true => workload.make_object(kind, namespace, name, patch).await?,
        false => workload.patch_object(kind, namespace, name, patch).await?,
    }
    tracing::info!(endpoint = workload.server, "{what}");
    Ok(())
}

/// The line that is reported if the existing objects are unknown.
fn unplanned(error: &WorkloadError) -> String {
    fault(error).map_or_else(|| error.to_string(), |fault| format!("{}: {error}", fault.reason()))
}

/// The condition for a failed request, with the reason `invalid` if the API server rejects the object; `None`: the next pass tries again.
fn refused(type_: ConditionType, invalid: Reason, error: &WorkloadError) -> Option<Desired> {
    let reason = match (fault(error), error) {
        (Some(fault), _) => fault.reason(),
        (None, WorkloadError::Api(ApiError::Invalid(_))) => invalid,
        (None, _) => return None,
    };
    Some(Desired::no(type_, reason, error.to_string()))
}

/// When a failed request is retried: soon after a conflicting write, which the next pass reads, so that no new node keeps its taint longer
/// than necessary; and not before the time that a busy server requires.
fn again(error: &WorkloadError) -> Duration {
    match error.retry() {
        Retry::Soon => CONFLICT,
        Retry::Backoff | Retry::OnChange => RECHECK_SOON.max(error.not_before()),
    }
}

#[cfg(test)]
mod tests;
