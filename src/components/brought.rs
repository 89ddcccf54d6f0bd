//! The objects that CAPW installs: the network of Windows nodes, and the objects that their pods need.

use serde_json::Value;

use super::place::ObjectRef;
use super::probe::SERVICES;
use super::windows_pods::{FOR_PODS, possible};
use super::windows_side::{FLANNEL_ROLE, KUBE_PROXY_BINDING, NAMESPACE};
use crate::api::listing::Listing;

/// The label selector of the objects that CAPW installs.
const LABELS: &str = "app.kubernetes.io/managed-by=capw,app.kubernetes.io/part-of=capw";

const NAMESPACES: Listing = Listing::new("", "v1", "Namespace", "namespaces");
const ROLES: Listing = Listing::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
const BINDINGS: Listing = Listing::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
const ACCOUNTS: Listing = Listing::new("", "v1", "ServiceAccount", "serviceaccounts");
const ALL_PODS: Listing = Listing::new("", "v1", "Pod", "pods");
const KINDS: [Listing; 8] =
    [NAMESPACES, ALL_PODS, SERVICES, ACCOUNTS, ROLES, BINDINGS, Listing::CONFIG_MAPS, Listing::new("apps", "v1", "DaemonSet", "daemonsets")];

/// The kinds of the installed network objects. DaemonSets are missing because the cluster's own DaemonSets are read too.
pub const OF_NETWORK: [Listing; 5] = [
    NAMESPACES.with_labels(LABELS),
    ACCOUNTS.with_labels(LABELS),
    ROLES.with_labels(LABELS),
    BINDINGS.with_labels(LABELS),
    Listing::CONFIG_MAPS.with_labels(LABELS),
];

/// The pods of the installed objects.
pub const PODS: Listing = ALL_PODS.with_labels(LABELS);

/// The kind of an installed object.
pub fn kind_of(object: &Value) -> Option<Listing> {
    let kind = object.get("kind").and_then(Value::as_str)?;
    KINDS.into_iter().chain(FOR_PODS).find(|listing| listing.kind == kind)
}

/// The installed objects that exist once per cluster and must be deleted; the others are deleted with the namespace. Of the objects for pods, only
/// the kinds in `for_pods` are included, so a user who never requested a kind need not grant the permissions for it.
pub fn removed(for_pods: &[Listing]) -> Vec<(Listing, ObjectRef)> {
    let once = |listing: Listing, name: &str| (listing, ObjectRef::new(listing.kind, None, name));
    let of_network = [once(NAMESPACES, NAMESPACE), once(BINDINGS, KUBE_PROXY_BINDING), once(BINDINGS, FLANNEL_ROLE), once(ROLES, FLANNEL_ROLE)];
    of_network.into_iter().chain(possible().into_iter().filter(|(kind, _)| for_pods.contains(kind))).collect()
}
