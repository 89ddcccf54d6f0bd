//! Reports the state of the objects that machines belong to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use super::entry::{Entry, State, Trouble};
use super::machine::machine;
use super::objects::Objects;
use super::troubles;
use crate::api::capi::{self, Cluster, GROUP, MachineDeployment, SCALING_UP};
use crate::api::cluster::WindowsCluster;
use crate::api::components::{ComponentFinding, ComponentsStatus};
use crate::api::condition::{self, Blame, Reason};
use crate::api::control_plane::ExternalControlPlane;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::api::pool::WindowsNodePool;
use crate::cli::output::plain;
use crate::components::is_warning;
use crate::domain::age::seconds;
use crate::domain::identity::chosen;
use crate::kinds::machine::decide::phase::Phase;

pub(super) const CLUSTER: &str = "WindowsCluster";
pub(super) const CONTROL_PLANE: &str = "ExternalControlPlane";
pub(super) const HYPERVISOR: &str = "WindowsHypervisor";
pub(super) const TEMPLATE: &str = "WindowsMachineTemplate";

/// The relevant facts about a Cluster, if it can be read.
pub(super) fn facts_of_cluster(cluster: Option<&Cluster>) -> Vec<String> {
    let Some(cluster) = cluster else { return Vec::new() };
    let paused = cluster.is_paused().then(|| "paused".to_owned());
    let begins = (!cluster.control_plane_initialized()).then(|| "its control plane is not initialized yet".to_owned());
    paused.into_iter().chain(begins).collect()
}

pub(super) fn control_plane(object: &ExternalControlPlane, now: Timestamp) -> Entry {
    let status = object.status.as_ref();
    let version = status.and_then(|status| status.version.clone());
    let troubles = status.map(|status| troubles::of(&status.conditions, now)).unwrap_or_default();
    Entry::new(CONTROL_PLANE, ObjectKey::of(&object.metadata), version.into_iter().collect(), troubles, Vec::new())
}

pub(super) fn windows_cluster(objects: &Objects, object: &WindowsCluster, now: Timestamp) -> Entry {
    let status = object.status.clone().unwrap_or_default();
    let known = status.components.unwrap_or_default();
    let mut said = troubles::of(&status.conditions, now);
    // The hypervisors report this themselves.
    said.retain(|trouble| trouble.reason != Reason::HypervisorUnreachable.as_str() || objects.hypervisors.is_empty());
    // The condition is the sum of these findings.
    said.retain(|trouble| !known.findings.iter().any(|finding| finding.reason == trouble.reason));
    let findings = known.findings.iter().map(|finding| {
        let condition = Reason::from_name(&finding.reason).and_then(Reason::condition).and_then(|type_| condition::find(&status.conditions, type_));
        finding_trouble(finding, condition.map(|condition| seconds(condition.last_transition_time.0, now)))
    });
    let troubles = findings.chain(said.into_iter().map(late)).collect();
    Entry::new(CLUSTER, ObjectKey::of(&object.metadata), facts_of_components(&known), troubles, Vec::new())
}

fn facts_of_components(known: &ComponentsStatus) -> Vec<String> {
    let network = known.network.as_ref().map(|network| format!("network {}", network.name));
    let ready = known.parts.iter().filter(|part| part.ready >= part.desired).count();
    let parts = (!known.parts.is_empty()).then(|| format!("{ready} of {} components ready", known.parts.len()));
    let verified = known.verified.as_ref().map(|verified| format!("{} Windows nodes verified", verified.replace('/', " of ")));
    [network, parts, verified].into_iter().flatten().collect()
}

fn finding_trouble(finding: &ComponentFinding, seconds: Option<i64>) -> Trouble {
    let warns = Reason::from_name(&finding.reason).is_some_and(is_warning);
    Trouble {
        state: if warns { State::Well } else { State::Hangs },
        reason: finding.reason.clone(),
        message: format!("{}, {}: {}", finding.object, finding.field, finding.message),
        remedy: Some(finding.remedy.clone()),
        command: finding.command.clone(),
        seconds,
    }
}

/// A trouble that lasts longer than the creation of a VM does not resolve automatically.
fn late(trouble: Trouble) -> Trouble {
    let is_late = trouble.seconds.is_some_and(|seconds| seconds > Phase::Provisioning.limit().as_secs());
    Trouble { state: if is_late { State::Hangs } else { trouble.state }, ..trouble }
}

/// The hypervisors that the machines of a cluster or pool use or may use.
pub(super) fn hypervisors(
    objects: &Objects,
    namespace: &str,
    cluster: Option<&WindowsCluster>,
    machines: &[&WindowsMachine],
    now: Timestamp,
) -> Vec<Entry> {
    let domains = cluster.and_then(|cluster| cluster.status.as_ref()).into_iter().flat_map(|status| &status.failure_domains);
    let mut used: BTreeMap<String, usize> = domains.map(|domain| (domain.name.clone(), 0)).collect();
    for name in machines.iter().filter_map(|machine| chosen(machine)) {
        *used.entry(name).or_default() += 1;
    }
    let found = objects.hypervisors.iter().filter(|hypervisor| hypervisor.namespace().as_deref() == Some(namespace));
    found.filter_map(|object| Some(hypervisor(object, *used.get(&object.name_any())?, now))).collect()
}

/// Reports a hypervisor. `machines` is the number of machines on it.
pub(super) fn hypervisor(object: &WindowsHypervisor, machines: usize, now: Timestamp) -> Entry {
    let driver = object.spec.driver().map(str::to_owned);
    let count = if machines == 1 { "1 machine".to_owned() } else { format!("{machines} machines") };
    let troubles = object.status.as_ref().map(|status| troubles::of(&status.conditions, now)).unwrap_or_default();
    Entry::new(HYPERVISOR, ObjectKey::of(&object.metadata), driver.into_iter().chain([count]).collect(), troubles, Vec::new())
}

/// Returns the number of ready machines, and the entries of the others.
fn members<'a>(objects: &Objects, machines: impl Iterator<Item = &'a WindowsMachine>, now: Timestamp) -> (usize, Vec<Entry>) {
    let all: Vec<Option<Entry>> = machines.map(|object| machine(objects, object, now)).collect();
    (all.iter().filter(|entry| entry.is_none()).count(), all.into_iter().flatten().collect())
}

fn ready_of(ready: usize, all: impl std::fmt::Display) -> String {
    format!("{ready} of {all} ready")
}

pub(super) fn deployment<'a>(
    objects: &Objects,
    object: &MachineDeployment,
    machines: impl Iterator<Item = &'a WindowsMachine>,
    now: Timestamp,
) -> Entry {
    let key = ObjectKey::of(&object.metadata);
    let template = ObjectKey::new(&key.namespace, &object.spec.template.spec.infrastructure_ref.name);
    let (ready, entries) = members(objects, machines, now);
    let facts = vec![format!("{TEMPLATE} {}", template.name), ready_of(ready, object.spec.replicas.unwrap_or(1))];
    let is_missing = objects.templates.as_ref().is_some_and(|all| !all.iter().any(|one| ObjectKey::of(&one.metadata) == template));
    let missing = is_missing.then(|| Trouble {
        state: State::Hangs,
        reason: Reason::TemplateMissing.to_string(),
        message: format!("spec.template.spec.infrastructureRef.name: there is no {TEMPLATE} {} in this namespace", template.name),
        remedy: Some(plain(Reason::TemplateMissing.remedy())),
        ..Trouble::default()
    });
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let scaling = condition::find(conditions, SCALING_UP).filter(|scaling| scaling.status == "True");
    let scaling = scaling.map(|scaling| late(troubles::trouble(scaling, State::UnderWay, now)));
    Entry::new("MachineDeployment", key, facts, missing.into_iter().chain(scaling).collect(), entries)
}

/// Reports a pool. `around` are the objects that are shown before its machines.
pub(super) fn pool<'a>(
    objects: &Objects,
    object: &WindowsNodePool,
    machines: impl Iterator<Item = &'a WindowsMachine>,
    around: Vec<Entry>,
    now: Timestamp,
) -> Entry {
    let (ready, entries) = members(objects, machines, now);
    let status = object.status.clone().unwrap_or_default();
    // The controller's count includes its view of the Nodes.
    let ready = status.ready_replicas.and_then(|count| usize::try_from(count).ok()).unwrap_or(ready);
    let owner = capi::owner(object.metadata.owner_references.as_ref(), GROUP, "MachinePool").map(|owner| format!("MachinePool {}", owner.name));
    let facts = owner.into_iter().chain([ready_of(ready, status.desired_replicas.unwrap_or(object.spec.replicas))]).collect();
    let mut troubles = troubles::of(&status.conditions, now);
    let told = entries.iter().any(|entry| entry.state == State::Hangs);
    troubles.retain(|trouble| !(told && Reason::from_name(&trouble.reason).and_then(Reason::blame) == Some(Blame::Machines)));
    let objects = around.into_iter().chain(entries).collect();
    Entry::new("WindowsNodePool", ObjectKey::of(&object.metadata), facts, troubles, objects)
}

/// Reports machines that neither a MachineDeployment nor a pool created, if any exist.
pub(super) fn others<'a>(objects: &Objects, namespace: &str, machines: impl Iterator<Item = &'a WindowsMachine>, now: Timestamp) -> Option<Entry> {
    let (ready, entries) = members(objects, machines, now);
    let all = ready + entries.len();
    (all > 0).then(|| Entry::new("other WindowsMachines", ObjectKey::new(namespace, ""), vec![ready_of(ready, all)], Vec::new(), entries))
}
