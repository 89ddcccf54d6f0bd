//! Scheduled tasks that keep the node working after the join: they rotate logs, clean up the container network after a crash, and
//! restore lost routes.

use super::builder::{NODE_DOCS, PlanBuilder, item, owned, why};
use super::network;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::Kind;
use crate::bootstrap::render::kubelet;
use crate::vm::FailureCode;

/// The MiB at which a log is rotated, and the number of old files that are kept.
const LOG_MIB: &str = "100";
const LOG_FILES: &str = "5";
/// The minutes between two checks of the logs.
const LOG_MINUTES: u32 = 15;

/// The minutes between two checks of the routes.
const ROUTE_MINUTES: u32 = 5;

const ROUTE_DOCS: &str = "https://github.com/ovn-kubernetes/ovn-kubernetes/issues/512";
const HNS_DOCS: &str = "https://learn.microsoft.com/virtualization/windowscontainers/container-networking/architecture";

/// Adds the tasks. They are created before the join, so that a node never runs without them.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let remedy = "Start the Task Scheduler service.";
    // containerd never rotates its log. From 1.34 on kube-log-runner rotates the logs of the kubelet and kube-proxy.
    let mut logs = vec![format!(r"{}\containerd.log", paths::CONTAINERD_LOG), format!(r"{}\network.log", paths::ROOT)];
    if !kubelet::log_is_rotated(facts.kubernetes.minor) {
        logs.push(format!(r"{}\kubelet.log", paths::KUBELET_LOG));
        logs.extend(facts.spec.kube_proxy.as_ref().map(|_| format!(r"{}\kube-proxy.log", paths::KUBE_PROXY_LOG)));
    }
    let mut argv = script("logs.ps1");
    argv.extend(owned(&["-Paths", &logs.join("|"), "-Megabytes", LOG_MIB, "-Keep", LOG_FILES]));
    let kind = Kind::Task { name: "capw-logs".into(), argv, every_minutes: Some(LOG_MINUTES) };
    let reason = "These logs are never rotated by the programs that write them and would fill the disk.";
    all.add(item("cut-logs", FailureCode::NodePreparation, 60, kind, why(reason, NODE_DOCS, remedy)));
    if facts.spec.windows.network_clean_up {
        let kind = Kind::Task { name: "capw-network".into(), argv: script("network.ps1"), every_minutes: None };
        let reason =
            "After a crash the container network still has endpoints of containers that are gone; new ones then fail with errors such as 0x803b0001.";
        let remedy = "Start the Task Scheduler service, or set spec.windows.networkCleanUp to false.";
        all.add(item("network-clean-up", FailureCode::NodePreparation, 60, kind, why(reason, HNS_DOCS, remedy)));
    }
    let routes = network::routes(facts)?;
    if !routes.is_empty() {
        let list = routes.iter().map(|r| format!("{},{},{},{},{}", r.prefix, r.address, r.mask, r.gateway, r.metric)).collect::<Vec<_>>();
        let mut argv = script("routes.ps1");
        argv.extend(owned(&["-Routes", &list.join("|")]));
        let kind = Kind::Task { name: "capw-routes".into(), argv, every_minutes: Some(ROUTE_MINUTES) };
        let reason = "When the container network creates its switch, the machine's address moves to another adapter and routes are lost.";
        all.add(item("keep-routes", FailureCode::NodePreparation, 60, kind, why(reason, ROUTE_DOCS, remedy)));
    }
    Ok(())
}

/// Returns the command line of a script from the payload, run as SYSTEM.
fn script(name: &str) -> Vec<String> {
    let path = format!(r"{}\runner\{name}", paths::PAYLOAD);
    owned(&[paths::POWERSHELL, "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "RemoteSigned", "-File", &path])
}
