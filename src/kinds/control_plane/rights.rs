//! The rights that a kubeconfig needs in its workload cluster: what Cluster API and CAPW do there in the life of a machine. The account of
//! `config/workload` has these rights.

use crate::kube_api::join_rights::{GET_NODES, JOIN_CONFIGURATION, NODE_BOOTSTRAPPER};
use crate::kube_api::rights::Right;

const SYSTEM: &str = "kube-system";
const CERTIFICATES: &str = "certificates.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// For a new kubeconfig, the API server is queried about each of these rights.
pub const NEEDED: &[Right<'static>] = &[
    // To identify the cluster.
    Right { name: SYSTEM, ..right("get", "", "namespaces") },
    // Bootstrap tokens.
    in_system(right("get", "", "secrets")),
    in_system(right("list", "", "secrets")),
    in_system(right("create", "", "secrets")),
    in_system(right("patch", "", "secrets")),
    in_system(right("delete", "", "secrets")),
    right("get", "", "nodes"),
    right("list", "", "nodes"),
    right("watch", "", "nodes"),
    right("patch", "", "nodes"),
    right("delete", "", "nodes"),
    // Draining: pods are evicted, and stuck pods are deleted.
    right("list", "", "pods"),
    right("delete", "", "pods"),
    Right { subresource: "eviction", ..right("create", "", "pods") },
    right("list", CERTIFICATES, "certificatesigningrequests"),
    right("watch", CERTIFICATES, "certificatesigningrequests"),
    right("delete", CERTIFICATES, "certificatesigningrequests"),
    Right { subresource: "approval", ..right("update", CERTIFICATES, "certificatesigningrequests") },
    Right { name: "kubernetes.io/kube-apiserver-client-kubelet", ..right("approve", CERTIFICATES, "signers") },
    // The rights of joining machines. Server-side apply needs `create` for an object that does not exist yet.
    right("create", RBAC, "clusterroles"),
    right("create", RBAC, "clusterrolebindings"),
    in_system(right("create", RBAC, "roles")),
    in_system(right("create", RBAC, "rolebindings")),
    Right { name: GET_NODES, ..right("get", RBAC, "clusterroles") },
    Right { name: GET_NODES, ..right("patch", RBAC, "clusterroles") },
    Right { name: NODE_BOOTSTRAPPER, ..right("get", RBAC, "clusterrolebindings") },
    Right { name: NODE_BOOTSTRAPPER, ..right("patch", RBAC, "clusterrolebindings") },
    Right { name: JOIN_CONFIGURATION, ..in_system(right("get", RBAC, "roles")) },
    Right { name: JOIN_CONFIGURATION, ..in_system(right("patch", RBAC, "roles")) },
    Right { name: JOIN_CONFIGURATION, ..in_system(right("get", RBAC, "rolebindings")) },
    Right { name: JOIN_CONFIGURATION, ..in_system(right("patch", RBAC, "rolebindings")) },
];

const fn right(verb: &'static str, group: &'static str, resource: &'static str) -> Right<'static> {
    Right { verb, group, resource, subresource: "", namespace: "", name: "" }
}

const fn in_system(right: Right<'static>) -> Right<'static> {
    Right { namespace: SYSTEM, ..right }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Rights of the account that are not checked: group, resource, verb and purpose.
    const NOT_ASKED: [(&str, &str, &str, &str); 3] = [
        ("", "events", "list", "`capw diagnose` alone lists them"),
        ("", "configmaps", "get", "an account grants joining machines only what it has"),
        (RBAC, "clusterroles", "bind", "the same for bindings"),
    ];

    /// The rights of the roles in a file of `config/workload`.
    fn granted(file: &str) -> Vec<Right<'static>> {
        let text = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/workload").join(file)).unwrap();
        let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
        let texts = |rule: &Value, field: &str| -> Vec<&'static str> {
            let texts = rule[field].as_array().map(|texts| texts.iter().map(|text| text.as_str().unwrap().to_owned().leak() as &str).collect());
            texts.unwrap_or_else(|| vec![""])
        };
        let mut rights = Vec::new();
        for role in documents.filter(|document| ["Role", "ClusterRole"].contains(&document["kind"].as_str().unwrap())) {
            let namespace = if role["kind"] == "Role" { SYSTEM } else { "" };
            for rule in role["rules"].as_array().unwrap() {
                for group in texts(rule, "apiGroups") {
                    for path in texts(rule, "resources") {
                        let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
                        for verb in texts(rule, "verbs") {
                            let named = texts(rule, "resourceNames").into_iter();
                            rights.extend(named.map(|name| Right { verb, group, resource, subresource, namespace, name }));
                        }
                    }
                }
            }
        }
        rights
    }

    #[test]
    fn the_account_of_config_workload_has_what_is_asked_and_little_more() {
        let granted = granted("nodes.yaml");
        for right in NEEDED {
            assert!(granted.contains(right), "config/workload/nodes.yaml does not grant: {right}");
        }
        let kind = |right: &Right<'static>| (right.group, right.resource, right.subresource, right.verb);
        let asked: BTreeSet<_> = NEEDED.iter().map(kind).collect();
        let exceptions = NOT_ASKED.map(|(group, resource, verb, _)| (group, resource, "", verb));
        let more: BTreeSet<_> = granted.iter().map(kind).filter(|kind| !asked.contains(kind)).collect();
        assert_eq!(more, BTreeSet::from(exceptions));
    }
}
