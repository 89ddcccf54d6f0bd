//! WindowsMachineTemplate: reports what a machine made from it has, so that cluster-autoscaler can scale from zero.

use std::sync::Arc;

use super::runtime::management::Management;
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::watch::Selection;
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::machine::{TemplateNodeInfo, WindowsMachineTemplate, WindowsMachineTemplateStatus};
use crate::bootstrap::render::reserves::capacity;

const MANAGER: &str = "capw-windowsmachinetemplate";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    /// The cache has the templates of all processes, since pools may refer to any.
    pub selection: Selection,
}

pub async fn reconcile(object: Arc<WindowsMachineTemplate>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let object = &*object;
    if object.metadata.deletion_timestamp.is_some() || !ctx.selection.selects(&object.metadata) {
        return Ok(Outcome::done());
    }
    let machine = &object.spec.template.spec;
    let next = WindowsMachineTemplateStatus {
        capacity: capacity(machine, &WindowsBootstrapConfigSpec::default()),
        node_info: Some(TemplateNodeInfo { architecture: "amd64".into(), operating_system: "windows".into() }),
    };
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::mock::step;
    use crate::controllers::runtime::caches::Caches;
    use crate::controllers::testing::{read, shared};

    const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachinetemplates/t/status";

    #[tokio::test]
    async fn only_templates_that_the_watch_filter_selects_are_reported_on() {
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineTemplate",
            "metadata": {"name": "t", "namespace": "lab", "uid": "t", "resourceVersion": "1", "labels": {"cluster.x-k8s.io/watch-filter": "a"}},
            "spec": {"template": {"spec": {"image": "w", "cpus": 8, "systemDisk": "100Gi"}}}});
        let (shared, script) = shared(Caches::empty(), 1, vec![step(STATUS, object.clone())]);
        for filter in ["a", "b"] {
            let selection = Selection { watch_filter: Some(filter.into()), ..Selection::default() };
            reconcile(Arc::new(read(object.clone())), Context { management: shared.management.clone(), selection }).await.unwrap();
        }
        let capacity = &script.seen()[0].body["status"]["capacity"];
        assert_eq!(*capacity, json!({"cpu": "8", "memory": "8Gi", "pods": "30", "ephemeral-storage": "100Gi"}));
    }
}
