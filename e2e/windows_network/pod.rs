//! A pod that containerd attaches to the network of a Windows node.

use std::fs::File;

use serde_json::{Value, json};

use super::node::{objects, policies};
use crate::world::text;
use crate::world::wine::WineGuest;

/// The network namespace of a pod.
const NETWORK: &str = "C0FFEE00-0000-4000-8000-000000000001";

/// What Flannel's CNI plugin hands to the plugin that it delegates to: the same, with the network's name and the node's part of it.
/// <https://github.com/flannel-io/cni-plugin/blob/v1.9.1-flannel3/flannel_windows.go>
fn delegated(conflist: &Value, pods: &str, subnet: &str) -> Value {
    let mut request = conflist["plugins"][0]["delegate"].clone();
    request["name"] = conflist["name"].clone();
    request["cniVersion"] = conflist["cniVersion"].clone();
    request["ipMasq"] = json!(false);
    request["ipMasqNetwork"] = json!(pods);
    request["ipam"] = json!({"type": "host-local", "subnet": subnet});
    request
}

/// Attaches a pod as containerd would, and gives the endpoint that the pod has.
pub fn attach(guest: &WineGuest, node: &Value) -> Value {
    let conflist = guest.read(r"C:\etc\cni\net.d\10-flannel.conflist").expect("containerd knows the network");
    let request = delegated(&serde_json::from_str(&conflist).expect("JSON"), "10.244.0.0/16", text(node, "/spec/podCIDR"));
    let file = r"C:\hns\request.json";
    guest.write(file, request.to_string().as_bytes());
    // containerd makes it before it calls a plugin.
    guest.write(&format!(r"C:\hns\namespaces\{NETWORK}.json"), json!({"ID": NETWORK}).to_string().as_bytes());
    let mut plugin = guest.program(&[&format!(r"C:\opt\cni\bin\{}.exe", text(&request, "/type"))]).expect("the guest is on");
    let pod = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;IgnoreUnknown=1";
    for (name, value) in [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "web-1"),
        ("CNI_NETNS", NETWORK),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", r"C:\opt\cni\bin"),
        ("CNI_ARGS", pod),
    ] {
        plugin.env(name, value);
    }
    let output = plugin.stdin(File::open(guest.path(file)).expect("the request")).output().expect("the plugin runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{said}: {e}"));
    let address = text(&answer, "/ips/0/address").split('/').next().expect("an address").to_owned();
    let endpoints = objects(guest, "endpoints");
    let endpoint = endpoints.iter().find(|endpoint| endpoint["IpConfigurations"][0]["IpAddress"] == json!(address));
    endpoint.unwrap_or_else(|| panic!("no endpoint with {address}: {endpoints:#?}")).clone()
}

/// What an endpoint reaches with its own address, and what it reaches as Services: networks in the order in which they are written.
pub fn reaches(endpoint: &Value) -> (Vec<&str>, Vec<&str>) {
    let own = policies(endpoint, "OutBoundNAT").filter_map(|policy| policy["Exceptions"].as_array()).flatten().filter_map(Value::as_str);
    let routed = policies(endpoint, "SDNRoute").filter(|route| route["NeedEncap"] == json!(true));
    (own.collect(), routed.map(|route| text(route, "/DestinationPrefix")).collect())
}
