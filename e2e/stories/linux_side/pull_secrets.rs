//! The part of the story about pull secrets: the pods of CAPW's components name them, beside the Secrets that others add.

use serde_json::{Value, json};

use super::{BROUGHT, COMPONENTS, DAEMON_SETS, LIMIT, written_since};
use crate::world::{ControlPlane, Kind, step, wait_for};

/// Requests these Secrets, and waits until the pods of both DaemonSets name those.
async fn asked(cp: &ControlPlane, name: &str, secrets: Value, flannel: Value, kube_proxy: Value) {
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"images": {"pullSecrets": secrets}}}}))
        .await
        .expect("Secrets can be named");
    for (set, expected) in [("flannel", &flannel), ("kube-proxy", &kube_proxy)] {
        wait_for(&format!("pods of {set} name {expected}"), LIMIT, || async {
            let set = cp.get(DAEMON_SETS, &format!("{BROUGHT}/{set}")).await.ok_or("no DaemonSet")?;
            let is = &set["spec"]["template"]["spec"]["imagePullSecrets"];
            if is == expected { Ok(()) } else { Err(is.to_string()) }
        })
        .await;
    }
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
}

/// In the end no pod names a Secret, except the one that another client added.
pub async fn they_come_and_go(cp: &ControlPlane, name: &str) {
    let (ours, theirs) = (json!([{"name": "mirror"}]), json!([{"name": "of-a-stranger"}]));
    asked(cp, name, ours.clone(), ours.clone(), ours).await;
    let mark = cp.audit_mark();
    let template = json!({"spec": {"template": {"spec": {"imagePullSecrets": theirs}}}});
    cp.kubectl(&["-n", BROUGHT, "patch", "daemonset", "flannel", "--type=strategic", "-p", &template.to_string()]).await;
    asked(cp, name, json!([]), theirs, Value::Null).await;
    let written = written_since(cp, mark);
    let sets = ["flannel", "kube-proxy"].map(|set| format!("patch /apis/apps/v1/namespaces/{BROUGHT}/daemonsets/{set}"));
    let is_right = written.len() == sets.len() && sets.iter().all(|set| written.iter().any(|line| line.starts_with(set)));
    assert!(is_right, "one write for each: {written:#?}");
    step("pods are pulled with the Secrets that are asked for, and what a stranger named stays");
}
