//! Tests of each field that matters: a change of the field changes the result.

use serde_json::{Value, json};

use super::{changed, recording};
use crate::components::cidr::listed;
use crate::components::{LinuxSide, judge, read, role};

/// All results that other code uses, without their sources.
fn result(side: &LinuxSide) -> String {
    let network = &side.network;
    let findings: Vec<_> = judge(side).into_iter().map(|finding| (finding.reason, finding.object, finding.field, finding.patch)).collect();
    format!(
        "{} {:?} {:?} {:?} {:?} {} {} {} {:?} {:?} {findings:?}",
        network.kind,
        network.version,
        network.mode,
        network.vni,
        network.port,
        listed(&network.pod_networks),
        listed(&side.service_networks),
        role(side),
        side.kube_proxy.as_ref().map(|proxy| (&proxy.version, proxy.mode)),
        side.dns
    )
}

fn container(name: &str, image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": name, "image": image}]}}}})
}

fn annotations(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

#[rustfmt::skip]
#[test]
fn each_field_that_matters_changes_the_result() {
    let cases = [
        ("flannel-vxlan-4096", "DaemonSet kube-flannel-ds", container("kube-flannel", "ghcr.io/flannel-io/flannel:v0.27.0")),
        ("flannel-vxlan-4096", "DaemonSet kube-flannel-ds", json!({"spec": {"template": {"spec": {"volumes": null}}}})),
        ("flannel-vxlan-4096", "ConfigMap kube-flannel-cfg", json!({"data": {"net-conf.json": null}})),
        ("flannel-vxlan-4096", "ConfigMap kube-flannel-cfg", json!({"data": {"net-conf.json": r#"{"Network": "10.0.0.0/8", "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}"#}})),
        ("flannel-vxlan-4096", "ConfigMap kube-flannel-cfg", json!({"data": {"net-conf.json": r#"{"Network": "10.244.0.0/16", "EnableIPv6": true, "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}"#}})),
        ("flannel-vxlan-4096", "Node linux-1", annotations(json!({"flannel.alpha.coreos.com/backend-type": "host-gw"}))),
        ("flannel-vxlan-4096", "Node linux-1", annotations(json!({"flannel.alpha.coreos.com/backend-data": r#"{"VNI": 5000}"#}))),
        ("flannel-changed-not-rolled", "Node linux-1", json!({"status": {"nodeInfo": {"operatingSystem": "windows"}}})),
        ("flannel-vxlan-4096", "Node linux-1", json!({"spec": {"podCIDR": "10.245.0.0/24", "podCIDRs": ["10.245.0.0/24"]}})),
        ("flannel-vxlan-4096", "Node linux-1", json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.96.0.1"}]}})),
        ("flannel-vxlan-4096", "ServiceCIDR kubernetes", json!({"spec": {"cidrs": ["10.112.0.0/12"]}})),
        ("flannel-vxlan-4096", "Service kube-dns", json!({"spec": {"clusterIP": "10.96.0.11", "clusterIPs": ["10.96.0.11"]}})),
        ("flannel-vxlan-4096", "DaemonSet kube-proxy", container("kube-proxy", "registry.k8s.io/kube-proxy:v1.36.2")),
        ("flannel-vxlan-4096", "DaemonSet kube-proxy", json!({"spec": {"template": {"spec": {"nodeSelector": {"none": "such"}}}}})),
        ("flannel-vxlan-4096", "ConfigMap kube-proxy", json!({"data": {"config.conf": "mode: ipvs"}})),
        ("flannel-vxlan-4096", "ConfigMap kubeadm-config", json!({"data": {"ClusterConfiguration": "networking: {dnsDomain: other.local}"}})),
        ("kubeadm-iptables", "ConfigMap kubelet-config", json!({"data": {"kubelet": "clusterDomain: other.local"}})),
        ("k3s", "Node linux-1", annotations(json!({"k3s.io/node-args": r#"["server", "--cluster-cidr=10.40.0.0/14"]"#}))),
        ("k3s", "Node linux-1", annotations(json!({"k3s.io/node-args": r#"["server", "--service-cidr", "10.50.0.0/16"]"#}))),
        ("k3s", "Node linux-1", annotations(json!({"k3s.io/node-args": r#"["server", "--flannel-conf", "/etc/flannel.json"]"#}))),
        ("canal", "DaemonSet canal", container("kube-flannel", "docker.io/flannel/flannel:v0.24.4")),
        ("calico-operator-vxlan", "DaemonSet calico-node", container("calico-node", "quay.io/calico/node:v3.31.7")),
        ("calico-operator-vxlan", "Installation default", Value::Null),
        ("calico-strict-affinity-off", "Installation default", json!({"spec": {"cni": {"ipam": {"type": "HostLocal"}}}})),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"calicoNetwork": {"bgp": "Enabled"}}})),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"calicoNetwork": {"linuxDataplane": "BPF"}}})),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"calicoNetwork": {"ipPools": [{"cidr": "10.244.0.0/16", "encapsulation": "IPIP"}]}}})),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"serviceCIDRs": ["10.128.0.0/12"]}})),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"calicoNetwork": {"windowsDataplane": "HNS"}}})),
        ("calico-operator-installed", "ConfigMap kube-proxy", json!({"data": {"kubeconfig.conf": "clusters: [{cluster: {server: \"https://10.0.0.99:6443\"}}]"}})),
        ("calico-operator-windows", "Installation default", json!({"spec": {"windowsNodes": {"cniConfigDir": "/k/azurecni/netconf"}}})),
        ("calico-operator-windows", "Installation default", json!({"spec": {"kubernetesProvider": "AKS", "windowsNodes": null}})),
        ("calico-operator-windows", "ConfigMap kubernetes-services-endpoint", json!({"data": {"KUBERNETES_SERVICE_HOST": ""}})),
        ("calico-operator-windows", "TigeraStatus calico", json!({"status": {"conditions": [{"type": "Degraded", "status": "True"}]}})),
        ("calico-operator-vxlan", "IPPool default-ipv4-ippool", json!({"spec": {"cidr": "10.128.0.0/16"}})),
        ("calico-operator-vxlan", "IPPool default-ipv4-ippool", json!({"spec": {"vxlanMode": "Never"}})),
        ("calico-operator-vxlan", "IPPool default-ipv4-ippool", json!({"spec": {"blockSize": 30}})),
        ("calico-operator-vxlan", "FelixConfiguration default", json!({"spec": {"vxlanVNI": 5000}})),
        ("calico-operator-vxlan", "FelixConfiguration default", json!({"spec": {"vxlanPort": 4790}})),
        ("calico-operator-vxlan", "FelixConfiguration default", json!({"spec": {"bpfEnabled": true}})),
        ("calico-operator-vxlan", "IPAMConfiguration default", json!({"spec": {"strictAffinity": false}})),
        ("calico-operator-ipip", "IPPool default-ipv4-ippool", json!({"spec": {"ipipMode": "CrossSubnet"}})),
        ("calico-operator-ipip", "IPPool default-ipv4-ippool", json!({"spec": {"disabled": true}})),
        ("calico-operator-bgp-none", "Node linux-1", annotations(json!({"projectcalico.org/IPv4VXLANTunnelAddr": "10.244.64.0"}))),
        ("calico-operator-bgp-none", "Node linux-1", annotations(json!({"projectcalico.org/IPv4IPIPTunnelAddr": "10.244.64.0"}))),
        ("k0s", "DaemonSet calico-node", json!({"spec": {"template": {"spec": {"containers": [{"name": "calico-node", "env": [{"name": "CALICO_NETWORKING_BACKEND", "value": "vxlan"}, {"name": "FELIX_VXLANPORT", "value": "4790"}]}]}}}})),
        ("antrea-encap", "ConfigMap antrea-config", json!({"data": {"antrea-agent.conf": "trafficEncapMode: hybrid"}})),
        ("antrea-encap", "ConfigMap antrea-config", json!({"data": {"antrea-agent.conf": "tunnelType: vxlan"}})),
        ("antrea-encap", "ConfigMap antrea-config", json!({"data": {"antrea-agent.conf": "tunnelPort: 7000"}})),
        ("antrea-encap", "ConfigMap antrea-config", json!({"data": {"antrea-agent.conf": "trafficEncryptionMode: ipsec"}})),
        ("antrea-encap", "AntreaAgentInfo linux-1", json!({"version": "v2.6.3"})),
        ("ovn-hybrid", "ConfigMap ovn-config", json!({"data": {"net_cidr": "10.240.0.0/12/24"}})),
        ("ovn-hybrid", "ConfigMap ovn-config", json!({"data": {"svc_cidr": "10.100.0.0/16"}})),
        ("ovn-hybrid", "Node linux-1", annotations(json!({"k8s.ovn.org/node-subnets": r#"{"default": "10.250.0.0/24"}"#}))),
        ("wmco", "ConfigMap ovnkube-config", json!({"data": {"ovnkube.conf": "[default]\ncluster-subnets=\"10.128.0.0/14/23\"\n[hybridoverlay]\nenabled=true\ncluster-subnets=\"10.132.0.0/14\"\nhybrid-overlay-vxlan-port=9898"}})),
        ("wmco", "DaemonSet ovnkube-node", annotations(json!({"release.openshift.io/version": "4.22.1"}))),
        ("wmco", "Network cluster", json!({"apiVersion": "operator.openshift.io/v1", "kind": "Network", "metadata": {"name": "cluster"}, "spec": {"defaultNetwork": {"type": "OVNKubernetes"}}})),
        ("wmco", "Network cluster", json!({"apiVersion": "config.openshift.io/v1", "kind": "Network", "metadata": {"name": "cluster"}, "spec": {"clusterNetwork": [{"cidr": "10.100.0.0/14"}]}})),
        ("cilium", "ConfigMap cilium-config", json!({"data": {"routing-mode": "native"}})),
        ("cilium", "ConfigMap cilium-config", json!({"data": {"tunnel-protocol": "geneve"}})),
        ("azure-cni", "ConfigMap cns-config", json!({"data": {"cns_config.json": r#"{"CNIConflistScenario": "swift"}"#}})),
        ("aws-vpc-cni", "ConfigMap amazon-vpc-cni", json!({"data": {"enable-windows-ipam": "true"}})),
    ];
    for (name, object, change) in cases {
        let (before, after) = (result(&read(&recording(name))), result(&read(&changed(name, object, &change))));
        assert_ne!(before, after, "{name}: {object} {change}");
    }
}

/// Fields that do not concern Windows nodes must not change the result.
#[rustfmt::skip]
#[test]
fn other_fields_change_nothing() {
    let cases = [
        ("flannel-vxlan-4096", "ConfigMap kube-flannel-cfg", json!({"data": {"cni-conf.json": "not read"}, "metadata": {"labels": {"x": "y"}}})),
        ("flannel-vxlan-4096", "Node linux-1", annotations(json!({"flannel.alpha.coreos.com/public-ip": "10.0.0.99"}))),
        ("flannel-vxlan-4096", "ConfigMap other", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "x"}, "data": {"net-conf.json": "{}"}})),
        ("flannel-vxlan-4096", "ConfigMap kube-flannel-cfg", json!({"data": {"net-conf.json": r#"{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"type": "VXLAN", "vni": 4096, "port": 4789, "MTU": 1400}}"#}})),
        ("calico-operator-vxlan", "IPPool off", json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "off"}, "spec": {"cidr": "10.0.0.0/8", "ipipMode": "Always", "disabled": true}})),
        ("calico-operator-vxlan", "IPPool same", json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "same"}, "spec": {"cidr": "10.244.0.0/16", "vxlanMode": "CrossSubnet"}})),
        ("calico-operator-vxlan", "IPPool antrea", json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "IPPool", "metadata": {"name": "antrea"}, "spec": {"cidr": "10.0.0.0/8", "ipipMode": "Always"}})),
        ("calico-operator-vxlan", "TigeraStatus calico-windows", json!({"apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus", "metadata": {"name": "calico-windows"}, "status": {"conditions": [{"type": "Degraded", "status": "True"}]}})),
        ("calico-operator-windows", "TigeraStatus apiserver", json!({"apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus", "metadata": {"name": "apiserver"}, "status": {"conditions": [{"type": "Degraded", "status": "True"}]}})),
        // Another spelling of the same folder; the log folder; unused folders.
        ("calico-operator-windows", "Installation default", json!({"spec": {"windowsNodes": {"cniBinDir": r"C:\Opt\CNI\bin\", "cniConfigDir": "c:/etc/cni/net.d"}}})),
        ("calico-operator-windows", "Installation default", json!({"spec": {"windowsNodes": null}})),
        ("calico-operator-windows", "Installation default", json!({"spec": {"windowsNodes": {"cniLogDir": "/k/log"}}})),
        ("calico-operator-windows", "Installation default", json!({"spec": {"cni": {"type": "AzureVNET"}, "windowsNodes": {"cniBinDir": "/k/azurecni/bin"}}})),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"kubernetesProvider": "EKS"}})),
        ("calico-operator-vxlan", "FelixConfiguration node.linux-1", json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "FelixConfiguration", "metadata": {"name": "node.linux-1"}, "spec": {"vxlanVNI": 1}})),
    ];
    for (name, object, change) in cases {
        assert_eq!(result(&read(&recording(name))), result(&read(&changed(name, object, &change))), "{name}: {object} {change}");
    }
}
