//! The rights that the group of our join tokens needs in a workload cluster, so that `kubeadm join` works.
//!
//! kubeadm grants the same rights to its own group; ours is separate so that only CAPW approves its certificates. Objects are read first and
//! written only when they differ.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cluster::FIELD_MANAGER;
use super::error::ApiError;
use super::workload::{Workload, WorkloadError};
use crate::api::bootstrap_config::JOIN_GROUP;

const NAMESPACE: &str = "kube-system";
/// The name of the object that [`ensure_proxy`] maintains.
pub const NODE_PROXIER: &str = "capw:node-proxier";
/// The name of the objects that [`ensure`] maintains.
pub const NODE_BOOTSTRAPPER: &str = "capw:node-bootstrapper";
pub const GET_NODES: &str = "capw:get-nodes";
pub const JOIN_CONFIGURATION: &str = "capw:join-configuration";

/// Creates or corrects the rights. Returns whether anything was written.
pub async fn ensure(workload: &Workload) -> Result<bool, WorkloadError> {
    let client = || workload.client.clone();
    let same = |a: &ClusterRoleBinding, b: &ClusterRoleBinding| a.role_ref == b.role_ref && a.subjects == b.subjects;
    let bindings = Api::all(client());
    let (roles, system_roles, system_bindings) = (Api::all(client()), Api::namespaced(client(), NAMESPACE), Api::namespaced(client(), NAMESPACE));

    let mut written = keep(workload, &bindings, cluster_binding(NODE_BOOTSTRAPPER, "system:node-bootstrapper"), same).await?;
    written |= keep(workload, &roles, get_nodes(), |a: &ClusterRole, b: &ClusterRole| a.rules == b.rules).await?;
    written |= keep(workload, &bindings, cluster_binding(GET_NODES, GET_NODES), same).await?;
    written |= keep(workload, &system_roles, join_configuration(), |a: &Role, b: &Role| a.rules == b.rules).await?;
    let same = |a: &RoleBinding, b: &RoleBinding| a.role_ref == b.role_ref && a.subjects == b.subjects;
    written |= keep(workload, &system_bindings, binding(), same).await?;
    Ok(written)
}

/// Lets kube-proxy use the certificate of the node it runs on. Returns whether anything was written.
pub async fn ensure_proxy(workload: &Workload) -> Result<bool, WorkloadError> {
    let same = |a: &ClusterRoleBinding, b: &ClusterRoleBinding| a.role_ref == b.role_ref && a.subjects == b.subjects;
    keep(workload, &Api::all(workload.client.clone()), proxy_binding(), same).await
}

async fn keep<K>(workload: &Workload, api: &Api<K>, wanted: K, same: impl Fn(&K, &K) -> bool) -> Result<bool, WorkloadError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync,
{
    let name = wanted.meta().name.clone().unwrap_or_default();
    let plural = K::plural(&());
    let found = workload.call(&format!("get {plural} {name}"), api.get_opt(&name)).await?;
    if found.is_some_and(|found| same(&found, &wanted)) {
        return Ok(false);
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match workload.call(&format!("apply {plural} {name}"), api.patch(&name, &parameters, &Patch::Apply(&wanted))).await {
        Ok(_) => Ok(true),
        // The role of a binding cannot change.
        Err(WorkloadError::Api(ApiError::Invalid(text))) => {
            Err(WorkloadError::Foreign { what: format!("{plural} {name} in the workload cluster is not what CAPW makes: delete it ({text})") })
        }
        Err(error) => Err(error),
    }
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), namespace: namespace.map(Into::into), ..Default::default() }
}

fn group(name: &str) -> Option<Vec<Subject>> {
    Some(vec![Subject { api_group: Some("rbac.authorization.k8s.io".into()), kind: "Group".into(), name: name.into(), namespace: None }])
}

fn role(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".into()), kind: kind.into(), name: name.into() }
}

fn rule(resource: &str, names: &[&str]) -> Option<Vec<PolicyRule>> {
    Some(vec![PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.into()]),
        resource_names: (!names.is_empty()).then(|| names.iter().map(|n| (*n).to_owned()).collect()),
        verbs: vec!["get".into()],
        ..Default::default()
    }])
}

fn cluster_binding(name: &str, cluster_role: &str) -> ClusterRoleBinding {
    ClusterRoleBinding { metadata: named(name, None), role_ref: role("ClusterRole", cluster_role), subjects: group(JOIN_GROUP) }
}

fn proxy_binding() -> ClusterRoleBinding {
    ClusterRoleBinding { metadata: named(NODE_PROXIER, None), role_ref: role("ClusterRole", "system:node-proxier"), subjects: group("system:nodes") }
}

/// kubeadm refuses to join with a name that exists, so it reads the Node first.
fn get_nodes() -> ClusterRole {
    ClusterRole { metadata: named(GET_NODES, None), rules: rule("nodes", &[]), ..Default::default() }
}

fn join_configuration() -> Role {
    Role { metadata: named(JOIN_CONFIGURATION, Some(NAMESPACE)), rules: rule("configmaps", &["kubeadm-config", "kubelet-config", "kube-proxy"]) }
}

fn binding() -> RoleBinding {
    RoleBinding { metadata: named(JOIN_CONFIGURATION, Some(NAMESPACE)), role_ref: role("Role", JOIN_CONFIGURATION), subjects: group(JOIN_GROUP) }
}

#[cfg(test)]
mod tests;
