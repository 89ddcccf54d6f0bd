//! Our VMs that no WindowsMachine claims: reported, and removed if the WindowsHypervisor requires that.

use kube::ResourceExt;

use super::context::Context;
use super::decide::orphans::{Orphan, claimed, is_orphan, orphans};
use crate::api::condition::{self, ConditionType, Desired};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::kube_api::cluster::Listed;
use crate::kube_api::error::ApiError;
use crate::vm::{Journal, MachineKey, Observed, StopMode};

/// Handles orphans and returns the condition to report. The API server is queried for the machines only before something new is reported or
/// removed, because the cache may be behind, and holds only machines that the watch filter selects.
pub async fn look_after(ctx: &Context, object: &WindowsHypervisor, found: &[Orphan]) -> Result<Option<Desired>, ApiError> {
    let (now, namespace) = (ctx.management.now(), object.namespace().unwrap_or_default());
    let mut found: Vec<Orphan> = found.iter().filter(|orphan| orphan.is_to_be_reported(now)).cloned().collect();
    let said = orphans(object, &found, &ctx.caches.windows_machines.unreadable(&namespace));
    let is_removing = found.iter().any(|orphan| orphan.is_to_be_removed(object, now));
    if found.is_empty() || (!is_removing && is_said(object, said.as_ref())) {
        return Ok(said);
    }
    let Listed { items: machines, unreadable } = ctx.management.cluster.list::<WindowsMachine>(&namespace, None).await?;
    let claimed = claimed(machines.iter(), &unreadable);
    let (left, not_left): (Vec<_>, Vec<_>) = found.into_iter().partition(|orphan| is_orphan(&orphan.key, &namespace, &claimed));
    found = left;
    for orphan in not_left {
        ctx.hypervisors.inventories.is_claimed(&ObjectKey::of(&object.metadata), orphan.key.vm, now);
    }
    // After a move or a restore, any of these VMs may belong to a machine that cannot be read.
    for orphan in found.iter().filter(|orphan| unreadable.is_empty() && orphan.is_to_be_removed(object, now)) {
        remove(ctx, object, &orphan.key).await;
    }
    Ok(orphans(object, &found, &unreadable))
}

fn is_said(object: &WindowsHypervisor, said: Option<&Desired>) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::VirtualMachinesOwned).map(|c| c.message.as_str()) == said.map(|said| said.message.as_str())
}

/// Sends one call that removes the VM or brings it closer to removal. The next listing shows what is left to do.
async fn remove(ctx: &Context, object: &WindowsHypervisor, key: &MachineKey) {
    let Some(driver) = ctx.hypervisors.drivers.connected(&ObjectKey::of(&object.metadata)) else { return };
    let removed = async {
        let observed = driver.observe(key, &Journal::new()).await?;
        match observed {
            Observed::Present(_) => driver.retire(key, StopMode::Graceful, &Journal::new(), &observed).await.map(drop),
            Observed::Absent | Observed::Foreign { .. } => Ok(()),
        }
    };
    match removed.await {
        Ok(()) => tracing::warn!(vm = %key.vm, name = key.name, "no WindowsMachine asks for this VM: it is being removed"),
        Err(error) => tracing::warn!(vm = %key.vm, name = key.name, %error, "no WindowsMachine asks for this VM, and it cannot be removed"),
    }
}
