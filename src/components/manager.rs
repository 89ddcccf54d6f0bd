//! Finds other managers of an object, which would undo a change by CAPW.

use serde_json::Value;

/// The annotations and labels by which tools recognize their objects, with a description of the tool. The value of the mark is appended.
const MARKS: [(&str, &str, &str); 7] = [
    ("annotations", "meta.helm.sh/release-name", "the Helm release"),
    ("labels", "helm.toolkit.fluxcd.io/name", "Flux's HelmRelease"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux's Kustomization"),
    ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD as"),
    ("annotations", "objectset.rio.cattle.io/owner-name", "the add-on of k3s or RKE2"),
    ("labels", "addonmanager.kubernetes.io/mode", "the cluster's add-on manager in mode"),
    ("labels", "app.kubernetes.io/managed-by", "what its label app.kubernetes.io/managed-by says:"),
];

/// The field managers of tools that may leave no mark.
const FIELD_MANAGERS: [&str; 4] = ["argocd-controller", "kustomize-controller", "helm-controller", "helm"];

/// Returns the manager of the object with this metadata, from the first mark that is found; `None`: no manager is known.
pub fn manager(metadata: &Value) -> Option<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let marked = MARKS.iter().find_map(|(place, key, who)| Some(format!("{who} {}", text(metadata.get(place)?.get(key))?)));
    let list = |key: &str| metadata.get(key).and_then(Value::as_array).into_iter().flatten();
    let owner = || {
        let controller = list("ownerReferences").find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
        Some(format!("its owner, {} {}", text(controller.get("kind"))?, text(controller.get("name"))?))
    };
    let field_manager = || {
        let mut names = list("managedFields").filter_map(|entry| text(entry.get("manager")));
        Some(format!("the field manager {}", names.find(|name| FIELD_MANAGERS.contains(&name.as_str()))?))
    };
    marked.or_else(owner).or_else(field_manager)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_known_by_their_marks() {
        for (metadata, expected) in [
            (json!({}), None),
            (json!({"labels": {"app": "flannel"}, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}), None),
            (json!({"managedFields": [{"manager": "kubectl-client-side-apply"}, {"manager": "kubeadm"}]}), None),
            (json!({"annotations": {"meta.helm.sh/release-name": "flannel"}}), Some("the Helm release flannel")),
            (json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}), Some("what its label app.kubernetes.io/managed-by says: Helm")),
            (json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "network"}}), Some("Flux's Kustomization network")),
            (json!({"annotations": {"argocd.argoproj.io/tracking-id": "net:/ConfigMap:a/b"}}), Some("Argo CD as net:/ConfigMap:a/b")),
            (
                json!({"ownerReferences": [{"kind": "X", "name": "a"}, {"kind": "HelmChart", "name": "rke2-canal", "controller": true}]}),
                Some("its owner, HelmChart rke2-canal"),
            ),
            (json!({"managedFields": [{"manager": "kubectl"}, {"manager": "argocd-controller"}]}), Some("the field manager argocd-controller")),
        ] {
            assert_eq!(manager(&metadata).as_deref(), expected, "{metadata}");
        }
    }
}
