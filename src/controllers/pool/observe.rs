//! What the caches know of a pool: who owns it, what its machines are made from, and what they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;

use super::Context;
use crate::api::bootstrap_config::{WindowsBootstrapConfig, WindowsBootstrapConfigSpec};
use crate::api::capi::{self, Cluster, GROUP, Machine, MachinePool};
use crate::api::condition::Reason;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec};
use crate::api::pool::{Joins, POOL_LABEL, WindowsNodePool};
use crate::lifecycle::claim::INFRASTRUCTURE;
use crate::lifecycle::machine::{Reach, chosen};
use crate::lifecycle::pool::template::Template;
use crate::lifecycle::pool::{Known, Member, member};

/// Who asks for the machines.
pub enum Owner {
    None,
    Unseen,
    MachinePool(Arc<MachinePool>),
    /// The pool itself, for the cluster that it joins.
    Itself(String),
}

pub fn owner(ctx: &Context, object: &WindowsNodePool) -> Owner {
    if let Some(joins) = Joins::of(object) {
        return Owner::Itself(joins.to_string());
    }
    let Some(reference) = capi::owner(object.metadata.owner_references.as_ref(), GROUP, "MachinePool") else { return Owner::None };
    let found = ctx.stores.machine_pools.get(&object.namespace().unwrap_or_default(), &reference.name);
    found.filter(|p| p.metadata.uid.as_deref() == Some(&reference.uid)).map_or(Owner::Unseen, Owner::MachinePool)
}

pub fn cluster(ctx: &Context, object: &WindowsNodePool) -> Option<Arc<Cluster>> {
    ctx.stores.clusters.get(&object.namespace().unwrap_or_default(), capi::cluster_name(object.metadata.labels.as_ref())?)
}

/// Why there is no template, in the words of a condition.
pub struct Missing {
    pub reason: Reason,
    pub message: String,
}

/// The template with every reference followed.
pub fn template(ctx: &Context, object: &WindowsNodePool, pool: &MachinePool) -> Result<Template, Missing> {
    let bootstrap = bootstrap(ctx, object, pool)?;
    let version = pool.spec.template.spec.version.clone().filter(|v| !v.is_empty()).or_else(|| object.spec.version.clone());
    if bootstrap.is_some() && version.is_none() {
        let message =
            format!("MachinePool {}: spec.template.spec.version is not set; name the Kubernetes version of the nodes, e.g. v1.36.3", pool.name_any());
        return Err(Missing { reason: Reason::InvalidSpec, message });
    }
    Ok(Template { machine: machine(ctx, object)?, bootstrap, version })
}

fn missing(field: &str, kind: &str, name: &str) -> Missing {
    Missing { reason: Reason::TemplateMissing, message: format!("{field}: there is no {kind} {name:?} in this namespace") }
}

fn machine(ctx: &Context, object: &WindowsNodePool) -> Result<WindowsMachineSpec, Missing> {
    let template = &object.spec.template;
    match (&template.machine, &template.machine_template_ref) {
        (Some(machine), _) => Ok(machine.clone()),
        (None, Some(reference)) => {
            let found = ctx.stores.machine_templates.get(&object.namespace().unwrap_or_default(), &reference.name);
            let found = found.ok_or_else(|| missing("spec.template.machineTemplateRef.name", "WindowsMachineTemplate", &reference.name))?;
            Ok(found.spec.template.spec.clone())
        }
        // The schema asks for one of the two.
        (None, None) => Err(Missing { reason: Reason::InvalidSpec, message: "spec.template: give machine or machineTemplateRef".into() }),
    }
}

/// How the nodes are made; `None` when somebody else makes the bootstrap data.
fn bootstrap(ctx: &Context, object: &WindowsNodePool, pool: &MachinePool) -> Result<Option<WindowsBootstrapConfigSpec>, Missing> {
    let namespace = object.namespace().unwrap_or_default();
    let template = &object.spec.template;
    if let Some(bootstrap) = &template.bootstrap {
        return Ok(Some(bootstrap.clone()));
    }
    if let Some(reference) = &template.bootstrap_template_ref {
        let found = ctx.stores.config_templates.get(&namespace, &reference.name);
        let found = found.ok_or_else(|| missing("spec.template.bootstrapTemplateRef.name", "WindowsBootstrapConfigTemplate", &reference.name))?;
        return Ok(Some(found.spec.template.spec.clone()));
    }
    if Joins::of(object).is_some() {
        return Ok(Some(WindowsBootstrapConfigSpec::default()));
    }
    let reference = match &pool.spec.template.spec.bootstrap.config_ref {
        Some(reference) if reference.kind == "WindowsBootstrapConfig" => reference,
        Some(reference) if reference.kind == "WindowsBootstrapConfigTemplate" => {
            let message = format!(
                "MachinePool {}: spec.template.spec.bootstrap.configRef.kind is {:?}, which is for MachineDeployments: name a WindowsBootstrapConfig",
                pool.name_any(),
                reference.kind
            );
            return Err(Missing { reason: Reason::InvalidSpec, message });
        }
        _ => return Ok(None),
    };
    let found = ctx.stores.configs.get(&namespace, &reference.name);
    let found = found.ok_or_else(|| {
        let field = format!("MachinePool {}: spec.template.spec.bootstrap.configRef.name", pool.name_any());
        missing(&field, "WindowsBootstrapConfig", &reference.name)
    })?;
    Ok(Some(found.spec.clone()))
}

/// One machine with everything that belongs to it.
pub struct Seen {
    pub object: Arc<WindowsMachine>,
    pub machine: Option<Arc<Machine>>,
    pub config: Option<Arc<WindowsBootstrapConfig>>,
    pub member: Member,
}

/// The machines of the pool, by name.
pub fn machines(ctx: &Context, object: &WindowsNodePool, hash: &str) -> Vec<Seen> {
    let (namespace, uid) = (object.namespace().unwrap_or_default(), object.uid().unwrap_or_default());
    let mut all = ctx.stores.windows_machines.all(&namespace);
    all.retain(|m| is_of(m, &uid));
    let unseen = ctx.pools.unseen(&uid, &all, ctx.now());
    all.extend(unseen.into_iter().map(Arc::new));
    all.sort_by_key(|m| m.name_any());
    let named = if Joins::of(object).is_some() { object.named_for_removal() } else { BTreeSet::new() };
    all.into_iter().map(|m| seen(ctx, object, m, hash, &named)).collect()
}

/// Bootstrap configurations of the pool's machines that are still there.
pub fn configs_left(ctx: &Context, object: &WindowsNodePool) -> usize {
    let label = capi::label_value(&object.name_any());
    ctx.stores.configs.all(&object.namespace().unwrap_or_default()).iter().filter(|c| c.labels().get(POOL_LABEL) == Some(&label)).count()
}

fn is_of(object: &WindowsMachine, pool: &str) -> bool {
    capi::owner(object.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsNodePool").is_some_and(|o| o.uid == pool)
}

/// `named`: machines that somebody asked to remove by name.
fn seen(ctx: &Context, pool: &WindowsNodePool, object: Arc<WindowsMachine>, hash: &str, named: &BTreeSet<String>) -> Seen {
    let (namespace, uid) = (object.namespace().unwrap_or_default(), pool.uid().unwrap_or_default());
    let alone = Joins::of(pool).is_some();
    let machine = match alone {
        true => ctx.claim(&object).machine().cloned(),
        // Core gives the Machine the name of the WindowsMachine, and makes it before it says so there.
        false => ctx.stores.machines.get(&namespace, &object.name_any()).filter(|m| m.spec.infrastructure_ref.name == object.name_any()),
    };
    let config = ctx.config_of(&object);
    let removed = [object.uid(), machine.as_ref().and_then(|m| m.uid())].into_iter().flatten().any(|one| ctx.pools.is_removed(&uid, &one));
    let reach = chosen(&object).map(|hypervisor| ctx.reach(&namespace, &hypervisor));
    let unreachable = matches!(reach, Some(Reach::Missing | Reach::Unreachable(_)));
    let named = named.contains(&object.name_any());
    let known = Known {
        object: &object,
        machine: machine.as_deref(),
        config: config.as_deref(),
        hash,
        removed,
        unreachable,
        alone,
        named,
        not_ready_seconds: pool.spec.health.not_ready_seconds,
        now: ctx.now(),
    };
    let member = member(&known);
    Seen { object, machine, config, member }
}
