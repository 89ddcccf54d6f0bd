//! The status of a WindowsNodePool.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::situation::{Failures, Goal, Member};
use super::decide::step::{PoolStep, Why};
use super::decide::template::Template;
use crate::api::condition::Desired;
use crate::api::machine::{MachineInitialization, TemplateNodeInfo};
use crate::api::pool::{POOL_LABEL, WindowsNodePool, WindowsNodePoolStatus};
use crate::domain::conditions::carry_over;

/// The kind for which Cluster API creates a Machine.
const MACHINE_KIND: &str = "WindowsMachine";

/// The failures of this template that the status remembers.
pub fn failures(status: Option<&WindowsNodePoolStatus>, hash: &str, members: &[Member]) -> Failures {
    let Some(status) = status.filter(|s| s.template_hash.as_deref() == Some(hash)) else { return Failures::default() };
    let last = status.last_failure_at.as_ref().map(|t| t.0);
    let overcome = members.iter().any(|m| m.up_to_date && m.is_ready() && last.is_none_or(|last| m.created > last));
    match status.failures {
        Some(count) if !overcome => Failures { count: usize::try_from(count).unwrap_or_default(), last },
        _ => Failures::default(),
    }
}

/// The facts about a pool whose machines were observed.
pub struct Served<'a> {
    pub goal: &'a Goal,
    pub members: &'a [Member],
    pub template: &'a Template,
    /// The capacity of a machine, as quantities.
    pub capacity: BTreeMap<String, String>,
    pub failures: Failures,
    /// The step that was taken.
    pub step: &'a PoolStep,
}

/// The next status of a WindowsNodePool. `served` is set once its template is known.
pub fn status(object: &WindowsNodePool, said: &[Desired], served: Option<&Served<'_>>, now: Timestamp) -> WindowsNodePoolStatus {
    let mut status = object.status.clone().unwrap_or_default();
    (status.conditions, status.observed_generation) =
        carry_over(&status.conditions, status.observed_generation, said, object.metadata.generation, now);
    let Some(served) = served else { return status };
    let live = || served.members.iter().filter(|m| !m.is_leaving());
    let count = |n: usize| Some(i32::try_from(n).unwrap_or(i32::MAX));
    status.infrastructure_machine_kind = Some(MACHINE_KIND.into());
    // `docs/design/cluster-api.md#pool-readiness`: never reset, or Cluster API stops following the pool.
    status.initialization = Some(MachineInitialization { provisioned: Some(true) });
    status.ready = Some(true);
    status.desired_replicas = count(served.goal.replicas);
    status.replicas = count(live().count());
    status.ready_replicas = count(live().filter(|m| m.is_ready()).count());
    status.available_replicas = count(live().filter(|m| m.is_available(served.goal.min_ready, now)).count());
    status.up_to_date_replicas = count(live().filter(|m| m.up_to_date).count());
    status.selector = Some(format!("{POOL_LABEL}={}", crate::api::capi::label_value(object.metadata.name.as_deref().unwrap_or_default())));
    status.template_hash = Some(served.template.hash());
    let failures = after(served, now);
    status.failures = (failures.count > 0).then(|| i32::try_from(failures.count).unwrap_or(i32::MAX));
    status.last_failure_at = failures.last.map(Time);
    status.version = served.template.version.clone();
    status.capacity = served.capacity.clone();
    status.node_info = Some(TemplateNodeInfo { architecture: "amd64".into(), operating_system: "windows".into() });
    status
}

/// The failures after the step: machines that never became Ready and are replaced count against their template.
fn after(served: &Served<'_>, now: Timestamp) -> Failures {
    let PoolStep::Remove { names, why: Why::Failed } = served.step else { return served.failures };
    let more = served.members.iter().filter(|m| m.failed_to_start() && names.contains(&m.name)).count();
    if more == 0 {
        return served.failures;
    }
    // Whole seconds, as they are stored.
    Failures { count: served.failures.count.saturating_add(more), last: Timestamp::from_second(now.as_second()).ok() }
}
