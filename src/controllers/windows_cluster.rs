//! WindowsCluster: ready at once; says which hypervisors its machines may use (`capi-contract.md` §5.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::Context;
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use crate::api::capi;
use crate::api::cluster::{ClusterInitialization, FailureDomain, WindowsCluster, WindowsClusterStatus};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::lifecycle::machine::Reach;
use crate::lifecycle::{self, paused, paused_condition};

const MANAGER: &str = "capw-windowscluster";

pub async fn reconcile(object: Arc<WindowsCluster>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    let namespace = object.namespace().unwrap_or_default();
    let owner = object.owner_references().iter().find(|o| o.kind == "Cluster" && o.api_version.starts_with(capi::GROUP)).map(|o| o.name.clone());
    let managed_elsewhere = object.annotations().contains_key(capi::MANAGED_BY_ANNOTATION);
    let Some(owner) = owner.filter(|_| !managed_elsewhere && object.metadata.deletion_timestamp.is_none()) else {
        return Ok(Outcome::done());
    };
    let mut next = object.status.clone().unwrap_or_default();
    let cluster = ctx.stores.clusters.get(&namespace, &owner);
    let said = match paused(&object.metadata, cluster.as_deref()) {
        Some(why) => vec![paused_condition(Some(why))],
        None => {
            let (domains, ready) = hypervisors(&object, ctx, &namespace);
            next.initialization = Some(ClusterInitialization { provisioned: Some(true) });
            next.failure_domains = domains;
            vec![ready]
        }
    };
    next.conditions = lifecycle::report::conditions(&next.conditions, &said, object.metadata.generation, ctx.now());
    report::<_, WindowsClusterStatus>(ctx, &*object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

/// The hypervisors that machines of this cluster may use, and what to say of them. A missing one does not make the cluster unready:
/// its nodes work without us.
fn hypervisors(object: &WindowsCluster, ctx: &Context, namespace: &str) -> (Vec<FailureDomain>, Desired) {
    let named: Vec<String> = object.spec.hypervisors.iter().map(|h| h.name.clone()).collect();
    let mut names = if named.is_empty() { ctx.stores.hypervisors.names(namespace) } else { named };
    names.sort();
    let domain = |name: &String| FailureDomain { name: name.clone(), control_plane: Some(false), attributes: BTreeMap::new() };
    let trouble: Vec<String> = names
        .iter()
        .filter_map(|name| match ctx.reach(namespace, name) {
            Reach::Missing => Some(format!("WindowsHypervisor {name} does not exist in this namespace")),
            Reach::Unreachable(_) => Some(format!("WindowsHypervisor {name} is unreachable")),
            Reach::Unchecked | Reach::Reachable => None,
        })
        .collect();
    let note = match (names.is_empty(), trouble.is_empty()) {
        (true, _) => "there is no WindowsHypervisor in this namespace yet: machines will wait for one".to_owned(),
        (false, true) => format!("machines may use: {}", names.join(", ")),
        (false, false) => trouble.join("; "),
    };
    (names.iter().map(domain).collect(), Desired::yes(ConditionType::Ready, Reason::Provisioned).with_message(note))
}
