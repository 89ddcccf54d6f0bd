//! The config drive of a machine: read from the bootstrap Secret once, kept in memory while the VM is being made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::Context;
use super::shell::ReconcileError;
use crate::api::machine::WindowsMachine;
use crate::api::name::{HostName, VmUuid};
use crate::bootstrap::config_drive::{self, Instance};
use crate::lifecycle::machine::Target;
use crate::vm::ConfigDrive;

/// Config drives of machines in the making, by VM.
#[derive(Default)]
pub struct Seeds {
    by_vm: Mutex<HashMap<VmUuid, Arc<ConfigDrive>>>,
}

impl Seeds {
    pub fn forget(&self, vm: VmUuid) {
        self.by_vm.lock().unwrap_or_else(PoisonError::into_inner).remove(&vm);
    }
    fn get(&self, vm: VmUuid) -> Option<Arc<ConfigDrive>> {
        self.by_vm.lock().unwrap_or_else(PoisonError::into_inner).get(&vm).cloned()
    }
    fn keep(&self, vm: VmUuid, seed: Arc<ConfigDrive>) {
        self.by_vm.lock().unwrap_or_else(PoisonError::into_inner).insert(vm, seed);
    }
}

/// The config drive with the data of that Secret. The inner error is a sentence for the condition: the Secret is missing or empty.
pub async fn config_drive(
    ctx: &Context,
    object: &WindowsMachine,
    target: &Target,
    host_name: &HostName,
    secret: &str,
) -> Result<Result<Arc<ConfigDrive>, String>, ReconcileError> {
    if let Some(seed) = ctx.seeds.get(target.key.vm) {
        return Ok(Ok(seed));
    }
    let namespace = object.namespace().unwrap_or_default();
    let Some(found) = ctx.cluster.get::<Secret>(&namespace, secret).await? else {
        return Ok(Err(format!(
            "Secret {namespace}/{secret}, named by the Machine's spec.bootstrap.dataSecretName, does not exist: delete the Machine, or create the Secret"
        )));
    };
    let Some(value) = found.data.as_ref().and_then(|d| d.get("value")).filter(|v| !v.0.is_empty()) else {
        return Ok(Err(format!("Secret {namespace}/{secret} has no data under the key \"value\": it must hold the bootstrap data")));
    };
    let instance = Instance { instance_id: &target.key.vm.to_string(), host_name: Some(host_name), user_data: &value.0 };
    let seed = Arc::new(config_drive::build(&instance));
    ctx.seeds.keep(target.key.vm, seed.clone());
    Ok(Ok(seed))
}
