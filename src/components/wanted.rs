//! What to read of a cluster to know its Linux side: first what every cluster has, then what that leads to.

use serde_json::Value;

use super::objects::Objects;
use super::place::ObjectRef;
use super::workloads::{Program, Workload, workloads};

/// A kind of objects: group, version, kind, plural, and a selector of labels.
pub type Listing = [&'static str; 5];

/// What every cluster has.
pub const FIRST: [Listing; 4] = [
    ["", "v1", "Node", "nodes", ""],
    ["apps", "v1", "DaemonSet", "daemonsets", ""],
    ["", "v1", "Service", "services", "k8s-app=kube-dns"],
    ["networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", ""],
];

const CALICO: [Listing; 5] = [
    ["operator.tigera.io", "v1", "Installation", "installations", ""],
    ["crd.projectcalico.org", "v1", "IPPool", "ippools", ""],
    ["crd.projectcalico.org", "v1", "FelixConfiguration", "felixconfigurations", ""],
    ["crd.projectcalico.org", "v1", "IPAMConfig", "ipamconfigs", ""],
    ["projectcalico.org", "v3", "IPAMConfiguration", "ipamconfigurations", ""],
];
const ANTREA: [Listing; 1] = [["crd.antrea.io", "v1beta1", "AntreaAgentInfo", "antreaagentinfos", ""]];
const OVN: [Listing; 2] = [["config.openshift.io", "v1", "Network", "networks", ""], ["operator.openshift.io", "v1", "Network", "networks", ""]];

/// ConfigMaps of kube-system that no DaemonSet need name.
const CONFIG_MAPS: [&str; 2] = ["kubeadm-config", "kubelet-config"];

/// What is still to be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    pub lists: Vec<Listing>,
    pub config_maps: Vec<ObjectRef>,
}

/// What the objects of [`FIRST`] lead to.
pub fn wanted(objects: &[Value]) -> Wanted {
    let objects = Objects::new(objects);
    let sets = workloads(&objects);
    let runs = |program| sets.iter().any(|set: &Workload<'_>| set.runs(program));
    let of = |program, lists: &[Listing]| if runs(program) { lists.to_vec() } else { Vec::new() };
    let mut config_maps: Vec<ObjectRef> = sets.iter().flat_map(Workload::config_map_refs).collect();
    let more = CONFIG_MAPS.into_iter().chain(Some("amazon-vpc-cni").filter(|_| runs(Program::AwsVpcCni)));
    config_maps.extend(more.map(|name| ObjectRef::new("ConfigMap", Some("kube-system"), name)));
    config_maps.sort();
    config_maps.dedup();
    Wanted { lists: [of(Program::Calico, &CALICO), of(Program::Antrea, &ANTREA), of(Program::OvnKubernetes, &OVN)].concat(), config_maps }
}
