//! The template of a pool's machines, with every reference resolved. Pools and cluster-autoscaler's service read it here.

use kube::ResourceExt;

use super::decide::request::PoolRequest;
use super::decide::template::Template;
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachineSpec;
use crate::api::pool::WindowsNodePool;
use crate::engine::caches::Caches;

/// Why no template is available.
pub struct NoTemplate {
    pub condition: Desired,
    pub message: String,
}

impl NoTemplate {
    fn invalid(message: String) -> Self {
        Self { condition: Desired::no(ConditionType::Ready, Reason::InvalidSpec, message.clone()), message }
    }

    fn missing(field: &str, kind: &str, name: &str) -> Self {
        let message = format!("{field}: there is no {kind} {name:?} in this namespace");
        Self { condition: Desired::no(ConditionType::Ready, Reason::TemplateMissing, message.clone()), message }
    }
}

pub fn resolve(caches: &Caches, object: &WindowsNodePool, request: &PoolRequest) -> Result<Template, NoTemplate> {
    let bootstrap = bootstrap(caches, object, request)?;
    if bootstrap.is_some() && request.version.is_none() {
        let asked_by = &request.asked_by;
        let message = format!("{asked_by}: spec.template.spec.version is not set; name the Kubernetes version of the nodes, e.g. v1.36.3");
        return Err(NoTemplate::invalid(message));
    }
    Ok(Template { machine: machine(caches, object)?, bootstrap, version: request.version.clone() })
}

fn machine(caches: &Caches, object: &WindowsNodePool) -> Result<WindowsMachineSpec, NoTemplate> {
    let template = &object.spec.template;
    match (&template.machine, &template.machine_template_ref) {
        (Some(machine), _) => Ok(machine.clone()),
        (None, Some(reference)) => {
            let found = caches.machine_templates.get(&object.namespace().unwrap_or_default(), &reference.name);
            let missing = || NoTemplate::missing("spec.template.machineTemplateRef.name", "WindowsMachineTemplate", &reference.name);
            Ok(found.ok_or_else(missing)?.spec.template.spec.clone())
        }
        // The schema requires one of the two.
        (None, None) => Err(NoTemplate::invalid("spec.template: give machine or machineTemplateRef".into())),
    }
}

/// The configuration of the nodes; `None` when another bootstrap provider creates the data.
fn bootstrap(caches: &Caches, object: &WindowsNodePool, request: &PoolRequest) -> Result<Option<WindowsBootstrapConfigSpec>, NoTemplate> {
    let namespace = object.namespace().unwrap_or_default();
    let template = &object.spec.template;
    if let Some(bootstrap) = &template.bootstrap {
        return Ok(Some(bootstrap.clone()));
    }
    if let Some(reference) = &template.bootstrap_template_ref {
        let found = caches.config_templates.get(&namespace, &reference.name);
        let missing = || NoTemplate::missing("spec.template.bootstrapTemplateRef.name", "WindowsBootstrapConfigTemplate", &reference.name);
        return Ok(Some(found.ok_or_else(missing)?.spec.template.spec.clone()));
    }
    if request.is_standalone() {
        return Ok(Some(WindowsBootstrapConfigSpec::default()));
    }
    let field = format!("{}: spec.template.spec.bootstrap.configRef", request.asked_by);
    match &request.bootstrap_config {
        Some(reference) if reference.kind == "WindowsBootstrapConfig" => {
            let found = caches.configs.get(&namespace, &reference.name);
            let missing = || NoTemplate::missing(&format!("{field}.name"), "WindowsBootstrapConfig", &reference.name);
            Ok(Some(found.ok_or_else(missing)?.spec.clone()))
        }
        Some(reference) if reference.kind == "WindowsBootstrapConfigTemplate" => {
            Err(NoTemplate::invalid(format!("{field}.kind is {:?}, which is for MachineDeployments: name a WindowsBootstrapConfig", reference.kind)))
        }
        _ => Ok(None),
    }
}
