//! The DaemonSets and the programs that they run.

use super::objects::Objects;
use super::place::{ObjectRef, Place};

/// A program that matters to a node's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Flannel,
    Calico,
    Antrea,
    OvnKubernetes,
    AzureCni,
    AwsVpcCni,
    Cilium,
    Kindnet,
    KubeRouter,
    Weave,
    KubeProxy,
}

/// A container of a DaemonSet.
#[derive(Clone, Debug)]
pub struct Container<'a> {
    pub program: Option<Program>,
    /// The tag, e.g. `v0.28.9`.
    pub tag: Option<String>,
    place: Place<'a>,
}

/// A DaemonSet.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    pub object: ObjectRef,
    /// Whether the DaemonSet selects Windows nodes.
    pub windows: bool,
    /// The labels that a node must have.
    pub selector: Vec<(String, String)>,
    pub containers: Vec<Container<'a>>,
    /// The names of the ConfigMaps that the DaemonSet mounts.
    pub config_maps: Vec<String>,
}

/// The label of the objects that CAPW applies.
pub const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "capw");

/// Splits an image into repository and tag. The port of a registry is not a tag.
fn image(text: &str) -> (&str, Option<&str>) {
    let named = text.split('@').next().unwrap_or_default();
    match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (named, None),
    }
}

/// Recognizes the program of a container by its image or, for custom images, by the container's name.
fn program(repository: &str, container: &str) -> Option<Program> {
    let image = repository.rsplit('/').next().unwrap_or_default();
    let is = |name: &str| image == name || image.strip_suffix(name).is_some_and(|before| before.ends_with('-'));
    let calico = repository.contains("calico") && ["node", "node-windows"].contains(&image);
    Some(match (image, container) {
        (_, "kube-proxy" | "kube-proxy-windows") => Program::KubeProxy,
        _ if is("kube-proxy") => Program::KubeProxy,
        (_, "kube-flannel") => Program::Flannel,
        _ if is("flannel") => Program::Flannel,
        ("hardened-calico" | "cnx-node" | "calico-node-windows", _) | (_, "calico-node" | "calico-node-windows") => Program::Calico,
        _ if calico || is("calico-node") => Program::Calico,
        (_, "antrea-agent") => Program::Antrea,
        _ if image.starts_with("antrea-agent") || image.starts_with("antrea-windows") => Program::Antrea,
        _ if container.starts_with("ovnkube") || image.starts_with("ovn-kube") => Program::OvnKubernetes,
        _ if image.starts_with("azure-cn") => Program::AzureCni,
        ("amazon-k8s-cni", _) | (_, "aws-node") => Program::AwsVpcCni,
        (_, "cilium-agent") => Program::Cilium,
        _ if is("cilium") => Program::Cilium,
        ("kindnetd", _) | (_, "kindnet-cni") => Program::Kindnet,
        ("kube-router", _) | (_, "kube-router") => Program::KubeRouter,
        ("weave-kube", _) | (_, "weave") => Program::Weave,
        _ => return None,
    })
}

impl<'a> Container<'a> {
    fn read(place: Place<'a>) -> Self {
        let (name, text) = (place.at("name").text().unwrap_or_default(), place.at("image").text().unwrap_or_default());
        let (repository, tag) = image(&text);
        Self { program: program(repository, &name), tag: tag.map(str::to_owned), place }
    }

    /// The value of an argument `--name=value` or `--name value`; empty for a flag without a value.
    pub fn argument(&self, name: &str) -> Option<String> {
        let all: Vec<String> = ["command", "args"].iter().flat_map(|list| self.place.at(list).items()).filter_map(|item| item.text()).collect();
        // Scripts contain whole lines of arguments.
        let words: Vec<&str> = all.iter().flat_map(|text| text.split_whitespace()).collect();
        let at = words.iter().position(|word| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))?;
        match words.get(at)?.split_once('=') {
            Some((_, value)) => Some(value.trim_matches('"').to_owned()),
            None => Some(words.get(at + 1).filter(|next| !next.starts_with('-')).copied().unwrap_or_default().to_owned()),
        }
    }

    /// Returns an environment variable: its value, or the key of the ConfigMap that it refers to.
    pub fn variable(&self, name: &str, namespace: &str, objects: &'a Objects<'_>) -> Option<Place<'a>> {
        let found = self.place.at("env").items().into_iter().find(|item| item.at("name").text().as_deref() == Some(name))?;
        let reference = found.along("valueFrom.configMapKeyRef");
        match (reference.at("name").text(), reference.at("key").text()) {
            (Some(config_map), Some(key)) => Some(objects.config_map(namespace, &config_map)?.at("data").at(&key)),
            _ => Some(found.at("value")),
        }
    }
}

impl<'a> Workload<'a> {
    fn read(place: &Place<'a>) -> Self {
        let pod = place.along("spec.template.spec");
        let names = pod.at("volumes").items().into_iter().flat_map(|volume| {
            let projected = volume.along("projected.sources").items();
            let sources = projected.into_iter().chain([volume]).map(|source| source.at("configMap").at("name"));
            sources.filter_map(|name| name.text()).collect::<Vec<_>>()
        });
        let selector = pod.at("nodeSelector");
        Self {
            object: place.object.clone(),
            windows: selects_windows(&pod),
            selector: selector.keys().into_iter().filter_map(|key| selector.at(&key).text().map(|value| (key, value))).collect(),
            config_maps: names.collect(),
            containers: pod.at("containers").items().into_iter().map(Container::read).collect(),
        }
    }

    pub fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or("default")
    }

    /// The container with this program.
    pub fn container(&self, program: Program) -> Option<&Container<'a>> {
        self.containers.iter().find(|container| container.program == Some(program))
    }

    pub fn runs(&self, program: Program) -> bool {
        self.container(program).is_some()
    }

    /// The ConfigMaps that the DaemonSet mounts or takes variables from.
    pub fn config_map_refs(&self) -> Vec<ObjectRef> {
        let of_variables = self.containers.iter().flat_map(|container| {
            let variables = container.place.at("env").items().into_iter().map(|item| item.along("valueFrom.configMapKeyRef.name"));
            let lots = container.place.at("envFrom").items().into_iter().map(|item| item.along("configMapRef.name"));
            variables.chain(lots).filter_map(|name| name.text()).collect::<Vec<_>>()
        });
        let names = self.config_maps.iter().cloned().chain(of_variables);
        names.map(|name| ObjectRef::new("ConfigMap", Some(self.namespace()), &name)).collect()
    }

    /// Among the mounted ConfigMaps, finds the one with one of these keys, and returns the place of its text.
    pub fn mounted(&self, keys: &[&str], objects: &'a Objects<'_>) -> Option<Place<'a>> {
        let maps = self.config_maps.iter().filter_map(|name| objects.config_map(self.namespace(), name));
        maps.flat_map(|map| keys.iter().map(move |key| map.at("data").at(key))).find(|text| text.given())
    }
}

/// Whether the node selector or the node affinity selects Windows nodes.
fn selects_windows(pod: &Place<'_>) -> bool {
    let labels = ["kubernetes.io/os", "beta.kubernetes.io/os"];
    if labels.iter().any(|label| pod.at("nodeSelector").at(label).text().as_deref() == Some("windows")) {
        return true;
    }
    let terms = pod.along("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms").items();
    terms.iter().flat_map(|term| term.at("matchExpressions").items()).any(|expression| {
        let key = expression.at("key").text().unwrap_or_default();
        let is_in = expression.at("operator").text().as_deref() == Some("In");
        labels.contains(&key.as_str()) && is_in && expression.at("values").items().iter().any(|value| value.text().as_deref() == Some("windows"))
    })
}

/// Returns the DaemonSets that run a known program. CAPW's own DaemonSets are skipped, because they are no facts about the cluster.
pub fn workloads<'a>(objects: &'a Objects<'_>) -> Vec<Workload<'a>> {
    let others = objects.of("apps", "DaemonSet").into_iter().filter(|set| {
        let (key, us) = OURS;
        set.at("metadata").at("labels").at(key).text().as_deref() != Some(us)
    });
    others.map(|set| Workload::read(&set)).filter(|set| set.containers.iter().any(|container| container.program.is_some())).collect()
}

/// The version in a tag: `0.28.9` from `v0.28.9-build20260107`.
pub fn version(tag: &str) -> Option<String> {
    let text: String = tag.trim_start_matches('v').chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    Some(text.trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_image_or_container() {
        for (text, container, expected) in [
            ("ghcr.io/flannel-io/flannel:v0.28.9", "kube-flannel", Some(Program::Flannel)),
            ("rancher/hardened-flannel:v0.28.9-build20260107", "x", Some(Program::Flannel)),
            ("ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel3", "install-cni-plugin", None),
            ("mirror.example.com:5000/f@sha256:00", "kube-flannel", Some(Program::Flannel)),
            ("quay.io/calico/node:v3.32.1", "calico-node", Some(Program::Calico)),
            ("quay.io/calico/node-windows:v3.32.1", "felix", Some(Program::Calico)),
            ("quay.io/calico/node-driver-registrar:v3.32.1", "csi-node-driver-registrar", None),
            ("quay.io/k0sproject/calico-node:v3.31.4-0", "x", Some(Program::Calico)),
            ("antrea/antrea-agent-ubuntu:v2.7.0", "x", Some(Program::Antrea)),
            ("antrea/antrea-windows:v2.7.0", "x", Some(Program::Antrea)),
            ("ghcr.io/ovn-kubernetes/ovn-kubernetes/ovn-kube-ubuntu:release-1.2", "nb-ovsdb", Some(Program::OvnKubernetes)),
            ("docker.io/kubeovn/kube-ovn:v1.15.0", "cni-server", None),
            ("mcr.microsoft.com/containernetworking/azure-cns:v1.7.5", "cns-container", Some(Program::AzureCni)),
            ("602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon-k8s-cni:v1.21.1", "x", Some(Program::AwsVpcCni)),
            ("quay.io/cilium/cilium:v1.19.4@sha256:00", "x", Some(Program::Cilium)),
            ("quay.io/cilium/cilium-envoy:v1.36.0", "cilium-envoy", None),
            ("docker.io/kindest/kindnetd:v20260528-b6eb8f4b", "x", Some(Program::Kindnet)),
            ("docker.io/cloudnativelabs/kube-router:v2.6.0", "x", Some(Program::KubeRouter)),
            ("docker.io/weaveworks/weave-kube:2.8.1", "weave", Some(Program::Weave)),
            ("registry.k8s.io/kube-proxy:v1.36.3", "kube-proxy", Some(Program::KubeProxy)),
            ("registry.k8s.io/pause:3.10", "pause", None),
        ] {
            assert_eq!(program(image(text).0, container), expected, "{text} {container}");
        }
    }

    #[test]
    fn versions_are_read_from_tags() {
        for (text, tag, expected) in [
            ("registry.example.com:5000/flannel", None, None),
            ("registry.example.com:5000/flannel:v0.28.9-build20260107", Some("v0.28.9-build20260107"), Some("0.28.9")),
            ("quay.io/cilium/cilium:v1.19.4@sha256:00", Some("v1.19.4"), Some("1.19.4")),
            ("x:latest", Some("latest"), None),
        ] {
            let found = image(text).1;
            assert_eq!((found, found.and_then(version).as_deref()), (tag, expected), "{text}");
        }
    }
}
