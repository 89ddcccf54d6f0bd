//! What the autoscaler's service reads: caches of pools and of what they refer to, and the controllers' own of machines.

use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::Context;
use super::runtime::stores::Cache;
use super::runtime::watch::{Watch, Watching};
use crate::api::bootstrap_config::{WindowsBootstrapConfigSpec, WindowsBootstrapConfigTemplate};
use crate::api::capi;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec, WindowsMachineTemplate};
use crate::api::pool::WindowsNodePool;
use crate::autoscaler::{Book, Slot};
use crate::lifecycle::pool::template::Template;

struct Caches {
    ctx: Context,
    pools: Cache<WindowsNodePool>,
    machine_templates: Cache<WindowsMachineTemplate>,
    bootstrap_templates: Cache<WindowsBootstrapConfigTemplate>,
}

/// Opens the service once its caches are filled.
pub async fn open(ctx: &Context, slot: &Slot, watching: &Watching) {
    // A template may be anybody's.
    let all = Watching { selection: watching.selection.unfiltered(), ..watching.clone() };
    let caches = Caches {
        ctx: ctx.clone(),
        pools: Cache(Watch::start(watching)),
        machine_templates: Cache(Watch::start(&all)),
        bootstrap_templates: Cache(Watch::start(&all)),
    };
    tokio::join!(caches.pools.0.ready(), caches.machine_templates.0.ready(), caches.bootstrap_templates.0.ready());
    slot.open(Arc::new(caches), ctx.cluster.clone());
    tracing::info!("cluster-autoscaler is answered");
}

impl Book for Caches {
    fn pools(&self) -> Vec<Arc<WindowsNodePool>> {
        self.pools.0.store().state()
    }

    fn pool(&self, namespace: &str, name: &str) -> Option<Arc<WindowsNodePool>> {
        self.pools.get(namespace, name)
    }

    fn machines(&self, pool: &WindowsNodePool) -> Vec<Arc<WindowsMachine>> {
        let mut machines = self.ctx.stores.windows_machines.all(&pool.namespace().unwrap_or_default());
        machines.retain(|machine| {
            let owner = capi::owner(machine.metadata.owner_references.as_ref(), &WindowsNodePool::group(&()), &WindowsNodePool::kind(&()));
            owner.is_some_and(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref())
        });
        machines
    }

    fn template(&self, pool: &WindowsNodePool) -> Result<Template, String> {
        Ok(Template { machine: self.machine(pool)?, bootstrap: self.bootstrap(pool)?, version: pool.spec.version.clone() })
    }
}

impl Caches {
    fn machine(&self, pool: &WindowsNodePool) -> Result<WindowsMachineSpec, String> {
        let template = &pool.spec.template;
        match (&template.machine, &template.machine_template_ref) {
            (Some(machine), _) => Ok(machine.clone()),
            (None, Some(reference)) => {
                let found = self.machine_templates.get(&pool.namespace().unwrap_or_default(), &reference.name);
                let missing =
                    || format!("spec.template.machineTemplateRef.name: there is no WindowsMachineTemplate {:?} in this namespace", reference.name);
                Ok(found.ok_or_else(missing)?.spec.template.spec.clone())
            }
            // The schema asks for one of the two.
            (None, None) => Err("spec.template: give machine or machineTemplateRef".into()),
        }
    }

    fn bootstrap(&self, pool: &WindowsNodePool) -> Result<Option<WindowsBootstrapConfigSpec>, String> {
        let template = &pool.spec.template;
        let Some(reference) = template.bootstrap_template_ref.as_ref().filter(|_| template.bootstrap.is_none()) else {
            return Ok(template.bootstrap.clone());
        };
        let found = self.bootstrap_templates.get(&pool.namespace().unwrap_or_default(), &reference.name);
        let missing =
            || format!("spec.template.bootstrapTemplateRef.name: there is no WindowsBootstrapConfigTemplate {:?} in this namespace", reference.name);
        Ok(Some(found.ok_or_else(missing)?.spec.template.spec.clone()))
    }
}
