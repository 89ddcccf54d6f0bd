//! The pod network of the demo's cluster, and why Windows nodes cannot use it.

use std::time::Duration;

use serde_json::json;

use crate::progress::say;
use crate::stage::Stage;
use crate::world::{Kind, condition, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
/// Objects of a cluster that was created with kubeadm and Flannel's manifest.
const RECORDING: &str = "src/components/fixtures/flannel-manifest.yaml";

/// Creates two Linux nodes with Flannel as its manifest installs it, and prints CAPW's report about them.
pub async fn show(stage: &Stage) {
    say("two Linux nodes with Flannel, as its manifest makes it (recorded objects, no machines), and spec.components: {} for the WindowsCluster");
    stage.cp.apply_recording(RECORDING).await;
    let change = json!({"spec": {"components": {}}}).to_string();
    stage.kubectl(&["patch", "windowsclusters", "first", "--type=merge", "--patch", &change]).await;
    let said = wait_for("CAPW has read the pod network", LIMIT, || async {
        let object = stage.cp.get(Kind::WINDOWS_CLUSTER, &stage.name("first")).await.ok_or("no WindowsCluster")?;
        let found = condition(&object, "NetworkCompatible").cloned().unwrap_or_default();
        if text(&found, "/reason") == "VniBelow4096" { Ok(text(&found, "/message").to_owned()) } else { Err(found.to_string()) }
    })
    .await;
    let table = stage.kubectl(&["get", "windowsclusters"]).await;
    say(format!("why Windows nodes cannot be on that network, and what to do:\n\n{table}\n{said}\n"));
}
