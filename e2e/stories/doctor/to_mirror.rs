//! `capw components list`: the images that a mirror needs.

use serde_json::json;

use crate::world::{Capw, ControlPlane, manifests};

/// `capw components list` takes CAPW's image from its Deployment, and reads one namespace or all of them.
pub async fn lists(cp: &ControlPlane, capw: &Capw) {
    let list = async |flags: &[&str]| capw.ask(cp, &[&["components", "list"], flags].concat()).await;
    let has_pause = |listed: &str, user: &str| listed.lines().any(|line| line.starts_with("registry  pause ") && line.contains(user));
    let (exit, listed, errors) = list(&["-n", "healthy", "--image", "registry.example.com/capw:v0.2.0"]).await;
    assert!(exit == 0 && has_pause(&listed, "MachineDeployment c1"), "{exit}: {listed}{errors}");
    let (exit, _, errors) = list(&["-n", "healthy"]).await;
    assert!(exit == 1 && errors.contains("CAPW is not installed in this cluster") && errors.contains("--image"), "{exit}: {errors}");
    let mut deployment = manifests::deployment();
    deployment["metadata"]["namespace"] = json!("healthy");
    deployment["spec"]["replicas"] = json!(0);
    cp.apply_objects(&[deployment]).await;
    let (exit, listed, errors) = list(&["-A"]).await;
    let has_image = listed.lines().any(|line| line.starts_with("registry  capw ") && line.contains("example.invalid/capw/capw:unreleased"));
    let has_all = ["healthy", "silent"].iter().all(|namespace| has_pause(&listed, &format!("MachineDeployment {namespace}/c1")));
    assert!(exit == 0 && has_image && has_all, "{exit}: {listed}{errors}");
}
