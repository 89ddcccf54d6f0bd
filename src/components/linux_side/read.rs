//! Reads the Linux side of a cluster.

use serde_json::Value;

use super::cluster::Cluster;
use super::dns::dns;
use super::family::Family;
use super::kind::Kind;
use super::kube_proxy::kube_proxy;
use super::node::{Node, is_windows, node};
use super::settings::Settings;
use super::side::{LinuxSide, Network, OnWindows};
use super::source::Origin;
use super::{antrea, aws, calico, detect, flannel, others, ovn, ranges};
use crate::components::objects::Objects;
use crate::components::workloads::workloads;

/// Reads the Linux side from all known objects. It never fails: `unreadable` lists what it could not parse.
pub fn read(objects: &[Value]) -> LinuxSide {
    let objects = Objects::new(objects);
    let places = objects.of("", "Node");
    let nodes: Vec<Node> = places.iter().map(node).collect();
    let linux = places.into_iter().filter(|place| !is_windows(place)).collect();
    let cluster = Cluster { objects: &objects, linux, workloads: workloads(&objects) };

    let detected = detect::detect(&cluster);
    let family = match detected.kind {
        Kind::Flannel | Kind::Canal => flannel::read(&cluster).map(Settings::Flannel),
        Kind::Calico => calico::read(&cluster).map(|calico| Settings::Calico(Box::new(calico))),
        Kind::Antrea => antrea::read(&cluster).map(Settings::Antrea),
        Kind::OvnKubernetes => ovn::read(&cluster).map(Settings::Ovn),
        Kind::Unknown => Family::plain(None, None).map(|()| Settings::Unknown(detected.doubt)),
        Kind::AwsVpcCni => aws::read(&cluster).map(Settings::Aws),
        kind => others::read(kind, &cluster).map(|()| Settings::None),
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
        kube_proxy: kube_proxy(&cluster),
        service_networks: services.networks,
        dns: dns(&cluster),
        nodes,
        on_windows: on_windows.collect(),
        disagreements,
        unreadable: objects.take_problems(),
    }
}
