//! Tests for every kind.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api;
use crate::api::name::VmUuid;
use crate::domain::identity::HYPERVISOR_ANNOTATION;
use crate::engine::caches::Caches;
use crate::engine::watch::Selection;
use crate::kinds::{bootstrap_config, control_plane, hypervisor, machine, pool, windows_cluster};
use crate::kube_api::mock::step;
use crate::testing::{holding, read, shared};

fn object(kind: &str, metadata: Value, spec: Value, status: Value) -> Value {
    let api = match kind {
        "Cluster" | "Machine" | "MachinePool" => "cluster.x-k8s.io/v1beta2",
        "WindowsBootstrapConfig" => "bootstrap.cluster.x-k8s.io/v1alpha1",
        "ExternalControlPlane" => "controlplane.cluster.x-k8s.io/v1alpha1",
        _ => "infrastructure.cluster.x-k8s.io/v1alpha1",
    };
    let mut all = json!({"name": "x", "namespace": "lab", "uid": "u", "resourceVersion": "1", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"cluster.x-k8s.io/cluster-name": "x"}});
    json_patch::merge(&mut all, &metadata);
    json!({"apiVersion": api, "kind": kind, "metadata": all, "spec": spec, "status": status})
}

fn caches() -> Caches {
    let reference = |kind: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "x"});
    let cluster = object(
        "Cluster",
        json!({}),
        json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}, "infrastructureRef": reference("WindowsCluster")}),
        json!({"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}}),
    );
    let machine = object(
        "Machine",
        json!({}),
        json!({"clusterName": "x", "version": "v1.36.3", "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": reference("WindowsMachine")}),
        json!({"nodeRef": {"name": "x"}}),
    );
    let template = json!({"spec": {"clusterName": "x", "version": "v1.36.3", "infrastructureRef": reference("WindowsNodePool")}});
    let machine_pool = object("MachinePool", json!({}), json!({"clusterName": "x", "template": template}), json!({}));
    Caches {
        clusters: holding(vec![cluster]),
        machines: holding(vec![machine]),
        machine_pools: holding(vec![machine_pool]),
        hypervisors: holding(vec![object("WindowsHypervisor", json!({"name": "h1"}), json!({"simulated": {}}), json!({}))]),
        ..Caches::empty()
    }
}

/// Whatever was removed from a settled object, its finalizer is written first.
#[tokio::test]
async fn an_object_of_any_kind_gets_its_finalizer_back_first() {
    let owned_by = |kind: &str| json!({"ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "x", "uid": "u", "controller": true}]});
    let is = |type_: &str, reason: &str| json!([{"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let id = format!("windows://h1/{}", VmUuid::of("u"));
    let mut of_machine = owned_by("Machine");
    of_machine["annotations"] = json!({HYPERVISOR_ANNOTATION: "h1"});
    for (kind, plural, finalizer, metadata, spec, status) in [
        (
            "WindowsMachine",
            "windowsmachines",
            api::machine::FINALIZER,
            of_machine,
            json!({"image": "w", "providerID": id}),
            json!({"initialization": {"provisioned": true}, "hostName": "x", "conditions": is("Ready", "Ready")}),
        ),
        (
            "WindowsBootstrapConfig",
            "windowsbootstrapconfigs",
            api::bootstrap_config::FINALIZER,
            owned_by("Machine"),
            json!({}),
            json!({"dataSecretName": "x", "initialization": {"dataSecretCreated": true}, "conditions": is("JoinCredentialValid", "TokenUsed")}),
        ),
        (
            "WindowsNodePool",
            "windowsnodepools",
            api::pool::FINALIZER,
            owned_by("MachinePool"),
            json!({"template": {"machine": {"image": "w"}}, "providerIDList": [id]}),
            json!({"replicas": 1, "conditions": is("Ready", "Ready")}),
        ),
        (
            "WindowsHypervisor",
            "windowshypervisors",
            hypervisor::FINALIZER,
            json!({}),
            json!({"simulated": {}}),
            json!({"driver": "simulated", "endpointID": "lab.x", "conditions": is("Ready", "Ready")}),
        ),
        (
            "WindowsCluster",
            "windowsclusters",
            api::cluster::FINALIZER,
            owned_by("Cluster"),
            json!({"components": {"mode": "Auto"}}),
            json!({"initialization": {"provisioned": true}, "conditions": is("ComponentsReady", "Ready")}),
        ),
        (
            "ExternalControlPlane",
            "externalcontrolplanes",
            api::control_plane::FINALIZER,
            owned_by("Cluster"),
            json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}),
            json!({"initialization": {"controlPlaneInitialized": true}, "checkedKubeconfig": "x", "conditions": is("Available", "Ready")}),
        ),
    ] {
        let mut settled = object(kind, metadata, spec, status);
        settled["metadata"]["finalizers"] = json!(["example.com/other"]);
        let group = settled["apiVersion"].as_str().unwrap();
        let (shared, script) = shared(caches(), 1, vec![step(&format!("PATCH /apis/{group}/namespaces/lab/{plural}/x"), settled.clone())]);
        let done = match kind {
            "WindowsMachine" => machine::reconcile(Arc::new(read(settled)), shared.machine()).await,
            "WindowsBootstrapConfig" => {
                let context = shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into()));
                bootstrap_config::reconcile(Arc::new(read(settled)), context).await
            }
            "WindowsNodePool" => pool::reconcile(Arc::new(read(settled)), shared.pool()).await,
            "WindowsHypervisor" => hypervisor::reconcile(Arc::new(read(settled)), shared.hypervisor(&Selection::default())).await,
            "WindowsCluster" => windows_cluster::reconcile(Arc::new(read(settled)), shared.windows_cluster()).await,
            _ => control_plane::reconcile(Arc::new(read(settled)), shared.control_plane()).await,
        };
        done.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(script.seen()[0].body["metadata"]["finalizers"], json!(["example.com/other", finalizer]), "{kind}");
    }
}
