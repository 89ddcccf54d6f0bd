//! What the Linux side of a cluster shows of its pod network: which it is, and the settings that its Windows side must have too.
//!
//! What nodes show comes first, because it is in use; then DaemonSets, ConfigMaps and the objects of the network itself.

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

/// What makes the pod network.
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
    /// `None`: there is no DaemonSet; something else does what it does, or it is a part of the node's own programs.
    pub kube_proxy: Option<KubeProxy>,
    pub service_networks: Vec<Cidr>,
    pub dns: Option<Dns>,
    /// Linux and Windows nodes.
    pub nodes: Vec<Node>,
    /// DaemonSets for Windows nodes that are not CAPW's.
    pub on_windows: Vec<OnWindows>,
    /// Sources that contradict what was taken.
    pub disagreements: Vec<Disagreement>,
    pub unreadable: Vec<Unreadable>,
}

/// The pod network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub kind: Kind,
    /// `0.28.9`
    pub version: Option<String>,
    /// `vxlan`, `host-gw`, `encap`: as the network itself calls it.
    pub mode: Option<String>,
    /// Of VXLAN, on Linux nodes.
    pub vni: Option<u32>,
    /// Of the tunnel, on Linux nodes.
    pub port: Option<u32>,
    pub pod_networks: Vec<Cidr>,
    /// Where each fact was read.
    pub from: Vec<Origin>,
    pub settings: Settings,
}

/// Where a fact was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub fact: &'static str,
    pub source: String,
}

/// What only one kind of network has.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    Flannel(Flannel),
    Calico(Box<Calico>),
    Antrea(Antrea),
    Ovn(Ovn),
    Aws(Aws),
    /// A network without settings that matter.
    None,
    /// Why no network was recognized.
    Unknown(String),
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub object: ObjectRef,
    pub windows: bool,
    pub addresses: Vec<IpAddr>,
    /// Its parts of the pod network.
    pub blocks: Vec<Cidr>,
    /// Keys of its taints.
    pub taints: Vec<String>,
    /// Whether CAPW made it, as its provider ID says.
    pub is_ours: bool,
}

/// A DaemonSet for Windows nodes that is not CAPW's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnWindows {
    pub object: ObjectRef,
    pub programs: Vec<Program>,
}

/// Networks that one object tells.
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

/// A source that contradicts what was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub object: ObjectRef,
    pub field: String,
    pub message: String,
}

/// What reading a family of networks gives.
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

/// What all readers look at.
struct Cluster<'a> {
    objects: &'a Objects<'a>,
    linux: Vec<Place<'a>>,
    workloads: Vec<Workload<'a>>,
}

impl<'a> Cluster<'a> {
    /// The DaemonSets that have a place on Linux nodes. One is switched off by a selector that no node has.
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

    /// The version of a program on Linux nodes, by the tag of its image.
    fn version(&self, program: Program) -> Option<String> {
        self.linux_set(program)?.container(program)?.tag.as_deref().and_then(super::workloads::version)
    }

    /// Linux nodes, for messages.
    fn nodes(&self) -> String {
        counted(self.linux.len())
    }
}

/// `1 Linux node`, `3 Linux nodes`
fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 Linux node".into() } else { format!("{nodes} Linux nodes") }
}

/// Linux unless something says Windows.
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

/// The parts of the pod network that a node has: OVN-Kubernetes does not use those that its spec has.
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

/// Reads the Linux side from all objects that are known. It never fails: what cannot be understood is in `unreadable`.
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
