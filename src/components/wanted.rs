//! The objects to read from a cluster to know its Linux side: first the objects that every cluster has, then the objects that these refer to.

use serde_json::Value;

use super::linux_side::ENDPOINT;
use super::objects::Objects;
use super::place::ObjectRef;
use super::workloads::{Program, Workload, workloads};
use crate::api::listing::Listing;

/// The label of the cluster's name resolution.
pub const NAME_RESOLUTION: &str = "k8s-app=kube-dns";

/// The kinds that every cluster has.
pub const FIRST: [Listing; 4] = [
    Listing::new("", "v1", "Node", "nodes"),
    Listing::new("apps", "v1", "DaemonSet", "daemonsets"),
    Listing::new("", "v1", "Service", "services").with_labels(NAME_RESOLUTION),
    Listing::new("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs"),
];

const CALICO: [Listing; 6] = [
    Listing::new("operator.tigera.io", "v1", "Installation", "installations"),
    Listing::new("operator.tigera.io", "v1", "TigeraStatus", "tigerastatuses"),
    Listing::new("crd.projectcalico.org", "v1", "IPPool", "ippools"),
    Listing::new("crd.projectcalico.org", "v1", "FelixConfiguration", "felixconfigurations"),
    Listing::new("crd.projectcalico.org", "v1", "IPAMConfig", "ipamconfigs"),
    Listing::new("projectcalico.org", "v3", "IPAMConfiguration", "ipamconfigurations"),
];
const ANTREA: [Listing; 1] = [Listing::new("crd.antrea.io", "v1beta1", "AntreaAgentInfo", "antreaagentinfos")];
const OVN: [Listing; 2] =
    [Listing::new("config.openshift.io", "v1", "Network", "networks"), Listing::new("operator.openshift.io", "v1", "Network", "networks")];

/// Returns the kind of an object that was read.
pub fn listing(object: &Value) -> Option<Listing> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let all = FIRST.iter().chain(&CALICO).chain(&ANTREA).chain(&OVN).chain([&Listing::CONFIG_MAPS]);
    all.copied().find(|listing| listing.kind == text("kind") && listing.api_version() == text("apiVersion"))
}

/// ConfigMaps of kube-system with facts about the cluster.
const OF_CLUSTER: [&str; 2] = ["kubeadm-config", "kubelet-config"];
/// ConfigMaps that a program's DaemonSet need not reference; they are in its namespace.
const OF_PROGRAMS: [(Program, &str); 3] =
    [(Program::AwsVpcCni, "amazon-vpc-cni"), (Program::Cilium, "cilium-config"), (Program::OvnKubernetes, "ovn-config")];

/// The objects that remain to be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    pub lists: Vec<Listing>,
    pub config_maps: Vec<ObjectRef>,
}

/// Returns the objects to which the objects of [`FIRST`] lead.
pub fn wanted(objects: &[Value]) -> Wanted {
    let objects = Objects::new(objects);
    let sets = workloads(&objects);
    let runs = |program| sets.iter().any(|set: &Workload<'_>| set.runs(program));
    let of = |program, lists: &[Listing]| if runs(program) { lists.to_vec() } else { Vec::new() };
    let of_cluster = OF_CLUSTER.map(|name| ObjectRef::new("ConfigMap", Some("kube-system"), name));
    let mut config_maps: Vec<ObjectRef> = sets.iter().flat_map(Workload::config_map_refs).chain(of_cluster).collect();
    for (program, name) in OF_PROGRAMS {
        config_maps.extend(sets.iter().filter(|set| set.runs(program)).map(|set| ObjectRef::new("ConfigMap", Some(set.namespace()), name)));
    }
    if runs(Program::Calico) {
        let (namespace, name) = ENDPOINT;
        config_maps.push(ObjectRef::new("ConfigMap", Some(namespace), name));
    }
    config_maps.sort();
    config_maps.dedup();
    Wanted { lists: [of(Program::Calico, &CALICO), of(Program::Antrea, &ANTREA), of(Program::OvnKubernetes, &OVN)].concat(), config_maps }
}
