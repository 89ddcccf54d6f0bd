//! Which objects a change concerns: what each controller is woken by, beside its own kind.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use kube::api::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use super::Context;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster, Machine, MachinePool, Reference};
use crate::api::cluster::WindowsCluster;
use crate::api::condition::{self, ConditionType};
use crate::api::control_plane::ExternalControlPlane;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::pool::{Joins, WindowsNodePool, joins};
use crate::cluster::Kind;
use crate::lifecycle::claim::{INFRASTRUCTURE, machine_pool_of};
use crate::lifecycle::machine::chosen;

type Triggers<K> = Vec<BoxStream<'static, ObjectRef<K>>>;

/// Calls from one controller to another: a VM has changed, a certificate was issued.
pub struct Calls {
    machines: UnboundedSender<ObjectRef<WindowsMachine>>,
    configs: UnboundedSender<ObjectRef<WindowsBootstrapConfig>>,
    pools: UnboundedSender<ObjectRef<WindowsNodePool>>,
}

/// The other ends of [`Calls`].
pub struct Called {
    pub machines: UnboundedReceiver<ObjectRef<WindowsMachine>>,
    pub configs: UnboundedReceiver<ObjectRef<WindowsBootstrapConfig>>,
    pub pools: UnboundedReceiver<ObjectRef<WindowsNodePool>>,
}

impl Calls {
    pub fn new() -> (Self, Called) {
        let (machines, machine_calls) = unbounded();
        let (configs, config_calls) = unbounded();
        let (pools, pool_calls) = unbounded();
        (Self { machines, configs, pools }, Called { machines: machine_calls, configs: config_calls, pools: pool_calls })
    }

    // A controller that has ended, or that another process runs, needs no call.
    pub fn machine(&self, object: &WindowsMachine) {
        let _ = self.machines.unbounded_send(ObjectRef::from_obj(object));
    }
    pub fn config(&self, object: &WindowsBootstrapConfig) {
        let _ = self.configs.unbounded_send(ObjectRef::from_obj(object));
    }
    pub fn pool_of(&self, object: &WindowsMachine) {
        for pool in of_owner(object, "WindowsNodePool") {
            let _ = self.pools.unbounded_send(pool);
        }
    }
    /// Every pool of the namespace that stands alone, and all that belongs to such pools.
    pub fn standing_alone(&self, ctx: &Context, namespace: &str) {
        for pool in ctx.stores.pools.all(namespace).iter().filter(|p| Joins::of(p).is_some()) {
            let _ = self.pools.unbounded_send(ObjectRef::from_obj(&**pool));
        }
        ctx.stores.windows_machines.all(namespace).iter().filter(|m| joins(&m.metadata).is_some()).for_each(|m| self.machine(m));
        ctx.stores.configs.all(namespace).iter().filter(|c| joins(&c.metadata).is_some()).for_each(|c| self.config(c));
    }
}

pub fn machines(ctx: &Context, calls: UnboundedReceiver<ObjectRef<WindowsMachine>>) -> Triggers<WindowsMachine> {
    let of_cluster = concerned(ctx, &ctx.stores.clusters.0, cluster_facts, |ctx, cluster| {
        of_cluster(&ctx.stores.windows_machines.all(&namespace(cluster)), cluster)
    });
    let of_hypervisor = concerned(ctx, &ctx.stores.hypervisors.0, hypervisor_facts, |ctx, hypervisor| {
        ctx.stores.windows_machines.all(&namespace(hypervisor)).iter().map(|m| ObjectRef::from_obj(&**m)).collect()
    });
    let of_machine = ctx.stores.machines.0.map(|machine: &Machine| named(Some(&machine.spec.infrastructure_ref), "WindowsMachine", machine));
    // Its data is ready.
    let of_config = ctx.stores.configs.0.map(|config: &WindowsBootstrapConfig| of_owner(config, "WindowsMachine"));
    vec![of_cluster, of_hypervisor, of_machine, of_config, calls.boxed()]
}

/// The configuration that a Machine names; that of a machine of a pool has the name of its WindowsMachine.
fn configs_of(machine: &Machine) -> Vec<ObjectRef<WindowsBootstrapConfig>> {
    match machine_pool_of(machine) {
        Some(_) => named(Some(&machine.spec.infrastructure_ref), "WindowsMachine", machine),
        None => named(machine.spec.bootstrap.config_ref.as_ref(), "WindowsBootstrapConfig", machine),
    }
}

pub fn pools(ctx: &Context, calls: UnboundedReceiver<ObjectRef<WindowsNodePool>>) -> Triggers<WindowsNodePool> {
    let shown = ctx.clone();
    let of_windows_machine = ctx.stores.windows_machines.0.map(move |object: &WindowsMachine| {
        shown.pools.seen(&object.uid().unwrap_or_default());
        of_owner(object, "WindowsNodePool")
    });
    let (held, configured) = (ctx.clone(), ctx.clone());
    let of_machine = ctx.stores.machines.0.map(move |machine: &Machine| {
        let object =
            machine_pool_of(machine).and_then(|_| held.stores.windows_machines.get(&namespace(machine), &machine.spec.infrastructure_ref.name));
        object.map(|object| of_owner(&*object, "WindowsNodePool")).unwrap_or_default()
    });
    let of_config = ctx.stores.configs.0.map(move |config: &WindowsBootstrapConfig| {
        let machine = capi::owner(config.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsMachine");
        match machine.and_then(|owner| configured.stores.windows_machines.get(&namespace(config), &owner.name)) {
            Some(object) => of_owner(&*object, "WindowsNodePool"),
            // It may be the one that a MachinePool names, or the last thing that a pool waits for.
            None => all_of(&configured, &namespace(config)),
        }
    });
    let of_machine_pool =
        ctx.stores.machine_pools.0.map(|pool: &MachinePool| named(Some(&pool.spec.template.spec.infrastructure_ref), "WindowsNodePool", pool));
    let of_cluster =
        concerned(ctx, &ctx.stores.clusters.0, cluster_facts, |ctx, cluster| of_cluster(&ctx.stores.pools.all(&namespace(cluster)), cluster));
    let of_hypervisor = concerned(ctx, &ctx.stores.hypervisors.0, hypervisor_facts, |ctx, hypervisor| all_of(ctx, &namespace(hypervisor)));
    let of_machine_template = concerned(ctx, &ctx.stores.machine_templates.0, |t| generation(t.meta()), |ctx, t| all_of(ctx, &namespace(t)));
    let of_config_template = concerned(ctx, &ctx.stores.config_templates.0, |t| generation(t.meta()), |ctx, t| all_of(ctx, &namespace(t)));
    let called = calls.boxed();
    vec![of_windows_machine, of_machine, of_config, of_machine_pool, of_cluster, of_hypervisor, of_machine_template, of_config_template, called]
}

fn generation(meta: &ObjectMeta) -> String {
    format!("{:?} {:?}", meta.uid, meta.generation)
}

fn all_of(ctx: &Context, namespace: &str) -> Vec<ObjectRef<WindowsNodePool>> {
    ctx.stores.pools.all(namespace).iter().map(|pool| ObjectRef::from_obj(&**pool)).collect()
}

/// The owner of that kind of ours.
fn of_owner<K: Kind>(object: &impl Resource, kind: &str) -> Vec<ObjectRef<K>> {
    let owner = capi::owner(object.meta().owner_references.as_ref(), INFRASTRUCTURE, kind);
    owner.map(|owner| ObjectRef::new(&owner.name).within(&namespace(object))).into_iter().collect()
}

pub fn configs(ctx: &Context, calls: UnboundedReceiver<ObjectRef<WindowsBootstrapConfig>>) -> Triggers<WindowsBootstrapConfig> {
    let of_cluster =
        concerned(ctx, &ctx.stores.clusters.0, cluster_facts, |ctx, cluster| of_cluster(&ctx.stores.configs.all(&namespace(cluster)), cluster));
    let of_machine = ctx.stores.machines.0.map(configs_of);
    // The data needs the hypervisor that was chosen for the machine.
    let of_choice = concerned(
        ctx,
        &ctx.stores.windows_machines.0,
        |m| format!("{:?}", chosen(m)),
        |ctx, object: &WindowsMachine| {
            let owner =
                capi::machine_owner(object.metadata.owner_references.as_ref()).and_then(|o| ctx.stores.machines.get(&namespace(object), &o.name));
            match owner {
                Some(machine) => configs_of(&machine),
                // Of a pool that stands alone.
                None => ctx.config_of(object).map(|config| ObjectRef::from_obj(&*config)).into_iter().collect(),
            }
        },
    );
    vec![of_cluster, of_machine, of_choice, calls.boxed()]
}

/// A hypervisor that is being deleted waits for its last machine.
pub fn hypervisors(ctx: &Context) -> Triggers<WindowsHypervisor> {
    let held = ctx.clone();
    let of_machine = ctx.stores.windows_machines.0.map(move |machine: &WindowsMachine| {
        let hypervisor = chosen(machine).filter(|_| machine.metadata.deletion_timestamp.is_some());
        let leaving =
            hypervisor.and_then(|name| held.stores.hypervisors.get(&namespace(machine), &name)).filter(|h| h.metadata.deletion_timestamp.is_some());
        leaving.map(|h| ObjectRef::from_obj(&*h))
    });
    vec![of_machine]
}

pub fn windows_clusters(ctx: &Context) -> Triggers<WindowsCluster> {
    let of_cluster = concerned(ctx, &ctx.stores.clusters.0, cluster_facts, |_, cluster| {
        named(cluster.spec.infrastructure_ref.as_ref(), "WindowsCluster", cluster)
    });
    let of_hypervisor = concerned(ctx, &ctx.stores.hypervisors.0, hypervisor_facts, |ctx, hypervisor| {
        ctx.stores.windows_clusters.all(&namespace(hypervisor)).iter().map(|c| ObjectRef::from_obj(&**c)).collect()
    });
    vec![of_cluster, of_hypervisor]
}

pub fn control_planes(ctx: &Context) -> Triggers<ExternalControlPlane> {
    vec![concerned(ctx, &ctx.stores.clusters.0, cluster_facts, |_, cluster| {
        named(cluster.spec.control_plane_ref.as_ref(), "ExternalControlPlane", cluster)
    })]
}

/// The objects that a change concerns, when the facts that they depend on have changed: most changes of a Cluster do not concern
/// its thousand machines.
fn concerned<K: Kind, T: Kind>(
    ctx: &Context,
    watch: &super::watch::Watch<K>,
    facts: fn(&K) -> String,
    whom: fn(&Context, &K) -> Vec<ObjectRef<T>>,
) -> BoxStream<'static, ObjectRef<T>> {
    let ctx = ctx.clone();
    let seen = Mutex::new(HashMap::<ObjectRef<K>, String>::new());
    let touched = watch.subscribe().map(move |object| {
        let facts = facts(&object);
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let news = seen.insert(ObjectRef::from_obj(&*object), facts.clone()).is_none_or(|before| before != facts);
        if news { whom(&ctx, &object) } else { Vec::new() }
    });
    touched.flat_map(stream::iter).boxed()
}

fn cluster_facts(cluster: &Cluster) -> String {
    format!("{} {} {} {:?}", cluster.is_paused(), cluster.infrastructure_provisioned(), cluster.control_plane_initialized(), cluster.endpoint())
}

fn hypervisor_facts(hypervisor: &WindowsHypervisor) -> String {
    let conditions = hypervisor.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let reachable = condition::find(conditions, ConditionType::Reachable).map(|c| (&c.status, &c.message));
    format!("{reachable:?} {:?} {}", hypervisor.metadata.generation, hypervisor.metadata.deletion_timestamp.is_some())
}

fn of_cluster<K: Kind>(objects: &[std::sync::Arc<K>], cluster: &Cluster) -> Vec<ObjectRef<K>> {
    let name = cluster.name_any();
    objects.iter().filter(|o| capi::cluster_name(o.meta().labels.as_ref()) == Some(&name)).map(|o| ObjectRef::from_obj(&**o)).collect()
}

/// The object of that kind that a reference beside `from` names.
fn named<K: Kind>(reference: Option<&Reference>, kind: &str, from: &impl ResourceExt) -> Vec<ObjectRef<K>> {
    let found = reference.filter(|r| r.kind == kind);
    found.map(|r| ObjectRef::new(&r.name).within(&from.namespace().unwrap_or_default())).into_iter().collect()
}

fn namespace(object: &impl Resource) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}
