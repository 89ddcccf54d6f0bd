//! WindowsMachineTemplate: says what a machine made from it has, so that cluster-autoscaler can scale from zero (`capi-contract.md` §2).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Context;
use super::runtime::controller::{Outcome, ReconcileError};
use crate::api::machine::{TemplateNodeInfo, WindowsMachineTemplate, WindowsMachineTemplateStatus};

const MANAGER: &str = "capw-windowsmachinetemplate";

pub async fn reconcile(object: Arc<WindowsMachineTemplate>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    let machine = &object.spec.template.spec;
    let next = WindowsMachineTemplateStatus {
        capacity: BTreeMap::from([("cpu".to_owned(), machine.cpus.to_string()), ("memory".to_owned(), machine.memory.clone())]),
        node_info: Some(TemplateNodeInfo { architecture: "amd64".into(), operating_system: "windows".into() }),
    };
    if object.metadata.deletion_timestamp.is_none() && object.status.as_ref() != Some(&next) {
        ctx.written.note(&ctx.cluster.apply_status(&*object, MANAGER, &next).await?);
    }
    Ok(Outcome::done())
}
