//! The part of the story about policies for pods: CAPW installs them with its components, and switches them without touching the rest.

use serde_json::{Value, json};

use super::{LIMIT, writes_since};
use crate::world::{ControlPlane, Kind, step, text, wait_for};

pub const POLICIES: Kind = Kind::new("admissionregistration.k8s.io/v1", "validatingadmissionpolicies");
pub const POLICY_BINDINGS: Kind = Kind::new("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings");

/// The prefix of the names of policies and bindings.
const PREFIX: &str = "capw-windows-";

/// Waits until `count` policies and bindings exist and the WindowsCluster lists them, and the binding has these actions.
async fn there(cp: &ControlPlane, name: &str, count: usize, actions: &Value) {
    wait_for(&format!("{count} policies with {actions}"), LIMIT, || async {
        let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.ok_or("no WindowsCluster")?;
        let said = object["status"]["components"]["objects"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let said = said.filter(|said| said.contains(PREFIX)).count();
        // CAPW itself is installed here with policies of its own.
        let is_for_pods = |object: &&Value| text(object, "/metadata/name").starts_with(PREFIX);
        let (policies, bindings) = (cp.list(POLICIES, None).await, cp.list(POLICY_BINDINGS, None).await);
        let found = [&policies, &bindings].map(|objects| objects.iter().filter(is_for_pods).count());
        let binding = bindings.iter().find(|binding| text(binding, "/metadata/name") == "capw-windows-pods");
        let is = binding.map_or(&Value::Null, |binding| &binding["spec"]["validationActions"]);
        let is_right = (said, found) == (2 * count, [count; 2]) && is == actions;
        if is_right { Ok(()) } else { Err(format!("{said} said, {found:?} there, {is}")) }
    })
    .await;
}

/// Switches the policies off and on; at the end they exist again.
pub async fn they_are_switched_by_themselves(cp: &ControlPlane, name: &str) {
    let (told, refused) = (json!(["Warn", "Audit"]), json!(["Deny"]));
    there(cp, name, 3, &told).await;
    for (validation, count, actions, writes) in [("Deny", 3, &refused, 1), ("Off", 0, &Value::Null, 6), ("Warn", 3, &told, 6)] {
        let mark = cp.audit_mark();
        let change = json!({"spec": {"components": {"policies": {"validation": validation}}}});
        cp.patch(Kind::WINDOWS_CLUSTER, name, &change).await.expect("policies can be switched");
        there(cp, name, count, actions).await;
        let written = writes_since(cp, mark, writes).await;
        let is_right = written.len() == writes && written.iter().all(|line| line.contains("/apis/admissionregistration.k8s.io/v1/"));
        assert!(is_right, "{validation}: {written:#?}");
    }
    step("the policies for pods were switched, and nothing else was written");
}
