//! What Linux nodes run for the cluster and Windows nodes need too: its pod network and kube-proxy so far. Part of a WindowsCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parts of the cluster that its Windows nodes need as its Linux nodes have them.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Components {
    /// `Report`: what the Linux side of the cluster lacks is said in status.components and in the condition NetworkCompatible. `Auto`: that, and
    /// CAPW brings to Windows nodes what they need, in the namespace `capw-windows`: Flannel with vxlan or host-gw, and kube-proxy for that and for
    /// Calico by its operator; and for their pods what `policies` says. The condition ComponentsReady has the progress. It goes with the Cluster, after
    /// the last Windows machine. What it brought stays if `Report` is set later, and so does the taint of nodes that are not verified, which
    /// ComponentsReady then names with the command that takes it away. `Off` (in YAML in quotes, or it is read as false): the cluster is not looked at, and what CAPW brought there is removed.
    #[serde(default)]
    pub mode: ComponentsMode,
    /// `Report`: only people change what Linux nodes run. `Change`: CAPW makes the changes that status.components.findings has commands for, and
    /// restarts the pods of Flannel on Linux nodes, which cuts their traffic to other nodes for a while; of Calico, its operator restarts the pods.
    /// Nothing that Helm, Flux, Argo CD or an owner manages, each thing once, and only if nothing else stands in the way. The condition LinuxSideReady
    /// has the progress.
    #[serde(default)]
    pub linux_side: LinuxSideMode,
    /// Objects that CAPW creates for pods on Windows nodes, whatever the network is; with `mode: Auto` only.
    #[serde(default)]
    pub policies: Policies,
    /// The image of CAPW, whose part for Windows the pods run that it brings with `mode: Auto`.
    #[serde(default)]
    pub images: ComponentImages,
    /// Checks that a new Windows node must pass before other pods are scheduled to it; with `mode: Auto` only.
    #[serde(default)]
    pub probes: Probes,
}

/// How new Windows nodes are tried out.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// `Datapath`: once the network and kube-proxy of a new node are ready, a pod there has to reach a pod of the cluster's name resolution, the API
    /// server by its Service and by its name, and a pod on a Linux node has to reach it, by its own address and by a NodePort of the new node, before
    /// CAPW takes the taint from the node. The condition ComponentsReady says what is not reached.
    /// `Off` (in YAML in quotes, or it is read as false): the taint goes as soon as the network and kube-proxy are ready.
    #[serde(default)]
    pub mode: ProbesMode,
    /// The image of these pods, e.g. that of a mirror: agnhost of Kubernetes for Linux and the nodes' releases of Windows. Left out, it is
    /// `registry.k8s.io/e2e-test-images/agnhost:2.63.0`. Nodes pull it with `images.pullSecrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._/:@]*$')").message("must be the name of an image, e.g. registry.example.com/agnhost:2.63.0"))]
    pub image: Option<String>,
    /// Connections that are not checked, e.g. `[NodePort]` where a firewall between the nodes lets no NodePorts through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub skip: Vec<ProbeTarget>,
    /// Address outside of the cluster that a pod on a new node must reach, by TCP: name or IPv4 address, and port, e.g. `proxy.example.com:3128`. Left out,
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 259))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*[.]?:[1-9][0-9]{0,4}$') && int(self.split(':')[1]) < 65536").message("must be a name or an IPv4 address with a port, e.g. proxy.example.com:3128"))]
    pub outside: Option<String>,
}

impl Probes {
    /// The image, unless another is named.
    const IMAGE: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";

    /// The image of the pods; `None`: there are none.
    pub fn image_in_use(&self) -> Option<&str> {
        (self.mode == ProbesMode::Datapath).then(|| self.image.as_deref().unwrap_or(Self::IMAGE))
    }
}

/// What a new Windows node has to show.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ProbesMode {
    /// That a pod reaches what pods need.
    #[default]
    Datapath,
    /// Nothing more than that its network and kube-proxy are ready.
    Off,
}

/// A connection that is checked, in the order in which one needs the other.
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
    /// What `outside` names.
    Outside,
    /// The pod on the new node, from one on a Linux node: an address that is translated on the way out leads there, and none leads back.
    Back,
    /// The same by a NodePort of the new node.
    NodePort,
}

/// How Windows nodes get the image of what CAPW brings to them.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentImages {
    /// Secrets of the type `kubernetes.io/dockerconfigjson` in the namespace `capw-windows` of the workload cluster, with which nodes pull the image.
    /// CAPW neither makes, reads nor copies them. Another list recreates the pods, one node after the other.
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

/// What the cluster has for pods on Windows nodes.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// `Auto`: a RuntimeClass for each release of Windows Server that a node, a WindowsBootstrapConfig or a template of the cluster has, e.g.
    /// `windows-2022`; where `windows.hyperVIsolation` is on, `windows-2022-hyperv` too. One that none has any more goes with the last pod that
    /// uses it. `Off` (in YAML in quotes, or it is read as false): they go with the last pods that use them.
    #[serde(default)]
    pub runtime_classes: RuntimeClassesMode,
    /// `Warn`: who writes a pod for Windows, or a Deployment, DaemonSet, StatefulSet, Job or CronJob of such pods, is warned of what does not work on
    /// Windows. `Deny`: pods that cannot work on Windows are refused too. `Off` (in YAML in quotes, or it is read as false): neither. The API server does it by admission policies, whose names
    /// begin with `capw-windows-`.
    #[serde(default)]
    pub validation: ValidationMode,
}

impl Policies {
    /// Nothing.
    pub const OFF: Self = Self { runtime_classes: RuntimeClassesMode::Off, validation: ValidationMode::Off };
}

/// Who makes RuntimeClasses.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum RuntimeClassesMode {
    /// CAPW.
    #[default]
    Auto,
    /// Only people.
    Off,
}

/// What becomes of pods for Windows that have what does not work there.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ValidationMode {
    /// Nothing is said.
    Off,
    /// Who writes them is warned.
    #[default]
    Warn,
    /// Those that cannot work are refused.
    Deny,
}

/// The taint of new Windows nodes that CAPW brings their network to. It keeps pods away until that works, and cluster-autoscaler knows it for one that
/// goes: <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-can-i-use-startup-taints>.
pub const UNVERIFIED_TAINT: &str = "startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified";

/// Whose the fields are of what CAPW brings to Windows nodes.
pub const COMPONENTS_MANAGER: &str = "capw-components";
/// Whose the fields are that CAPW changes of the Linux side.
pub const LINUX_SIDE_MANAGER: &str = "capw-linux-side";

/// What is done about components.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ComponentsMode {
    /// Read, report, and bring what Windows nodes need.
    Auto,
    /// Read and report.
    #[default]
    Report,
    /// Do not look, and remove what was brought.
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

/// What the Linux side of the cluster shows.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentsStatus {
    /// The pod network of Linux nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// Components that CAPW deploys on Windows nodes with `mode: Auto`, and Calico's own DaemonSet where its operator brings the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub parts: Vec<ComponentPart>,
    /// Kind and name of what CAPW brings for Windows pods, with `mode: Auto`, e.g. `RuntimeClass windows-2022`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 100)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub objects: Vec<String>,
    /// With `mode: Report`: what CAPW would write in the workload cluster at once with `mode: Auto`, e.g. `create DaemonSet capw-windows/flannel` or
    /// `change ConfigMap capw-windows/flannel (data[net-conf.json])`, and why it would not bring something, as ComponentsReady would say it, e.g.
    /// `NameTaken: …`. What it would change on Linux nodes is in `findings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1000)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub planned: Vec<String>,
    /// Windows nodes on which all parts are ready and that have passed the probes, of all, e.g. `2/2`. New ones have a taint until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub verified: Option<String>,
    /// Time since which CAPW removes what it deployed, because the Cluster or the WindowsCluster is being deleted; it gives up after 120 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing_since: Option<Time>,
    /// Settings that keep Windows nodes from working, worst first; at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub findings: Vec<ComponentFinding>,
}

/// A program that Windows nodes get.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentPart {
    /// Of its DaemonSet: `flannel` and `kube-proxy` in the namespace `capw-windows`, `calico-node-windows` in that of Calico.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Pods that run with the present settings.
    #[schemars(range(min = 0))]
    pub ready: i64,
    /// Windows nodes that shall have one.
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
    /// The networks of pods, as `10.244.0.0/16`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pod_networks: Vec<String>,
    /// The networks of Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub service_networks: Vec<String>,
    /// How many pods have an address on a Windows node: those of a node's part of the pod network, less those that are not for pods. `maxPods` of its
    /// kubelet must not be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pods_per_node: Option<i64>,
    /// Sources: where each of these was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub from: Option<String>,
    /// Who brings it to Windows nodes: `Run`, nothing yet, its program has to run there; `Ask`, its own operator, once its switch for Windows is
    /// set; `Check`, its makers, the cloud, or a DaemonSet that is there already; `Refuse`, nothing can. CAPW does `Run`; for `Ask` it
    /// brings kube-proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub role: Option<String>,
}

/// Something in the cluster that keeps Windows nodes from working.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentFinding {
    /// As in the condition.
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
    /// The command that puts it right, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4000))]
    pub command: Option<String>,
}
