//! kube-proxy as a Windows service, if the spec requests it. The network plug-in usually creates its network after the join: kube-proxy
//! waits for that network, the plan does not.

use super::builder::{PlanBuilder, RESET_SECONDS, item, owned, why};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, Item, Kind, Start};
use crate::bootstrap::render::{Documents, kube_proxy};
use crate::vm::FailureCode;

const DOCS: &str = "https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/";

/// Adds kube-proxy's configuration and service.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    let Some(configuration) = &documents.kube_proxy else { return Ok(()) };
    let broken = "Read C:\\var\\log\\kube-proxy\\kube-proxy.log.";
    let disk = "Check the free space and the health of drive C:.";
    let remedy = "Use an image that has this program at this path, or leave spec.kubeProxy out.";
    let kind = Kind::Wait { check: Check::File(paths::KUBE_PROXY.into()) };
    all.add(Item {
        attempts: 1,
        ..item("program-kube-proxy", FailureCode::ProgramMissing, 5, kind, why("spec.kubeProxy runs kube-proxy as a service.", DOCS, remedy))
    });
    let kind = Kind::Directory { paths: owned(&[paths::KUBE_PROXY_LOG]), access: Access::Admins };
    all.add(item("kube-proxy-directory", FailureCode::KubeProxyConfig, 60, kind, why("kube-proxy writes its log there.", DOCS, disk)));
    let kind = all.file("files/kube-proxy.yaml", paths::KUBE_PROXY_CONFIG, Access::Admins, kube_proxy::text(configuration)?);
    all.add(item(
        "kube-proxy-config",
        FailureCode::KubeProxyConfig,
        60,
        kind,
        why("It names the pod network and how Services are reached in it.", DOCS, disk),
    ));
    let kind = Kind::Service {
        name: "kube-proxy".into(),
        command_line: kube_proxy::command_line(facts),
        start: Start::Auto,
        depends_on: Vec::new(),
        reset_seconds: RESET_SECONDS,
        restart_delays: vec![5_000, 10_000, 60_000],
        address: None,
    };
    all.add(item(
        "kube-proxy-service",
        FailureCode::KubeProxyService,
        60,
        kind,
        why("It starts with Windows and waits for the network that the network plug-in creates.", DOCS, broken),
    ));
    let after = owned(&["kube-proxy-config", "kube-proxy-service"]);
    // The service is optional: host-network pods such as the network plug-in run without it.
    let kind = Kind::Running { name: "kube-proxy".into(), after };
    all.add(Item {
        optional: true,
        ..item("kube-proxy-running", FailureCode::KubeProxyStart, 120, kind, why("It makes Services reachable.", DOCS, broken))
    });
    Ok(())
}
