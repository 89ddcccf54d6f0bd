//! The pods that try out a new Windows node (pure): what a pod there has to reach before others come, and that it is reached. A container makes one
//! connection by `agnhost connect`, a program of Kubernetes' own tests, and is started again by the kubelet until that succeeds:
//! <https://github.com/kubernetes/kubernetes/tree/v1.36.3/test/images/agnhost#connect>.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde::Deserialize;
use serde_json::{Value, json};

use super::cidr::Cidr;
use super::linux_side::LinuxSide;
use super::place::ObjectRef;
use super::plan::{digest, labels};
use super::wanted::NAME_RESOLUTION;
use super::windows_side::{NAMESPACE, with_pull_secrets};
use crate::api::capi::DRAIN_LABEL;
use crate::api::listing::Listing;

/// Of the pods on new nodes, and the beginning of their names.
const NAME: &str = "probe";
/// The same of the pods on Linux nodes that connect to them.
const BACK: &str = "probe-back";

/// Where a pod on a new node answers.
const PORT: u16 = 9376;

/// Annotation: the digest of what a pod was made with.
const SETTINGS: &str = "infrastructure.cluster.x-k8s.io/probe-settings";

/// Annotation: the pod keeps no node from being scaled down.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node>
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Where the pods of the cluster's name resolution are. Kubernetes copies the labels of its Service.
pub const NAME_SERVERS: Listing = Listing::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices").with_labels(NAME_RESOLUTION);

/// How long an attempt may take.
const TIMEOUT: &str = "--timeout=10s";

/// What a pod has to reach, in the order in which one leads to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A pod of the cluster's name resolution, which is on a Linux node.
    Pod,
    /// The API server, by the address of its Service.
    Service,
    /// The name resolution, by the address of its Service.
    NameServer,
    /// The API server, by its name.
    Name,
    /// The pod on the new node, from one on a Linux node: an address that is translated on the way out leads there, and none leads back.
    Back,
}

impl Target {
    pub const ALL: [Self; 5] = [Self::Pod, Self::Service, Self::NameServer, Self::Name, Self::Back];

    /// The name of its container.
    pub const fn container(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Service => "service",
            Self::NameServer => "name-server",
            Self::Name => "name",
            Self::Back => "back",
        }
    }

    /// In words, if it is not reached.
    pub const fn failure(self) -> &'static str {
        match self {
            Self::Pod => "a pod there does not reach a pod on a Linux node",
            Self::Service => "a pod there does not reach the API server by the address of its Service",
            Self::NameServer => "a pod there does not reach the cluster's name resolution by TCP",
            Self::Name => "a pod there does not reach the API server by its name",
            Self::Back => "a pod on a Linux node does not reach a pod there",
        }
    }

    /// What to look at if it is not reached.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Pod | Self::Back => {
                "let the packets of the pod network through between all nodes (docs/pod-network.md says which), and the namespace capw-windows in \
                 network policies"
            }
            Self::Service => "read the log of kube-proxy on this node, in the namespace capw-windows",
            Self::NameServer => "see whether the pods of the name resolution are ready",
            Self::Name => "compare clusterDNS and clusterDomain of the node's kubelet with the Service kube-dns",
        }
    }
}

/// What the pods of a cluster are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub image: String,
    /// Names of Secrets in [`NAMESPACE`] with which nodes pull the image.
    pub pull_secrets: Vec<String>,
    pub reach: Vec<(Target, String)>,
}

impl Probe {
    /// `slices`: the [`NAME_SERVERS`]. What the cluster does not have is not to be reached.
    pub fn new(image: &str, pull_secrets: Vec<String>, side: &LinuxSide, slices: &[Value]) -> Self {
        let dns = side.dns.as_ref();
        let server = dns.and_then(|dns| dns.addresses.iter().find(|address| address.is_ipv4()));
        // Of a domain that is not known, no name is: Windows completes none that has a dot.
        let domain = server.and_then(|_| dns?.domain.as_deref());
        let reach = [
            (Target::Pod, name_server(side, slices).map(|address| address.to_string())),
            // The kubelet gives these to every pod, and puts them in the place of the words.
            (Target::Service, Some("$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)".to_owned())),
            (Target::NameServer, server.map(|address| format!("{address}:53"))),
            // The dot at the end keeps the search domains out.
            (Target::Name, domain.map(|domain| format!("kubernetes.default.svc.{domain}.:443"))),
        ];
        let reach = reach.into_iter().filter_map(|(target, address)| Some((target, address?))).collect();
        Self { image: image.to_owned(), pull_secrets, reach }
    }

    /// The pod of a node. It is bound to it as those of DaemonSets are.
    pub fn pod(&self, node: &str) -> Value {
        let field = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        let targets = self.reach.iter().map(|(target, address)| self.container(target.container(), json!(["connect", address, TIMEOUT])));
        let answers = self.container("answer", json!(["serve-hostname", format!("--port={PORT}")]));
        self.made(
            NAME,
            node,
            json!({
                "os": {"name": "windows"},
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": field}}},
                "tolerations": [{"operator": "Exists"}],
                "containers": targets.chain([answers]).collect::<Vec<_>>(),
            }),
        )
    }

    /// The pod on a Linux node that connects to that of a node, at this address.
    pub fn back(&self, node: &str, address: &str) -> Value {
        let control_plane = json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"});
        let mut container = self.container(Target::Back.container(), json!(["connect", format!("{address}:{PORT}"), TIMEOUT]));
        let rights = json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
        json_patch::merge(&mut container, &rights);
        self.made(
            BACK,
            node,
            json!({
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [control_plane],
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [container],
            }),
        )
    }

    /// A pod with what all of them have.
    fn made(&self, name: &str, node: &str, mut spec: Value) -> Value {
        let common = json!({
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 5,
        });
        json_patch::merge(&mut spec, &common);
        let spec = with_pull_secrets(spec, &self.pull_secrets);
        let digest = digest(&spec.to_string());
        let mut labels = labels(name);
        // Cluster API does not wait for it when it drains the node.
        labels.extend([(DRAIN_LABEL.to_owned(), json!("skip"))]);
        let annotations = json!({SETTINGS: digest, SAFE_TO_EVICT: "true"});
        let metadata = json!({"name": format!("{name}-{node}"), "namespace": NAMESPACE, "labels": labels, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }

    fn container(&self, name: &str, arguments: Value) -> Value {
        json!({
            "name": name,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": arguments,
            // What Windows itself runs in each container counts, too.
            "resources": {"requests": {"cpu": "10m", "memory": "50Mi"}, "limits": {"memory": "300Mi"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
        })
    }
}

/// Whether a pod was made with something else than this one.
pub fn is_outdated(live: &Value, desired: &Value) -> bool {
    let digest = |pod: &Value| pod.get("metadata")?.get("annotations")?.get(SETTINGS).cloned();
    digest(live) != digest(desired)
}

/// Where a pod is that tries out a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probing {
    There,
    FromLinux,
}

/// The node that a pod tries out, if it does.
pub fn probed(pod: &Value) -> Option<(Probing, String)> {
    let of = ObjectRef::of(pod);
    let name = pod.pointer("/metadata/labels/app.kubernetes.io~1name")?.as_str()?;
    let probing = [(NAME, Probing::There), (BACK, Probing::FromLinux)].into_iter().find(|(known, _)| *known == name)?.1;
    let node = of.name.strip_prefix(name)?.strip_prefix('-')?;
    (of.namespace.as_deref() == Some(NAMESPACE)).then(|| (probing, node.to_owned()))
}

/// A ready pod of the name resolution on a Linux node, in the pod network.
fn name_server(side: &LinuxSide, slices: &[Value]) -> Option<SocketAddr> {
    let is_windows = |name: &String| side.nodes.iter().any(|node| node.windows && node.object.name == *name);
    let in_network = |address: IpAddr| side.network.pod_networks.iter().any(|network| network.contains(Cidr::of(address)));
    let of_slice = |slice: EndpointSlice| {
        let tcp: Vec<_> = slice.ports.unwrap_or_default().into_iter().filter(|port| port.protocol.as_deref() == Some("TCP")).collect();
        let named = tcp.iter().find(|port| port.name.as_deref() == Some("dns-tcp")).or(tcp.first());
        let port = named.and_then(|port| u16::try_from(port.port?).ok());
        let is_meant = |endpoint: &Endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
                && !endpoint.node_name.as_ref().is_some_and(is_windows)
        };
        let addresses = slice
            .endpoints
            .unwrap_or_default()
            .into_iter()
            .filter(is_meant)
            .filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
        let found: Vec<SocketAddr> = addresses.filter_map(|address| Some(SocketAddr::new(address, port?))).collect();
        found
    };
    let found = slices.iter().filter_map(|slice| EndpointSlice::deserialize(slice).ok()).flat_map(of_slice);
    // The same one each time.
    found.filter(|server| server.is_ipv4() && in_network(server.ip())).min()
}
