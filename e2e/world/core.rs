//! Cluster API core as a process: its webhooks by address instead of by Service, its rights from its own ServiceAccount, so
//! that a right which a provider forgets to grant fails here as it would in a cluster.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capw_patience::wait_for;
use serde_json::{Value, json};

use super::client::Kind;
use super::control_plane::{ControlPlane, Ready};
use super::ports::free_port;
use super::process::Process;
use super::servers::go;
use super::tools::Tools;
use super::{manifests, pki};

const NAMESPACE: &str = "capi-system";

/// Read once for all stories of this program: it is a megabyte of YAML. More than half of it is descriptions, which the API server
/// would publish again with each definition that follows. So the descriptions are removed.
static MANIFESTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(&Tools::ensure().capi_core_manifests).expect("build.sh made capi-core.yaml");
    let mut objects = manifests::documents(&text);
    objects.iter_mut().filter(|object| is_definition(object)).for_each(without_descriptions);
    objects
});

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

/// Keeps one version: no story uses the older ones, which the API server would check and publish each time. One version needs no conversion.
fn only_stored_version(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array_mut().expect("a definition has versions");
    versions.retain(|version| version["storage"] == true);
    definition["spec"]["conversion"] = json!({"strategy": "None"});
}

/// Removes descriptions. A field with the name `description` is an object, and stays.
fn without_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(without_descriptions);
        }
        Value::Array(values) => values.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

/// Installs all of core's definitions and rights, starts core and waits until its webhooks answer.
pub(super) async fn start(cp: &ControlPlane) -> Process {
    for _ in 0..3 {
        let webhooks = free_port();
        let authority = pki::loopback_certificate(cp.scratch(), "webhook");
        apply(cp, MANIFESTS.clone(), webhooks, &authority).await;
        if let Some(process) = run(cp, webhooks).await {
            return process;
        }
    }
    panic!("Cluster API core found its ports taken three times");
}

/// Installs core's definitions in one version, and its rights, with webhooks at a port.
pub(super) async fn install(cp: &ControlPlane, webhooks: u16) {
    let authority = pki::loopback_certificate(cp.scratch(), "webhook");
    let mut objects = MANIFESTS.clone();
    objects.iter_mut().filter(|object| is_definition(object)).for_each(only_stored_version);
    apply(cp, objects, webhooks, &authority).await;
}

/// Points the webhooks of a copied control plane to a port.
pub(super) async fn direct_webhooks(cp: &ControlPlane, port: u16) {
    let path = cp.directory().join("webhook/tls.crt");
    let authority = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let webhooks = MANIFESTS.iter().filter(|object| object["webhooks"].is_array()).cloned().collect();
    apply(cp, webhooks, port, &authority).await;
}

async fn apply(cp: &ControlPlane, mut objects: Vec<Value>, webhooks: u16, authority: &str) {
    let authority = STANDARD.encode(authority);
    objects.iter_mut().for_each(|object| direct(object, webhooks, &authority));
    manifests::apply_all(&cp.client(), objects).await;
}

/// Starts core with webhooks at a port, and waits until they answer. `None` if a port was taken.
pub(super) async fn run(cp: &ControlPlane, webhooks: u16) -> Option<Process> {
    let (diagnostics, health) = (free_port(), free_port());
    let tools = Tools::ensure();
    let scratch = cp.scratch();
    let kubeconfig = cp.kubeconfig_for(NAMESPACE, "capi-manager").await;
    let flags = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--webhook-cert-dir={}", scratch.path().join("webhook").display()),
        format!("--webhook-port={webhooks}"),
        format!("--diagnostics-address=127.0.0.1:{diagnostics}"),
        "--insecure-diagnostics".to_owned(),
        format!("--health-addr=127.0.0.1:{health}"),
        "--leader-elect=false".to_owned(),
        "--feature-gates=ClusterTopology=true,MachinePool=true".to_owned(),
    ];
    let process = go("capi-core", &tools.capi_core, scratch.path()).args(flags).env("POD_NAMESPACE", NAMESPACE);
    process.start();
    let probe = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"controlPlaneRef": {"apiGroup": "none.test", "kind": "None", "name": "none"}},
    });
    let ready = wait_for("Cluster API core's webhooks answer", Duration::from_secs(60), || async {
        match Ready::of(&process) {
            Ready::Starting => cp.dry_run(Kind::CLUSTER, &probe).await.map(|()| true),
            Ready::PortTaken => Ok(false),
        }
    })
    .await;
    ready.then_some(process)
}

/// Points every webhook of an object to a port of 127.0.0.1, the path unchanged.
fn direct(object: &mut Value, port: u16, authority: &str) {
    let address = |config: &mut Value| {
        if let Some(path) = config.pointer("/service/path").and_then(Value::as_str) {
            // The null removes the Service that clusterctl may have set.
            *config = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": authority, "service": null});
        }
    };
    if let Some(config) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        address(config);
    }
    // The default of ten seconds is short for a core that starts beside other stories.
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        webhook["timeoutSeconds"] = json!(30);
        if let Some(config) = webhook.get_mut("clientConfig") {
            address(config);
        }
    }
}
