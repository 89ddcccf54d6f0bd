//! What a hypervisor reports to `capw hypervisor check`, which sends the requests of CAPW's controllers, before VMs exist. It must not guess.

use serde_json::Value;
use tokio::process::Command;

use crate::progress::say;
use crate::stage::{Acceleration, Stage};
use crate::world::{output, program, text};

/// The acceleration of the guests: the user's choice, or KVM where libvirt reports support. `manifest` renders the objects to check. The error
/// names the missing parts, with the remedy.
pub async fn acceleration(stage: &Stage, manifest: impl Fn(Acceleration) -> String) -> Result<Option<Acceleration>, String> {
    let mut refused = None;
    for acceleration in stage.accelerations() {
        let lacking = lacking(&format!("{}---\n{}", manifest(*acceleration), stage.login().await)).await?;
        match (&refused, lacking.is_empty()) {
            (None, true) => say(format!("libvirt says that it runs the guests by {acceleration}")),
            (Some(why), true) => say(format!("QEMU translates the guests, many times slower than KVM would run them: {why}")),
            (_, false) => {
                refused = Some(lacking.join("\n"));
                continue;
            }
        }
        return Ok(Some(*acceleration));
    }
    refused.map_or(Ok(None), |why| Err(format!("the hypervisor lacks what the machines need: {why}")))
}

/// The missing parts, as `capw hypervisor check` reports them.
async fn lacking(manifest: &str) -> Result<Vec<String>, String> {
    let mut check = Command::new(program());
    check.args(["hypervisor", "check", "--output", "json", "--filename", "-"]);
    let (Ok(said) | Err(said)) = output(check, Some(manifest)).await;
    let findings: Vec<Value> = serde_json::from_str(&said).map_err(|_| format!("capw hypervisor check says: {said}"))?;
    Ok(findings.iter().filter(|finding| finding["ok"] == false).map(|finding| text(finding, "/message").to_owned()).collect())
}
