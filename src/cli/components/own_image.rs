//! Finds the images of CAPW itself: the images of its Deployments in the management cluster, or the image that the user names.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;

use crate::kube_api::cluster::Cluster;

/// Label of CAPW's Deployments (`config/manager/deployment.yaml`).
const LABEL: &str = "control-plane=capw-controller-manager";
/// The name of the Deployments' container.
const CONTAINER: &str = "manager";
/// The container's variable and flag for the image that Windows nodes pull; the flag has priority.
const VARIABLE: &str = "CAPW_IMAGE";
const FLAG: &str = "--image";

/// The images of CAPW. A cluster may have several Deployments, e.g. one for each provider.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OwnImages {
    /// The images that run in the management cluster.
    pub run: BTreeSet<String>,
    /// The images that Windows nodes pull, if CAPW installs objects for them.
    pub on_nodes: BTreeSet<String>,
}

impl OwnImages {
    pub(super) fn named(image: &str) -> Self {
        let one = BTreeSet::from([image.to_owned()]);
        Self { run: one.clone(), on_nodes: one }
    }

    /// Reads the images that are installed in the cluster.
    pub(super) async fn installed(cluster: &Cluster) -> Result<Self, String> {
        let found = cluster.list_in::<Deployment>(None, Some(LABEL)).await;
        let found = found.map_err(|e| format!("{e}; with --image CAPW's own image need not be looked up"))?;
        let images = Self::of(&found);
        if images.run.is_empty() {
            let why = format!("components: CAPW is not installed in this cluster: no Deployment has the label {LABEL}");
            return Err(format!("{why}. Name its image, e.g. --image registry.example.com/capw:v0.2.0"));
        }
        Ok(images)
    }

    fn of(deployments: &[Deployment]) -> Self {
        let mut images = Self::default();
        let specs = deployments.iter().filter_map(|deployment| deployment.spec.template.spec.as_ref());
        for container in specs.flat_map(|spec| &spec.containers).filter(|container| container.name == CONTAINER) {
            images.run.extend(container.image.clone());
            images.on_nodes.extend(on_nodes(container));
        }
        images
    }
}

/// Returns the image in the way in which `capw run` reads it.
fn on_nodes(container: &Container) -> Option<String> {
    let arguments: Vec<&str> = container.args.iter().flatten().map(String::as_str).collect();
    let joined = arguments.iter().find_map(|argument| argument.strip_prefix(FLAG)?.strip_prefix('='));
    let apart = || arguments.iter().position(|argument| *argument == FLAG).and_then(|at| arguments.get(at + 1)).copied();
    let variable = || container.env.iter().flatten().find(|variable| variable.name == VARIABLE)?.value.as_deref();
    joined.or_else(apart).or_else(variable).filter(|image| !image.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::kube_api::mock::{Script, refuse, step};

    const LISTED: &str = "GET /apis/apps/v1/deployments";

    /// The Deployment of the manifests, with a changed container.
    fn deployment(change: &Value) -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/manager/deployment.yaml");
        let mut deployment: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let (key, value) = LABEL.split_once('=').unwrap();
        assert_eq!(deployment["metadata"]["labels"][key], value);
        json_patch::merge(&mut deployment["spec"]["template"]["spec"]["containers"][0], change);
        deployment
    }

    fn of(deployments: &[Value]) -> OwnImages {
        OwnImages::of(&deployments.iter().map(|deployment| serde_json::from_value(deployment.clone()).unwrap()).collect::<Vec<_>>())
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_the_deployments_say_is_listed() {
        const MADE: &str = "example.invalid/capw/capw:unreleased";
        let env = |value: &str| json!({"env": [{"name": VARIABLE, "value": value}]});
        for (deployments, run, on_nodes) in [
            (vec![deployment(&json!({}))], &[MADE][..], &[MADE][..]),
            (vec![deployment(&env("mirror.example.com/capw:v1"))], &[MADE], &["mirror.example.com/capw:v1"]),
            (vec![deployment(&env(""))], &[MADE], &[]),
            (vec![deployment(&json!({"env": null}))], &[MADE], &[]),
            (vec![deployment(&json!({"args": ["run", "--image=a/capw:v2"]}))], &[MADE], &["a/capw:v2"]),
            (vec![deployment(&json!({"args": ["run", "--image", "a/capw:v3"]}))], &[MADE], &["a/capw:v3"]),
            (vec![deployment(&json!({})), deployment(&json!({"image": "b/capw:v1"}))], &["b/capw:v1", MADE], &[MADE]),
            (vec![deployment(&json!({"name": "other"}))], &[], &[]),
            (vec![], &[], &[]),
        ] {
            assert_eq!(of(&deployments), OwnImages { run: set(run), on_nodes: set(on_nodes) }, "{deployments:#?}");
        }
    }

    #[tokio::test]
    async fn a_cluster_that_does_not_say_it_is_told_with_the_flag() {
        let list = |items: Value| json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": items});
        let ask = async |step| {
            let (client, script) = Script::new(vec![step]);
            let found = OwnImages::installed(&Cluster::new(client)).await;
            assert!(script.seen()[0].query.contains("labelSelector=control-plane%3Dcapw-controller-manager"), "{:?}", script.seen());
            found
        };
        assert_eq!(ask(step(LISTED, list(json!([deployment(&json!({}))])))).await.unwrap().run.len(), 1);
        let error = ask(step(LISTED, list(json!([])))).await.unwrap_err();
        assert!(error.contains("CAPW is not installed in this cluster") && error.contains("--image registry.example.com/capw:v0.2.0"), "{error}");
        let error = ask(refuse(LISTED, 403, "Forbidden")).await.unwrap_err();
        assert!(error.contains("list deployments in all namespaces") && error.contains("--image"), "{error}");
    }
}
