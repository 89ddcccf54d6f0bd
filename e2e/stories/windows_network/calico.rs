//! Story *Calico's network*: a real Windows node whose network calico-node creates. `capw-node.exe kube-proxy` waits until HNS has the network, and
//! the real kube-proxy.exe programs its load balancers in it: with BGP without a source VIP, with VXLAN with the address of Calico's endpoint. It
//! restarts when the network was recreated, and reports it when HNS is stopped. Calico's leftover endpoint of an earlier network is ignored.
//!
//! calico-node.exe is in no package registry. The HNS objects that it creates are written here, as in its source.

use std::fs;

use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::node::{FAULT, Programs, address, guest_of, objects};
use super::services::{balancer, service};
use super::{LIMIT, NAMESPACE};
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, HostProcesses, Kind, Options, step, text, wait_for, wine};

const BRIDGE: &str = "CA11C0B1-0000-4000-8000-000000000001";
const OVERLAY: &str = "CA11C0B1-0000-4000-8000-000000000002";
/// The node's block, which contains its gateway and the endpoint of the node.
const BLOCK: &str = "10.244.1.0/26";
const GATEWAY: &str = "10.244.1.1";
const ENDPOINT: &str = "10.244.1.2";

#[test]
fn kube_proxy_in_calicos_network() {
    let Some(programs) = Programs::find("windows_network::calico") else { return };
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("calico-network")).await;
        let capw = Capw::start(&cp, &[&format!("--wine-programs={}", wine::programs().display())]).await;
        let workers =
            Workers { replicas: 1, driver: json!({"simulated": {"guest": "Wine"}}), bootstrap: json!({}), ..Workers::new("calico", &cp).await };
        workers.apply(&cp).await;
        let node = wait_for("the Windows node has joined", LIMIT, || async {
            let nodes = cp.list(Kind::NODE, None).await;
            nodes.into_iter().find(|node| address(node).is_some()).ok_or("no Node has an address")
        })
        .await;
        let (guest, address) = (guest_of(&capw, &node).expect("its guest"), address(&node).expect("its address"));
        programs.put_into(&guest, address);
        let service = service(&cp).await;
        cp.apply_objects(&kube_proxy(&cp, text(&node, "/metadata/name"))).await;
        let pods = Mutex::new(HostProcesses::new(NAMESPACE, &programs.node));
        let until = async |what: &str, is_so: &dyn Fn(&str) -> bool| {
            wait_for(what, LIMIT, || async {
                let mut pods = pods.lock().await;
                pods.run(&cp, |_| Some(guest.clone())).await;
                let log = pods.logs("");
                if is_so(&log) { Ok(()) } else { Err(log) }
            })
            .await;
        };
        until("capw-node waits for Calico", &|log| log.contains("waits for calico-node, which makes the HNS network Calico")).await;

        has_made(&guest, "networks", &bridge());
        has_made(&guest, "endpoints", &endpoint(BRIDGE, address));
        until("kube-proxy serves the Service in the bridge", &|_| balancer(&guest, &service).is_some()).await;
        let served = balancer(&guest, &service).expect("the load balancer");
        assert!(served["SourceVIP"].is_null(), "{served:#}");
        step("in a bridge kube-proxy has no source VIP");

        guest.write(FAULT, b"down");
        let asked = "HNS, asked for each network with the name Calico: 0x803b0020: the service is stopped";
        until("capw-node says that HNS is stopped", &|log| log.contains(asked)).await;
        fs::remove_file(guest.path(FAULT)).expect("HNS is there again");
        until("kube-proxy runs again", &|log| log.matches("the network needs no source VIP").count() == 2).await;
        step("a stopped HNS ended it, and its log has the remedy");

        fs::remove_file(guest.path(&file("networks", &bridge()))).expect("calico-node removes it");
        has_made(&guest, "networks", &overlay(address));
        let changed = format!("HNS has no network Calico, or one without Calico_ep, no more the bridge {BRIDGE}");
        until("capw-node has seen that the network is another one", &|log| log.contains(&changed)).await;
        until("it waits for the endpoint", &|log| log.matches("waits for calico-node").count() == 2).await;
        has_made(&guest, "endpoints", &endpoint(OVERLAY, address));
        let serves = || balancer(&guest, &service).is_some_and(|balancer| balancer["SourceVIP"] == ENDPOINT);
        until("kube-proxy serves the Service in the overlay", &|_| serves()).await;
        let mut endpoints = objects(&guest, "endpoints");
        endpoints.retain(|object| object["HostComputeNetwork"] == OVERLAY && object["IpConfigurations"][0]["IpAddress"] == ENDPOINT);
        assert_eq!(endpoints, [endpoint(OVERLAY, address)], "kube-proxy has found Calico's endpoint, and made none beside it");
        step("after calico-node has recreated the network, as an overlay, the source VIP is the address of Calico's endpoint");
    });
}

/// The objects that run kube-proxy on a node, with the arguments and settings of a network of Calico.
fn kube_proxy(cp: &ControlPlane, node: &str) -> Vec<Value> {
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "kernelspace", "clusterCIDR": "10.244.0.0/16",
        "nodePortAddresses": ["primary"], "winkernel": {"networkName": "Calico", "enableDSR": true},
    });
    let of_image = |path: &str| format!(r"%CONTAINER_SANDBOX_MOUNT_POINT%\{path}");
    let container = json!({
        "name": "kube-proxy", "image": "registry.example.com/capw:v0",
        "args": ["kube-proxy", "--network=calico", format!("--settings={}", of_image("settings")), format!("--access={}", of_image("access"))],
        "env": [
            {"name": "NODE_NAME", "value": node},
            {"name": "NODE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "API_SERVER", "value": cp.server()},
        ],
        "volumeMounts": [{"name": "settings", "mountPath": "/settings"}, {"name": "access", "mountPath": "/access"}],
    });
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("kube-proxy")}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "capw-kube-proxy"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
            "subjects": [{"kind": "ServiceAccount", "name": "kube-proxy", "namespace": NAMESPACE}],
        }),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("kube-proxy"), "data": {"config.json": configuration.to_string()}}),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata("kube-proxy"),
            "spec": {
                "nodeName": node, "os": {"name": "windows"}, "hostNetwork": true, "serviceAccountName": "kube-proxy",
                "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}], "containers": [container],
                "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": r"NT AUTHORITY\SYSTEM"}},
                "volumes": [
                    {"name": "settings", "configMap": {"name": "kube-proxy"}},
                    {"name": "access", "projected": {"sources": [
                        {"serviceAccountToken": {"path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt"}},
                    ]}},
                ],
            },
        }),
    ]
}

/// The file in which the networking service of a node keeps an object.
fn file(kind: &str, object: &Value) -> String {
    format!(r"C:\hns\{kind}\{}.json", text(object, "/ID"))
}

/// Writes an object as if calico-node had created it in HNS.
fn has_made(guest: &wine::WineGuest, kind: &str, object: &Value) {
    guest.write(&file(kind, object), object.to_string().as_bytes());
}

/// The network with BGP.
/// <https://github.com/projectcalico/calico/blob/v3.32.1/cni-plugin/pkg/dataplane/windows/dataplane_windows.go> (`EnsureNetworkExists`)
fn bridge() -> Value {
    json!({"ID": BRIDGE, "Name": "Calico", "Type": "L2Bridge", "Ipams": ipams(&json!([])), "SchemaVersion": {"Major": 2, "Minor": 0}})
}

/// The network with VXLAN (the same file, `ensureVxlanNetworkExists`), HNS's additions to an overlay, and the route that Felix adds for the block of
/// another node: <https://github.com/projectcalico/calico/blob/v3.32.1/felix/dataplane/windows/vxlan_mgr.go>.
fn overlay(address: &str) -> Value {
    json!({
        "ID": OVERLAY, "Name": "Calico", "Type": "Overlay", "SchemaVersion": {"Major": 2, "Minor": 0},
        "Ipams": ipams(&json!([{"Type": "VSID", "Settings": {"IsolationId": 4096}}])),
        "Policies": [
            {"Type": "HostRoute", "Settings": {}},
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": address}},
            {"Type": "DrMacAddress", "Settings": {"Address": "00-15-5D-00-00-01"}},
            {"Type": "RemoteSubnetRoute", "Settings": {
                "DestinationPrefix": "10.244.0.0/26", "IsolationId": 4096, "ProviderAddress": "10.0.0.99",
                "DistributedRouterMacAddress": "66-00-00-00-00-01",
            }},
        ],
    })
}

fn ipams(policies: &Value) -> Value {
    let routes = json!([{"NextHop": GATEWAY, "DestinationPrefix": "0.0.0.0/0"}]);
    json!([{"Type": "Static", "Subnets": [{"IpAddressPrefix": BLOCK, "Policies": policies, "Routes": routes}]}])
}

/// The endpoint of the node (the same file, `CreateAndAttachHostEP`, `createAndAttachVxlanHostEP`). An overlay's endpoint is remote, with the node's
/// address: a flag and a policy in the newer API. <https://github.com/microsoft/hnslib/blob/v0.1.2/hcn/hcnendpoint.go>
fn endpoint(network: &str, address: &str) -> Value {
    let remote = json!([{"Type": "ProviderAddress", "Settings": {"ProviderAddress": address}}]);
    let (flags, policies) = if network == OVERLAY { (1, remote) } else { (0, json!([])) };
    json!({
        "ID": network.replace("CA11C0B1", "CA11C0E9"), "Name": "Calico_ep", "HostComputeNetwork": network, "MacAddress": "00-15-5D-00-00-02",
        "IpConfigurations": [{"IpAddress": ENDPOINT, "PrefixLength": 26}], "Policies": policies, "Flags": flags,
        "SchemaVersion": {"Major": 2, "Minor": 0},
    })
}
