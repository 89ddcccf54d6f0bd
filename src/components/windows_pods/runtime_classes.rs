//! RuntimeClasses: a pod that names a class gets the class's node selector and tolerations at creation, so it runs on a node of that Windows release.
//! <https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling>

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::host::Host;
use crate::api::bootstrap_config::{BUILD_LABEL, HYPER_V_HANDLER, HYPER_V_LABEL, PROCESS_HANDLER, Taint, WindowsRelease};
use crate::api::listing::Listing;
use crate::components::plan::labels;

pub const KIND: Listing = Listing::new("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses");

/// Returns a class for each release, and a second class for each release with Hyper-V isolation.
pub fn runtime_classes(hosts: &BTreeSet<Host>) -> Vec<Value> {
    let all = hosts.iter().map(|host| (host.release, false));
    let isolated = hosts.iter().filter(|host| host.hyper_v).map(|host| (host.release, true));
    let classes: BTreeSet<(WindowsRelease, bool)> = all.chain(isolated).collect();
    classes.into_iter().map(|(release, hyper_v)| class(release, hyper_v)).collect()
}

/// The possible names of the classes.
pub fn names() -> impl Iterator<Item = String> {
    WindowsRelease::ALL.into_iter().flat_map(|release| [false, true].map(|hyper_v| name(release, hyper_v)))
}

/// Formats a name: `windows-2022`, `windows-2022-hyperv`.
fn name(release: WindowsRelease, hyper_v: bool) -> String {
    format!("windows-{}{}", release.as_str(), if hyper_v { "-hyperv" } else { "" })
}

fn class(release: WindowsRelease, hyper_v: bool) -> Value {
    let name = name(release, hyper_v);
    let Taint { key, value, effect } = Taint::windows();
    let mut class = json!({
        "apiVersion": KIND.api_version(),
        "kind": KIND.kind,
        "metadata": {"name": name, "labels": labels(&name)},
        "handler": PROCESS_HANDLER,
        "scheduling": {
            "nodeSelector": {"kubernetes.io/os": "windows", BUILD_LABEL: release.version()},
            "tolerations": [{"key": key, "operator": "Equal", "value": value, "effect": effect}],
        },
    });
    if hyper_v {
        // The overhead is the virtual machine itself, in addition to the requests of its containers.
        let overhead = json!({"podFixed": {"cpu": "250m", "memory": "1Gi"}});
        let isolated = json!({"handler": HYPER_V_HANDLER, "overhead": overhead, "scheduling": {"nodeSelector": {HYPER_V_LABEL: "true"}}});
        json_patch::merge(&mut class, &isolated);
    }
    class
}

/// Whether an update is possible. The API server refuses every change of a handler.
pub fn may_become(live: &Value, desired: &Value) -> bool {
    live.get("handler") == desired.get("handler")
}
