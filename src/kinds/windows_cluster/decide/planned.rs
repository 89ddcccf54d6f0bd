//! The objects that CAPW writes in a workload cluster for its Windows nodes: `mode: Auto` writes them, and `mode: Report` only reports them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::probes::{Probes, probes, unneeded};
use super::windows_side::{Verification, missing, part, tainted, verify};
use crate::api::components::{ComponentPart, Components, UNVERIFIED_TAINT};
use crate::api::condition::Reason;
use crate::components::{
    Changes, Host, LinuxSide, ObjectRef, Parameters, Probe, Refusal, Role, brought_by_another, changes, difference, is_of_kind, outdated, owned,
    windows_pods, windows_side,
};

/// The requested components, and the facts about their cluster.
pub struct Asked<'a> {
    pub side: &'a LinuxSide,
    pub components: Components,
    /// The owner that the objects are marked with.
    pub owner: String,
    /// CAPW's own image, if it is known.
    pub image: Option<String>,
    /// The address at which nodes reach the API server.
    pub api_server: String,
    /// The hosts that the machines of the cluster are or may become.
    pub hosts: BTreeSet<Host>,
    pub now: Timestamp,
}

/// Why the network is not brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hindrance {
    pub reason: Reason,
    pub why: String,
    /// Nodes that lose the taint, because nothing else would remove it.
    pub freed: Vec<String>,
}

impl Hindrance {
    fn of(reason: Reason, why: String) -> Self {
        Self { reason, why, freed: Vec::new() }
    }
}

/// The planned writes for the network.
pub struct NetworkPlan<'a> {
    /// Missing and outdated objects, in the order in which they are applied.
    pub outdated: Vec<&'a Value>,
    pub parts: Vec<ComponentPart>,
    pub verification: Verification,
    /// The probes of the nodes whose parts are ready.
    pub probes: Probes<'a>,
}

impl Asked<'_> {
    /// The objects of the network, or why there are none.
    pub fn network(&self) -> Result<Vec<Value>, Hindrance> {
        let Some(image) = self.image.clone() else {
            let why = "CAPW does not know its own image, whose part for Windows the pods run: name it in the variable CAPW_IMAGE of its Deployment";
            return Err(Hindrance::of(Reason::ImageUnknown, why.into()));
        };
        let parameters = Parameters { image, api_server: self.api_server.clone(), pull_secrets: self.components.images.pull_secret_names() };
        let objects = windows_side(self.side, &parameters).map_err(|refusal| self.hindrance(&refusal))?;
        Ok(owned(objects, &self.owner))
    }

    fn hindrance(&self, refusal: &Refusal) -> Hindrance {
        let hindrance = Hindrance::of(Reason::NotDeployed, refusal.to_string());
        match refusal {
            Refusal::NotOurs { role: Role::Refuse, .. } => {
                let why = format!(
                    "{} New nodes keep the taint {UNVERIFIED_TAINT}, since pods would hang there; set mode to \"Off\" to take it away",
                    hindrance.why
                );
                Hindrance { why, ..hindrance }
            }
            Refusal::NotOurs { .. } | Refusal::KubeProxyRuns(_) => Hindrance { freed: tainted(&self.side.nodes), ..hindrance },
            _ => hindrance,
        }
    }

    /// Plans the writes for the network, from the `desired` and the existing `objects`.
    pub fn of_network<'a>(&self, desired: &'a [Value], objects: &'a [Value]) -> Result<NetworkPlan<'a>, Hindrance> {
        let outdated = outdated(desired, objects, &self.owner).map_err(|taken| Hindrance::of(Reason::NameTaken, taken.to_string()))?;
        let pods: Vec<&Value> = objects.iter().filter(|object| is_of_kind(object, "Pod")).collect();
        let sets = desired.iter().filter(|object| is_of_kind(object, "DaemonSet")).map(|set| ObjectRef::of(set).find(objects).unwrap_or(set));
        let brought = sets.map(|set| part(set, &pods));
        let parts: Vec<ComponentPart> = by_another(objects, self.side, &pods).into_iter().chain(brought).collect();
        let verification = verify(&self.side.nodes, &parts, &pods);
        let probes = self.probes(&verification.tainted, objects);
        Ok(NetworkPlan { outdated, parts, verification, probes })
    }

    /// The probes. Without a probe image, no node is probed.
    fn probes<'a>(&self, tainted: &[String], objects: &'a [Value]) -> Probes<'a> {
        let Some(image) = self.components.probes.image_in_use() else {
            return Probes { passed: tainted.to_vec(), remove: unneeded(objects), ..Probes::default() };
        };
        let probe = Probe::new(image, self.components.images.pull_secret_names(), &self.components.probes, self.side, objects);
        let found = probes(tainted, &self.side.nodes, &probe, objects, self.now);
        Probes { make: owned(found.make, &self.owner), ..found }
    }

    /// The objects for pods.
    pub fn for_pods(&self) -> Vec<Value> {
        owned(windows_pods(&self.hosts, &self.components.policies), &self.owner)
    }

    /// All requested objects.
    pub fn desired(&self) -> Vec<Value> {
        [self.network().unwrap_or_default(), self.for_pods()].concat()
    }

    /// All writes that are due now, and why there are no more, one per line.
    pub fn said(&self, objects: &[Value]) -> Vec<String> {
        let desired = self.network();
        let plan = desired.as_ref().map_err(Clone::clone).and_then(|desired| self.of_network(desired, objects));
        let for_pods = self.for_pods();
        let changes = changes(&for_pods, objects, &self.owner);
        let of_network = match &plan {
            Ok(plan) => plan.outdated.iter().map(|desired| applied(desired, objects)).collect(),
            Err(Hindrance { reason, why, .. }) => vec![format!("{reason}: {why}")],
        };
        let of_nodes = match &plan {
            Ok(NetworkPlan { probes, .. }) => tried(probes, objects),
            Err(Hindrance { freed, .. }) => freed.iter().map(|node| freed_of_taint(node)).collect(),
        };
        [of_network, changed(&changes, objects), of_nodes].concat()
    }
}

/// The network as a part, if another program brings it.
pub fn by_another(objects: &[Value], side: &LinuxSide, pods: &[&Value]) -> Option<ComponentPart> {
    let of = brought_by_another(side)?;
    Some(of.find(objects).map_or_else(|| missing(&of), |set| part(set, pods)))
}

/// `create DaemonSet capw-windows/flannel`, or `change` with the first field that differs.
fn applied(desired: &Value, objects: &[Value]) -> String {
    let of = ObjectRef::of(desired);
    match of.find(objects) {
        None => format!("create {of}"),
        Some(live) => format!("change {of} ({})", difference(live, desired).map(|difference| difference.field).unwrap_or_default()),
    }
}

fn changed(changes: &Changes<'_>, objects: &[Value]) -> Vec<String> {
    let is_replaced = |desired: &Value| changes.replaced.iter().any(|live| ObjectRef::of(live) == ObjectRef::of(desired));
    let written = changes.outdated.iter().map(|desired| match is_replaced(desired) {
        true => format!("replace {}", ObjectRef::of(desired)),
        false => applied(desired, objects),
    });
    let removed = changes.unneeded.iter().map(|object| {
        let once = if is_of_kind(object, "RuntimeClass") { ", once no pod uses it" } else { "" };
        format!("remove {}{once}", ObjectRef::of(object))
    });
    let taken = changes.taken.iter().map(|why| format!("{}: {why}", Reason::NameTaken));
    written.chain(removed).chain(taken).collect()
}

fn tried(probes: &Probes<'_>, objects: &[Value]) -> Vec<String> {
    let freed = probes.passed.iter().map(|node| freed_of_taint(node));
    let removed = probes.remove.iter().map(|pod| format!("remove {}", ObjectRef::of(pod)));
    freed.chain(removed).chain(probes.make.iter().map(|desired| applied(desired, objects))).collect()
}

fn freed_of_taint(node: &str) -> String {
    format!("take the taint {UNVERIFIED_TAINT} from Node {node}")
}
