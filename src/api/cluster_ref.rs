//! The workload cluster that an object belongs to.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::bootstrap_config::WindowsBootstrapConfig;
use super::capi::{self, GROUP};
use super::cluster::WindowsCluster;
use super::kubeconfig::KubeconfigSecretReference;
use super::pool::WindowsNodePool;

/// Annotation on the WindowsMachines and WindowsBootstrapConfigs of a standalone pool: the cluster that they join, in the text form of
/// [`ClusterRef`].
pub const JOINS_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/joins";

/// Annotation on a WindowsMachine: the cluster that it was created for, as in the owner mark of its VM, even if its labels or its pool
/// change. On a WindowsBootstrapConfig: the cluster that its token is in, even if its labels change.
pub const MADE_FOR_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/made-for";

const IN_CLUSTER: &str = "own/cluster";

/// A workload cluster, as objects in one namespace of the management cluster refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterRef {
    /// The namespace of the objects that refer to the cluster, and of the Secret with its kubeconfig.
    pub namespace: String,
    pub source: ClusterSource,
}

/// The source of the connection to a workload cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterSource {
    /// A Cluster of Cluster API, by name; its kubeconfig is in the Secret `<name>-kubeconfig`.
    ClusterApi(String),
    /// A Secret that a standalone pool names.
    Kubeconfig { secret: String, key: String },
    /// The cluster that this process runs in.
    InCluster,
}

impl ClusterRef {
    /// Returns the reference to a Cluster of Cluster API.
    pub fn cluster_api(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), source: ClusterSource::ClusterApi(name.to_owned()) }
    }

    /// The cluster of one of our objects: its Cluster, by label, or the cluster that its standalone pool joins, by annotation. If an object
    /// has both, one was added from outside: the annotation if a Machine owns the object, otherwise the label.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let labelled = capi::cluster_name(meta.labels.as_ref()).map(|name| Self::cluster_api(namespace, name));
        let annotated = annotation(meta, JOINS_ANNOTATION).and_then(|text| Self::parse(namespace, text));
        if capi::machine_owner(meta.owner_references.as_ref()).is_some() { labelled.or(annotated) } else { annotated.or(labelled) }
    }

    /// The cluster of a configuration. Without its label, this is the cluster that the configuration was created for, which has its token.
    pub fn of_config(object: &WindowsBootstrapConfig) -> Option<Self> {
        let meta = &object.metadata;
        let made_for = || Self::read(meta.namespace.as_deref().unwrap_or_default(), annotation(meta, MADE_FOR_ANNOTATION)?);
        Self::of(meta).or_else(made_for)
    }

    /// The cluster that an object of a standalone pool joins; `None` for an object of Cluster API.
    pub fn standalone(meta: &ObjectMeta) -> Option<Self> {
        Self::of(meta).filter(Self::is_standalone)
    }

    /// The cluster that a standalone pool joins: the pool names a cluster, and no MachinePool owns the pool.
    pub fn of_pool(pool: &WindowsNodePool) -> Option<Self> {
        if capi::owner(pool.metadata.owner_references.as_ref(), GROUP, "MachinePool").is_some() {
            return None;
        }
        Self::named_by(pool)
    }

    /// The cluster that the machines of a pool join: the cluster that the pool names, or the cluster of the MachinePool that owns the pool.
    pub fn joined_by(pool: &WindowsNodePool) -> Option<Self> {
        Self::of_pool(pool).or_else(|| Self::of(&pool.metadata))
    }

    /// The cluster that a pool names, even if a MachinePool owns it.
    pub fn named_by(pool: &WindowsNodePool) -> Option<Self> {
        Some(Self::named(&pool.metadata, pool.spec.cluster.as_ref()?.kubeconfig_secret_ref.as_ref()))
    }

    fn named(meta: &ObjectMeta, secret: Option<&KubeconfigSecretReference>) -> Self {
        let source = match secret {
            Some(secret) => ClusterSource::Kubeconfig { secret: secret.name.clone(), key: secret.key.clone() },
            None => ClusterSource::InCluster,
        };
        Self { namespace: meta.namespace.clone().unwrap_or_default(), source }
    }

    /// The cluster that a WindowsCluster represents: the Cluster that owns it, or else the cluster that it names.
    pub fn of_windows_cluster(object: &WindowsCluster) -> Option<Self> {
        let meta = &object.metadata;
        let named = || object.spec.cluster.as_ref().map(|cluster| Self::named(meta, cluster.kubeconfig_secret_ref.as_ref()));
        match capi::owner(meta.owner_references.as_ref(), GROUP, "Cluster") {
            Some(_) => Self::of_template(meta),
            None => named().or_else(|| Self::of_template(meta)),
        }
    }

    /// The Cluster of a template. Cluster API makes the Cluster the owner of the template, and sets no label.
    pub fn of_template(meta: &ObjectMeta) -> Option<Self> {
        Some(Self::cluster_api(meta.namespace.as_deref().unwrap_or_default(), capi::cluster_of(meta)?))
    }

    /// The cluster's description for messages, e.g. `the workload cluster of Cluster c1`.
    pub fn words(&self) -> String {
        match &self.source {
            ClusterSource::ClusterApi(name) => format!("the workload cluster of Cluster {name}"),
            ClusterSource::Kubeconfig { secret, key } => format!("the cluster of Secret {}/{secret}, key {key}", self.namespace),
            ClusterSource::InCluster => "the cluster that CAPW runs in".to_owned(),
        }
    }

    /// Whether no Cluster of Cluster API represents the cluster.
    pub fn is_standalone(&self) -> bool {
        !matches!(self.source, ClusterSource::ClusterApi(_))
    }

    /// Reads the value of [`MADE_FOR_ANNOTATION`].
    fn read(namespace: &str, text: &str) -> Option<Self> {
        if text.is_empty() || text.contains('/') { Self::parse(namespace, text) } else { Some(Self::cluster_api(namespace, text)) }
    }

    /// Reads the value of [`JOINS_ANNOTATION`].
    fn parse(namespace: &str, text: &str) -> Option<Self> {
        let source = match text.strip_prefix("secret/").and_then(|rest| rest.split_once('/')) {
            Some((secret, key)) => ClusterSource::Kubeconfig { secret: secret.to_owned(), key: key.to_owned() },
            None if text == IN_CLUSTER => ClusterSource::InCluster,
            None => return None,
        };
        Some(Self { namespace: namespace.to_owned(), source })
    }
}

/// The text form, without the namespace: the name of a Cluster, or the value of [`JOINS_ANNOTATION`], which has a `/` and so is never such a name.
impl fmt::Display for ClusterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ClusterSource::ClusterApi(name) => f.write_str(name),
            ClusterSource::Kubeconfig { secret, key } => write!(f, "secret/{secret}/{key}"),
            ClusterSource::InCluster => f.write_str(IN_CLUSTER),
        }
    }
}

/// The workload cluster that a machine was created for, in the text form of [`ClusterRef`], even if its pool was handed over since.
pub fn made_for(meta: &ObjectMeta) -> Option<String> {
    annotation(meta, MADE_FOR_ANNOTATION).map(str::to_owned).or_else(|| ClusterRef::of(meta).map(|cluster| cluster.to_string()))
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    fn object(label: Option<&str>, annotation: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("lab".into()),
            labels: label.map(|name| [(capi::CLUSTER_NAME_LABEL.to_owned(), name.to_owned())].into()),
            annotations: annotation.map(|text| [(JOINS_ANNOTATION.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_is_written_into_the_annotation_is_read_back() {
        let kubeconfig = ClusterSource::Kubeconfig { secret: "other.cluster".into(), key: "value".into() };
        for (source, text) in [(ClusterSource::InCluster, "own/cluster"), (kubeconfig, "secret/other.cluster/value")] {
            let cluster = ClusterRef { namespace: "lab".into(), source };
            assert_eq!(cluster.to_string(), text);
            assert_eq!(ClusterRef::standalone(&object(None, Some(text))), Some(cluster));
        }
        for other in ["", "c1", "own/", "secret/x", "own/other", "x/y/z"] {
            assert_eq!(ClusterRef::of(&object(None, Some(other))), None, "{other}");
        }
    }

    #[test]
    fn a_configuration_without_its_label_has_the_cluster_that_it_was_made_for() {
        let of = |label: Option<&str>, joins: Option<&str>, made_for: &str| {
            let mut metadata = object(label, joins);
            metadata.annotations.get_or_insert_default().insert(MADE_FOR_ANNOTATION.into(), made_for.into());
            let object: WindowsBootstrapConfig = serde_json::from_value(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1",
                "kind": "WindowsBootstrapConfig", "metadata": metadata, "spec": {}}))
            .unwrap();
            ClusterRef::of_config(&object).map(|cluster| cluster.to_string())
        };
        for (label, joins, made_for, expected) in [
            (None, None, "c1", Some("c1")),
            (None, None, "own/cluster", Some("own/cluster")),
            (None, None, "secret/there/value", Some("secret/there/value")),
            (Some("c2"), None, "c1", Some("c2")),
            (None, Some("own/cluster"), "c1", Some("own/cluster")),
            (None, None, "", None),
            (None, None, "x/y/z", None),
        ] {
            assert_eq!(of(label, joins, made_for).as_deref(), expected, "{label:?} {joins:?} {made_for}");
        }
    }

    #[test]
    fn a_windows_cluster_stands_for_its_cluster_or_else_for_the_one_it_names() {
        let kubeconfig = ClusterSource::Kubeconfig { secret: "there".into(), key: "value".into() };
        let (there, label) = (json!({"kubeconfigSecretRef": {"name": "there"}}), json!({"cluster.x-k8s.io/cluster-name": "c1"}));
        for (is_owned, labels, named, expected) in [
            (true, json!({}), json!(null), Some(ClusterSource::ClusterApi("c1".into()))),
            (true, json!({}), there.clone(), Some(ClusterSource::ClusterApi("c1".into()))),
            (false, label.clone(), json!(null), Some(ClusterSource::ClusterApi("c1".into()))),
            (false, label, there.clone(), Some(kubeconfig.clone())),
            (false, json!({}), there, Some(kubeconfig)),
            (false, json!({}), json!({}), Some(ClusterSource::InCluster)),
            (false, json!({}), json!(null), None),
        ] {
            let owner = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]);
            let owners = if is_owned { owner } else { json!([]) };
            let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
                "metadata": {"name": "w1", "namespace": "lab", "labels": labels, "ownerReferences": owners}, "spec": {"cluster": named}});
            let found = ClusterRef::of_windows_cluster(&serde_json::from_value(object.clone()).unwrap());
            assert_eq!(found, expected.map(|source| ClusterRef { namespace: "lab".into(), source }), "{object}");
        }
    }

    #[test]
    fn a_label_of_cluster_api_takes_no_machine_away_from_a_standalone_pool() {
        let both = object(Some("c1"), Some("own/cluster"));
        assert_eq!(ClusterRef::standalone(&both).map(|cluster| cluster.source), Some(ClusterSource::InCluster));
        assert_eq!(made_for(&both).as_deref(), Some("own/cluster"));
        let machine = OwnerReference { api_version: "cluster.x-k8s.io/v1beta2".into(), kind: "Machine".into(), ..OwnerReference::default() };
        let of_core = ObjectMeta { owner_references: Some(vec![machine]), ..both };
        assert_eq!(ClusterRef::of(&of_core), Some(ClusterRef::cluster_api("lab", "c1")));
        assert_eq!(ClusterRef::standalone(&of_core), None);
    }
}
