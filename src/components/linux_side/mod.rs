//! The pod network of a cluster as its Linux side shows it: the kind of network, and the settings that its Windows side must share.
//!
//! The nodes' own state has priority, because it is in use; DaemonSets, ConfigMaps and the network's own objects follow.

mod antrea;
mod calico;
mod cluster;
mod detect;
mod felix;
mod flannel;
mod operator;
mod others;
mod ovn;
mod ranges;

use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

pub use self::antrea::Antrea;
pub use self::calico::{Calico, Encapsulation, Pool, Setting};
pub use self::cluster::{Dns, KubeProxy};
pub use self::detect::ANNOTATIONS;
pub use self::flannel::{Config, DATA, Flannel, NET_CONF, NODE_ARGUMENTS, Shown, TYPE};
pub use self::operator::{ENDPOINT, HOST, OF_LINUX, Operator, PORT};
pub use self::others::Aws;
pub use self::ovn::Ovn;
use super::cidr::Cidr;
use super::objects::Objects;
use super::place::{ObjectRef, Place, Unreadable};
use super::workloads::{Program, Workload, workloads};
use crate::api::name::ProviderId;

/// The kinds of pod networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Flannel,
    Calico,
    Antrea,
    OvnKubernetes,
    AzureCni,
    AwsVpcCni,
    Cilium,
    /// Flannel's network with Calico's policies.
    Canal,
    Kindnet,
    KubeRouter,
    Weave,
    Unknown,
}

impl Kind {
    pub const ALL: [Self; 12] = [
        Self::Flannel,
        Self::Calico,
        Self::Antrea,
        Self::OvnKubernetes,
        Self::AzureCni,
        Self::AwsVpcCni,
        Self::Cilium,
        Self::Canal,
        Self::Kindnet,
        Self::KubeRouter,
        Self::Weave,
        Self::Unknown,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flannel => "flannel",
            Self::Calico => "calico",
            Self::Antrea => "antrea",
            Self::OvnKubernetes => "ovn-kubernetes",
            Self::AzureCni => "azure-cni",
            Self::AwsVpcCni => "aws-vpc-cni",
            Self::Cilium => "cilium",
            Self::Canal => "canal",
            Self::Kindnet => "kindnet",
            Self::KubeRouter => "kube-router",
            Self::Weave => "weave",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The Linux side of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct LinuxSide {
    pub network: Network,
    /// `None`: no DaemonSet exists; another program replaces kube-proxy, or kube-proxy is part of the node's own programs.
    pub kube_proxy: Option<KubeProxy>,
    pub service_networks: Vec<Cidr>,
    pub dns: Option<Dns>,
    /// The Linux and Windows nodes.
    pub nodes: Vec<Node>,
    /// The DaemonSets for Windows nodes that do not belong to CAPW.
    pub on_windows: Vec<OnWindows>,
    /// Sources that contradict the chosen values.
    pub disagreements: Vec<Disagreement>,
    pub unreadable: Vec<Unreadable>,
}

/// The pod network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub kind: Kind,
    /// The version, e.g. `0.28.9`.
    pub version: Option<String>,
    /// The mode in the network's own terms: `vxlan`, `host-gw`, `encap`.
    pub mode: Option<String>,
    /// The VNI of VXLAN on Linux nodes.
    pub vni: Option<u32>,
    /// The port of the tunnel on Linux nodes.
    pub port: Option<u32>,
    pub pod_networks: Vec<Cidr>,
    /// The sources of all facts.
    pub from: Vec<Origin>,
    pub settings: Settings,
}

/// The source of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub fact: &'static str,
    pub source: String,
}

/// The settings that only one kind of network has.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    Flannel(Flannel),
    Calico(Box<Calico>),
    Antrea(Antrea),
    Ovn(Ovn),
    Aws(Aws),
    /// The network has no settings that matter.
    None,
    /// The reason why no network was recognized.
    Unknown(String),
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub object: ObjectRef,
    pub windows: bool,
    pub addresses: Vec<IpAddr>,
    /// The node's blocks of the pod network.
    pub blocks: Vec<Cidr>,
    /// The keys of the node's taints.
    pub taints: Vec<String>,
    /// Whether CAPW created the node, according to its provider ID.
    pub is_ours: bool,
}

/// A DaemonSet for Windows nodes that does not belong to CAPW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnWindows {
    pub object: ObjectRef,
    pub programs: Vec<Program>,
}

/// The networks that one object contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub object: ObjectRef,
    pub field: String,
    pub networks: Vec<Cidr>,
}

impl Told {
    fn at(place: &Place<'_>) -> Self {
        Self { object: place.object.clone(), field: place.field.clone(), networks: place.networks() }
    }
}

/// A source that contradicts the chosen value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub object: ObjectRef,
    pub field: String,
    pub message: String,
}

/// The result of reading one family of networks.
struct Family {
    version: Option<String>,
    mode: Option<String>,
    vni: Option<u32>,
    port: Option<u32>,
    from: Vec<Origin>,
    settings: Settings,
}

impl Family {
    fn plain(version: Option<String>, mode: Option<String>) -> Self {
        Self { version, mode, vni: None, port: None, from: Vec::new(), settings: Settings::None }
    }
}

/// The input of all readers.
struct Cluster<'a> {
    objects: &'a Objects<'a>,
    linux: Vec<Place<'a>>,
    workloads: Vec<Workload<'a>>,
}

impl<'a> Cluster<'a> {
    /// The DaemonSets that run on Linux nodes. A selector that matches no node disables a DaemonSet.
    fn linux_sets(&self) -> impl Iterator<Item = &Workload<'a>> {
        let fits = |set: &&Workload<'a>, node: &Place<'_>| {
            let labels = node.along("metadata.labels");
            set.selector.iter().all(|(key, value)| labels.at(key).text().as_ref() == Some(value))
        };
        self.workloads.iter().filter(move |set| !set.windows && (self.linux.is_empty() || self.linux.iter().any(|node| fits(set, node))))
    }

    /// The DaemonSet that runs a program on Linux nodes.
    fn linux_set(&self, program: Program) -> Option<&Workload<'a>> {
        self.linux_sets().find(|set| set.runs(program))
    }

    /// The version of a program on Linux nodes, from the tag of its image.
    fn version(&self, program: Program) -> Option<String> {
        self.linux_set(program)?.container(program)?.tag.as_deref().and_then(super::workloads::version)
    }

    /// The number of Linux nodes, for messages.
    fn nodes(&self) -> String {
        counted(self.linux.len())
    }
}

/// Formats a number of nodes: `1 Linux node`, `3 Linux nodes`.
fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 Linux node".into() } else { format!("{nodes} Linux nodes") }
}

/// Whether a node runs Windows. Linux is the default.
pub fn is_windows(node: &Place<'_>) -> bool {
    let label = || node.at("metadata").at("labels").at("kubernetes.io/os").text();
    node.along("status.nodeInfo.operatingSystem").text().or_else(label).as_deref() == Some("windows")
}

fn node(place: &Place<'_>) -> Node {
    let internal = place.along("status.addresses").items().into_iter().filter(|address| address.at("type").text().as_deref() == Some("InternalIP"));
    let addresses = internal.filter_map(|address| {
        let address = address.at("address");
        let text = address.text()?;
        text.parse().map_err(|_| address.problem(format!("is {text:?}, expected an address"))).ok()
    });
    let taints = place.along("spec.taints").items().into_iter().filter_map(|taint| taint.at("key").text());
    Node {
        object: place.object.clone(),
        windows: is_windows(place),
        addresses: addresses.collect(),
        blocks: blocks(place),
        taints: taints.collect(),
        is_ours: place.along("spec.providerID").text().is_some_and(|id| ProviderId::parse(&id).is_ok()),
    }
}

/// The blocks of the pod network that a node has. OVN-Kubernetes does not use the blocks in the Node's spec.
fn blocks(node: &Place<'_>) -> Vec<Cidr> {
    let of_ovn = node.annotation(ovn::SUBNETS);
    if of_ovn.given() {
        return of_ovn.json().map(|subnets| subnets.at("default").networks()).unwrap_or_default();
    }
    let spec = node.at("spec");
    match spec.at("podCIDRs").networks() {
        blocks if blocks.is_empty() => spec.at("podCIDR").network().into_iter().collect(),
        blocks => blocks,
    }
}

/// Reads the Linux side from all known objects. It never fails: `unreadable` lists what it could not parse.
pub fn read(objects: &[Value]) -> LinuxSide {
    let objects = Objects::new(objects);
    let places = objects.of("", "Node");
    let nodes: Vec<Node> = places.iter().map(node).collect();
    let linux = places.into_iter().filter(|place| !is_windows(place)).collect();
    let cluster = Cluster { objects: &objects, linux, workloads: workloads(&objects) };

    let detected = detect::detect(&cluster);
    let family = match detected.kind {
        Kind::Flannel | Kind::Canal => flannel::read(&cluster),
        Kind::Calico => calico::read(&cluster),
        Kind::Antrea => antrea::read(&cluster),
        Kind::OvnKubernetes => ovn::read(&cluster),
        Kind::Unknown => Family { settings: Settings::Unknown(detected.doubt), ..Family::plain(None, None) },
        kind => others::read(kind, &cluster),
    };
    let mut disagreements = Vec::new();
    let pods = ranges::pod_networks(&cluster, &family.settings, &nodes, &mut disagreements);
    let services = ranges::service_networks(&cluster, &family.settings, &mut disagreements);

    let mut from = vec![Origin { fact: "kind", source: detected.from }];
    from.extend(family.from);
    from.extend(pods.source.map(|source| Origin { fact: "pod networks", source }));
    from.extend(services.source.map(|source| Origin { fact: "Service networks", source }));
    let foreign = cluster.workloads.iter().filter(|set| set.windows);
    let on_windows = foreign
        .map(|set| OnWindows { object: set.object.clone(), programs: set.containers.iter().filter_map(|container| container.program).collect() });
    let network = Network {
        kind: detected.kind,
        version: family.version,
        mode: family.mode,
        vni: family.vni,
        port: family.port,
        pod_networks: pods.networks,
        from,
        settings: family.settings,
    };
    LinuxSide {
        network,
        kube_proxy: cluster::kube_proxy(&cluster),
        service_networks: services.networks,
        dns: cluster::dns(&cluster),
        nodes,
        on_windows: on_windows.collect(),
        disagreements,
        unreadable: objects.take_problems(),
    }
}
