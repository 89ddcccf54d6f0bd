//! The pods that test a new Windows node (pure): the targets that a pod there must reach before other pods come, and the connections to it. Each
//! container opens one connection with `agnhost connect`, a program of Kubernetes' own tests; the kubelet restarts the container until it succeeds:
//! <https://github.com/kubernetes/kubernetes/tree/v1.36.3/test/images/agnhost#connect>. The pod on the new node connects in sequence, with init
//! containers, and is ready when it answers: on Windows, kube-proxy sends nothing to a pod that is not ready, whatever the Service's settings.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde::Deserialize;
use serde_json::{Value, json};

use super::cidr::Cidr;
use super::linux_side::LinuxSide;
use super::place::{ObjectRef, is_of_kind};
use super::plan::{digest, labels};
use super::services::is_ready;
use super::wanted::NAME_RESOLUTION;
use super::windows_side::{NAMESPACE, with_pull_secrets};
use crate::api::capi::DRAIN_LABEL;
use crate::api::components::{ProbeTarget, Probes};
use crate::api::listing::Listing;

/// The name label of the pods on new nodes, and the prefix of their names.
const NAME: &str = "probe";
/// The name label and prefix of the pods on Linux nodes that connect to new nodes.
const BACK: &str = "probe-back";

/// The port on which a pod on a new node answers; the name of the answering container follows.
pub const PORT: u16 = 9376;
pub const ANSWER: &str = "answer";

/// Annotation: the digest of a pod's input.
const SETTINGS: &str = "infrastructure.cluster.x-k8s.io/probe-settings";

/// Annotation: the pod does not prevent the removal of its node by the autoscaler.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node>
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// The endpoints of the cluster's name resolution. Kubernetes copies the labels of its Service.
pub const NAME_SERVERS: Listing = Listing::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices").with_labels(NAME_RESOLUTION);

/// The longest time for one attempt.
const TIMEOUT: &str = "--timeout=10s";

/// Label of a pod on a new node: the name of the node, for its Service.
const NODE: &str = "infrastructure.cluster.x-k8s.io/probed-node";

/// The Services that expose the pods on new nodes by NodePorts.
pub const SERVICES: Listing =
    Listing::new("", "v1", "Service", "services").with_labels("app.kubernetes.io/managed-by=capw,app.kubernetes.io/name=probe");

impl ProbeTarget {
    pub const ALL: [Self; 7] = [Self::Pod, Self::Service, Self::NameServer, Self::Name, Self::Outside, Self::Back, Self::NodePort];

    /// The name of the target's container.
    pub const fn container(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Service => "service",
            Self::NameServer => "name-server",
            Self::Name => "name",
            Self::Outside => "outside",
            Self::Back => "back",
            Self::NodePort => "node-port",
        }
    }

    /// The message for a target that is not reached.
    pub const fn failure(self) -> &'static str {
        match self {
            Self::Pod => "a pod there does not reach a pod on a Linux node",
            Self::Service => "a pod there does not reach the API server by the address of its Service",
            Self::NameServer => "a pod there does not reach the cluster's name resolution by TCP",
            Self::Name => "a pod there does not reach the API server by its name",
            Self::Outside => "a pod there does not reach what is outside of the cluster",
            Self::Back => "a pod on a Linux node does not reach a pod there",
            Self::NodePort => "a pod on a Linux node does not reach a pod there by a NodePort of this node",
        }
    }

    /// The advice for a target that is not reached.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Pod | Self::Back => {
                "let the packets of the pod network through between all nodes (docs/pod-network.md says which), and the namespace capw-windows in \
                 network policies"
            }
            Self::Service => "read the log of kube-proxy on this node, in the namespace capw-windows",
            Self::NameServer => "see whether the pods of the name resolution are ready",
            Self::Name => {
                "compare clusterDNS and clusterDomain of the node's kubelet with the Service kube-dns; in a pod there `Resolve-DnsName` asks as programs \
                 do, and nslookup does not"
            }
            Self::Outside => "see what lets packets of the node out, and whether spec.components.probes.outside of the WindowsCluster is right",
            Self::NodePort => {
                "let NodePorts through between all nodes, by default TCP 30000 to 32767, or set spec.components.probes.skip of the WindowsCluster to \
                 [NodePort]"
            }
        }
    }
}

/// The input of a cluster's probe pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub image: String,
    /// The names of Secrets in [`NAMESPACE`] with which nodes pull the image.
    pub pull_secrets: Vec<String>,
    /// The targets that a pod on a new node must reach.
    pub reach: Vec<(ProbeTarget, String)>,
    /// The targets at which a pod on a Linux node must reach the new node's pod.
    pub reached: Vec<ProbeTarget>,
}

impl Probe {
    /// `objects` are the cluster's objects, with the [`NAME_SERVERS`]. A target that the cluster lacks is skipped.
    pub fn new(image: &str, pull_secrets: Vec<String>, asked: &Probes, side: &LinuxSide, objects: &[Value]) -> Self {
        let dns = side.dns.as_ref();
        let server = dns.and_then(|dns| dns.addresses.iter().find(|address| address.is_ipv4()));
        // Without the domain, no name can be tested: Windows does not complete a name with a dot.
        let domain = server.and_then(|_| dns?.domain.as_deref());
        let reach = [
            (ProbeTarget::Pod, name_server(side, objects).map(|address| address.to_string())),
            // The kubelet sets these variables in every pod, and replaces the references by their values.
            (ProbeTarget::Service, Some("$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)".to_owned())),
            (ProbeTarget::NameServer, server.map(|address| format!("{address}:53"))),
            // The final dot prevents the use of search domains.
            (ProbeTarget::Name, domain.map(|domain| format!("kubernetes.default.svc.{domain}.:443"))),
            (ProbeTarget::Outside, asked.outside.clone()),
        ];
        let is_asked = |target: &ProbeTarget| !asked.skip.contains(target);
        let reach = reach.into_iter().filter(|(target, _)| is_asked(target)).filter_map(|(target, address)| Some((target, address?))).collect();
        let reached = [ProbeTarget::Back, ProbeTarget::NodePort].into_iter().filter(is_asked).collect();
        Self { image: image.to_owned(), pull_secrets, reach, reached }
    }

    /// Returns the pod of a node. The pod is bound to the node in the way of a DaemonSet's pod.
    pub fn pod(&self, node: &str) -> Value {
        let field = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        let targets = self.reach.iter().map(|(target, address)| self.connects(*target, address));
        let mut pod = self.made(
            NAME,
            node,
            json!({
                "os": {"name": "windows"},
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": field}}},
                "tolerations": [{"operator": "Exists"}],
                "initContainers": targets.collect::<Vec<_>>(),
                "containers": [self.container(ANSWER, json!(["serve-hostname", format!("--port={PORT}")]))],
            }),
        );
        json_patch::merge(&mut pod, &json!({"metadata": {"labels": {NODE: node}}}));
        pod
    }

    /// Returns the Service that exposes an existing pod of a node by a NodePort. The Service is deleted with the pod.
    pub fn service(&self, node: &str, pod: &Value) -> Value {
        let name = pod.pointer("/metadata/name");
        let of = json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.pointer("/metadata/uid")}]);
        let port = json!({"name": ANSWER, "protocol": "TCP", "port": PORT, "targetPort": PORT});
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels(NAME), "ownerReferences": of},
            // Windows nodes are reached by IPv4.
            "spec": {"type": "NodePort", "ipFamilies": ["IPv4"], "selector": {NODE: node}, "ports": [port]},
        })
    }

    /// Returns the pod on a Linux node that connects to a new node's pod at these addresses.
    pub fn back(&self, node: &str, addresses: &[(ProbeTarget, String)]) -> Value {
        let control_plane = json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"});
        let rights = json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
        let container = |(target, address): &(ProbeTarget, String)| {
            let mut container = self.connects(*target, address);
            json_patch::merge(&mut container, &rights);
            container
        };
        self.made(
            BACK,
            node,
            json!({
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [control_plane],
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": addresses.iter().map(container).collect::<Vec<_>>(),
            }),
        )
    }

    fn connects(&self, target: ProbeTarget, address: &str) -> Value {
        self.container(target.container(), json!(["connect", address, TIMEOUT]))
    }

    /// Returns a pod with the fields that all probe pods share.
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
        // Cluster API does not wait for the pod when it drains the node.
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
            // The memory includes the processes that Windows itself runs in each container.
            "resources": {"requests": {"cpu": "10m", "memory": "50Mi"}, "limits": {"memory": "300Mi"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
        })
    }
}

/// Whether a pod was created from another input than the desired pod.
pub fn is_outdated(live: &Value, desired: &Value) -> bool {
    let digest = |pod: &Value| pod.get("metadata")?.get("annotations")?.get(SETTINGS).cloned();
    digest(live) != digest(desired)
}

/// The part of an object in the test of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probing {
    /// The pod on the new node.
    There,
    /// The pod on a Linux node.
    FromLinux,
    /// The Service that exposes the pod on the new node.
    NodePort,
}

/// Returns the node that an object tests, if the object is part of a test.
pub fn probed(object: &Value) -> Option<(Probing, String)> {
    let of = ObjectRef::of(object);
    let name = object.pointer("/metadata/labels/app.kubernetes.io~1name")?.as_str()?;
    let probing = match (of.kind.as_str(), name) {
        ("Service", NAME) => Probing::NodePort,
        ("Pod", NAME) => Probing::There,
        ("Pod", BACK) => Probing::FromLinux,
        _ => return None,
    };
    let node = of.name.strip_prefix(name)?.strip_prefix('-')?;
    (of.namespace.as_deref() == Some(NAMESPACE)).then(|| (probing, node.to_owned()))
}

/// Finds a ready pod of the name resolution on a Linux node, in the pod network.
fn name_server(side: &LinuxSide, objects: &[Value]) -> Option<SocketAddr> {
    let is_windows = |name: &String| side.nodes.iter().any(|node| node.windows && node.object.name == *name);
    let in_network = |address: IpAddr| side.network.pod_networks.iter().any(|network| network.contains(Cidr::of(address)));
    let of_slice = |slice: EndpointSlice| {
        let tcp: Vec<_> = slice.ports.unwrap_or_default().into_iter().filter(|port| port.protocol.as_deref() == Some("TCP")).collect();
        let named = tcp.iter().find(|port| port.name.as_deref() == Some("dns-tcp")).or(tcp.first());
        let port = named.and_then(|port| u16::try_from(port.port?).ok());
        let is_meant = |endpoint: &Endpoint| is_ready(endpoint) && !endpoint.node_name.as_ref().is_some_and(is_windows);
        let addresses = slice
            .endpoints
            .unwrap_or_default()
            .into_iter()
            .filter(is_meant)
            .filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
        let found: Vec<SocketAddr> = addresses.filter_map(|address| Some(SocketAddr::new(address, port?))).collect();
        found
    };
    let slices = objects.iter().filter(|object| is_of_kind(object, NAME_SERVERS.kind));
    let found = slices.filter_map(|slice| EndpointSlice::deserialize(slice).ok()).flat_map(of_slice);
    // `min` selects the same pod each time.
    found.filter(|server| server.is_ipv4() && in_network(server.ip())).min()
}
