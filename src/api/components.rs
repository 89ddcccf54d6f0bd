//! The components that Linux nodes run for the cluster and Windows nodes need too: so far its pod network and kube-proxy. Part of a WindowsCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Components of the cluster that its Linux nodes have and its Windows nodes need too.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Components {
    /// `Report`: status.components and the condition NetworkCompatible report what the Linux side of the cluster lacks. `Auto`: CAPW reports the same, and
    /// deploys what Windows nodes need in the namespace `capw-windows`: Flannel with vxlan or host-gw, and kube-proxy for Flannel and for Calico with its
    /// operator; for their pods it creates the objects of `policies`. The condition ComponentsReady shows the progress. CAPW removes all of this when the
    /// Cluster is deleted, after the last Windows machine. If `Report` is set later, it stays, and so does the taint of nodes that are not verified:
    /// ComponentsReady then names these nodes and the command that removes the taint. `Off` (in YAML in quotes, or it is read as false): CAPW does not read the cluster, and removes what it deployed there.
    #[serde(default)]
    pub mode: ComponentsMode,
    /// `Report`: only people change what Linux nodes run. `Change`: CAPW makes the changes for which status.components.findings has commands, and
    /// restarts Flannel's pods on Linux nodes, which interrupts their traffic to other nodes for a while; Calico's operator restarts the pods of Calico.
    /// CAPW makes each change once, only if no other problem prevents it, and never in an object that Helm, Flux, Argo CD or an owner manages. The
    /// condition LinuxSideReady shows the progress.
    #[serde(default)]
    pub linux_side: LinuxSideMode,
    /// Objects that CAPW creates for pods on Windows nodes, whatever the network is; with `mode: Auto` only.
    #[serde(default)]
    pub policies: Policies,
    /// Settings of the CAPW image: its part for Windows runs in the pods that CAPW deploys with `mode: Auto`.
    #[serde(default)]
    pub images: ComponentImages,
    /// Checks that a new Windows node must pass before other pods are scheduled to it; with `mode: Auto` only.
    #[serde(default)]
    pub probes: Probes,
}

/// Checks of new Windows nodes.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// `Datapath`: once the network and kube-proxy of a new node are ready, CAPW starts a pod there. The pod must reach a pod of the cluster's name
    /// resolution, and the API server by its Service and by its name; a pod on a Linux node must reach the new pod by its own address and by a
    /// NodePort of the new node. Then CAPW removes the taint from the node. The condition ComponentsReady reports the connections that fail.
    /// `Off` (in YAML in quotes, or it is read as false): CAPW removes the taint as soon as the network and kube-proxy are ready.
    #[serde(default)]
    pub mode: ProbesMode,
    /// The image of the probe pods, e.g. from a mirror: Kubernetes' agnhost, for Linux and for the nodes' releases of Windows. If left out, it is
    /// `registry.k8s.io/e2e-test-images/agnhost:2.63.0`. Nodes pull it with `images.pullSecrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._/:@]*$')").message("must be the name of an image, e.g. registry.example.com/agnhost:2.63.0"))]
    pub image: Option<String>,
    /// Connections that are not checked, e.g. `[NodePort]` if a firewall between the nodes blocks NodePorts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub skip: Vec<ProbeTarget>,
    /// Address outside the cluster that a pod on a new node must reach by TCP: a name or IPv4 address, and a port, e.g. `proxy.example.com:3128`. If left
    /// out, no such address is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 259))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*[.]?:[1-9][0-9]{0,4}$') && int(self.split(':')[1]) < 65536").message("must be a name or an IPv4 address with a port, e.g. proxy.example.com:3128"))]
    pub outside: Option<String>,
}

impl Probes {
    /// The image of the probe pods, unless the spec names another.
    const IMAGE: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";

    /// The image of the probe pods; `None` if there are no probe pods.
    pub fn image_in_use(&self) -> Option<&str> {
        (self.mode == ProbesMode::Datapath).then(|| self.image.as_deref().unwrap_or(Self::IMAGE))
    }
}

/// The checks that a new Windows node must pass.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ProbesMode {
    /// A pod on the node reaches what pods need.
    #[default]
    Datapath,
    /// The network and kube-proxy of the node are ready.
    Off,
}

/// A connection that is checked. The variants are in order of dependency.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ProbeTarget {
    /// A pod of the cluster's name resolution, which is on a Linux node.
    Pod,
    /// The API server, by the address of its Service.
    Service,
    /// The name resolution, by the address of its Service.
    NameServer,
    /// The API server, by its name.
    Name,
    /// The address in `outside`.
    Outside,
    /// The pod on the new node, from a pod on a Linux node. With address translation on the way out, the others work even if no route leads back.
    Back,
    /// The pod on the new node, from a pod on a Linux node, by a NodePort of the new node.
    NodePort,
}

/// Settings of the image of the pods that CAPW deploys on Windows nodes.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentImages {
    /// Secrets of the type `kubernetes.io/dockerconfigjson` in the namespace `capw-windows` of the workload cluster, with which nodes pull the image.
    /// CAPW does not create, read or copy them. When the list changes, the pods are recreated, one node after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pull_secrets: Vec<PullSecret>,
}

impl ComponentImages {
    /// The names of the Secrets.
    pub fn pull_secret_names(&self) -> Vec<String> {
        self.pull_secrets.iter().map(|secret| secret.name.clone()).collect()
    }
}

/// A Secret of the workload cluster.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PullSecret {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be the name of a Secret: lower case letters, digits, - and ."))]
    pub name: String,
}

/// Objects in the cluster for pods on Windows nodes.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// `Auto`: CAPW creates a RuntimeClass for each release of Windows Server that a node, a WindowsBootstrapConfig or a template of the cluster has,
    /// e.g. `windows-2022`; where `windows.hyperVIsolation` is on, `windows-2022-hyperv` too. It removes a RuntimeClass whose release is no longer in
    /// use, after the last pod that uses it. `Off` (in YAML in quotes, or it is read as false): CAPW removes each of them after the last pod that uses it.
    #[serde(default)]
    pub runtime_classes: RuntimeClassesMode,
    /// `Warn`: users who write a pod for Windows, or a Deployment, DaemonSet, StatefulSet, Job or CronJob of such pods, get a warning about settings that
    /// do not work on Windows. `Deny`: pods that cannot work on Windows are refused too. `Off` (in YAML in quotes, or it is read as false): neither. The
    /// API server warns and refuses by admission policies, whose names begin with `capw-windows-`.
    #[serde(default)]
    pub validation: ValidationMode,
}

impl Policies {
    /// No objects for pods.
    pub const OFF: Self = Self { runtime_classes: RuntimeClassesMode::Off, validation: ValidationMode::Off };
}

/// Who creates RuntimeClasses.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum RuntimeClassesMode {
    /// CAPW.
    #[default]
    Auto,
    /// Only people.
    Off,
}

/// What happens to pods for Windows with settings that do not work there.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ValidationMode {
    /// No warning.
    Off,
    /// The users who write them get a warning.
    #[default]
    Warn,
    /// Pods that cannot work are refused too.
    Deny,
}

/// The taint of new Windows nodes whose network CAPW deploys. It keeps pods away until the network works, and cluster-autoscaler treats it as temporary:
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-can-i-use-startup-taints>.
pub const UNVERIFIED_TAINT: &str = "startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified";

/// Field manager of the objects that CAPW deploys for Windows nodes.
pub const COMPONENTS_MANAGER: &str = "capw-components";
/// Field manager of the fields that CAPW changes on the Linux side.
pub const LINUX_SIDE_MANAGER: &str = "capw-linux-side";

/// What CAPW does about components.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ComponentsMode {
    /// Read, report, and deploy what Windows nodes need.
    Auto,
    /// Read and report.
    #[default]
    Report,
    /// Do not read, and remove what was deployed.
    Off,
}

/// Who changes what Linux nodes run.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum LinuxSideMode {
    /// Only people.
    #[default]
    Report,
    /// CAPW too.
    Change,
}

/// Observed state of the cluster's components.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentsStatus {
    /// The pod network of Linux nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// Components that CAPW deploys on Windows nodes with `mode: Auto`, and Calico's own DaemonSet where its operator deploys the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub parts: Vec<ComponentPart>,
    /// Kind and name of each object that CAPW creates for Windows pods with `mode: Auto`, e.g. `RuntimeClass windows-2022`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 100)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub objects: Vec<String>,
    /// With `mode: Report`: the changes that CAPW would make in the workload cluster at once with `mode: Auto`, e.g.
    /// `create DaemonSet capw-windows/flannel` or `change ConfigMap capw-windows/flannel (data[net-conf.json])`, and the reasons for which it would not
    /// deploy something, as in the condition ComponentsReady, e.g. `NameTaken: …`. Changes to Linux nodes are in `findings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1000)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub planned: Vec<String>,
    /// Windows nodes with all parts ready that have passed the probes, out of all Windows nodes, e.g. `2/2`. New nodes have a taint until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub verified: Option<String>,
    /// Time since which CAPW has been removing what it deployed, because the Cluster or the WindowsCluster is being deleted; it gives up after 120 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing_since: Option<Time>,
    /// Settings that keep Windows nodes from working, worst first; at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub findings: Vec<ComponentFinding>,
}

/// A program that is deployed on Windows nodes.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentPart {
    /// Name of its DaemonSet: `flannel` or `kube-proxy` in the namespace `capw-windows`, `calico-node-windows` in Calico's namespace.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Pods that run with the current settings.
    #[schemars(range(min = 0))]
    pub ready: i64,
    /// Windows nodes that should have such a pod.
    #[schemars(range(min = 0))]
    pub desired: i64,
    /// Why a pod is not ready, as the pod reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub message: Option<String>,
}

/// A pod network.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Type and mode, e.g. `flannel/vxlan`.
    #[schemars(length(max = 100))]
    pub name: String,
    /// Version of its program on Linux nodes, e.g. `0.28.9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub version: Option<String>,
    /// Network identifier of VXLAN on Linux nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<i64>,
    /// UDP port of the tunnel on Linux nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// The networks of pods, e.g. `10.244.0.0/16`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pod_networks: Vec<String>,
    /// The networks of Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub service_networks: Vec<String>,
    /// Number of pods that can have an address on a Windows node: the addresses in the node's part of the pod network, less those that are not for
    /// pods. `maxPods` of the node's kubelet must not be greater.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pods_per_node: Option<i64>,
    /// Sources from which CAPW read each of these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub from: Option<String>,
    /// How the network gets to Windows nodes: `Run`: its program does not run there yet, and CAPW deploys it; `Ask`: its own operator deploys it, once the
    /// operator's switch for Windows is set, and CAPW deploys kube-proxy; `Check`: the makers of the network, the cloud, or an existing DaemonSet
    /// deploy it; `Refuse`: it cannot run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub role: Option<String>,
}

/// Something in the cluster that keeps Windows nodes from working.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentFinding {
    /// Reason, as in the condition.
    #[schemars(length(max = 100))]
    pub reason: String,
    /// Kind, namespace and name, e.g. `ConfigMap kube-flannel/kube-flannel-cfg`.
    #[schemars(length(max = 600))]
    pub object: String,
    /// The field of the object.
    #[schemars(length(max = 600))]
    pub field: String,
    /// Description of the problem.
    #[schemars(length(max = 1000))]
    pub message: String,
    /// Remedy.
    #[schemars(length(max = 1000))]
    pub remedy: String,
    /// The command that solves the problem, if one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4000))]
    pub command: Option<String>,
}
