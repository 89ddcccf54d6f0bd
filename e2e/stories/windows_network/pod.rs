//! A pod that containerd attaches to the network of a Windows node.

use std::fs::File;

use serde_json::{Value, json};

use super::node::{objects, policies};
use crate::world::text;
use crate::world::wine::WineGuest;

/// The network namespace of a pod.
const NETWORK: &str = "C0FFEE00-0000-4000-8000-000000000001";

/// The request that Flannel's CNI plugin passes to its delegate: the delegate's configuration, with the network's name and the node's part of it.
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

/// Attaches a pod as containerd would, and returns the endpoint of the pod.
pub fn attach(guest: &WineGuest, node: &Value) -> Value {
    let conflist = guest.read(r"C:\etc\cni\net.d\10-flannel.conflist").expect("containerd knows the network");
    let request = delegated(&serde_json::from_str(&conflist).expect("JSON"), "10.244.0.0/16", text(node, "/spec/podCIDR"));
    // containerd creates the namespace before it calls a plugin.
    guest.write(&format!(r"C:\hns\namespaces\{NETWORK}.json"), json!({"ID": NETWORK}).to_string().as_bytes());
    let address = call(guest, "ADD", "web-1", &request).expect("the plugin has attached it").expect("an address");
    let endpoints = objects(guest, "endpoints");
    let endpoint = endpoints.iter().find(|endpoint| endpoint["IpConfigurations"][0]["IpAddress"] == json!(address));
    endpoint.unwrap_or_else(|| panic!("no endpoint with {address}: {endpoints:#?}")).clone()
}

/// Calls host-local to assign an address to a pod of this network, as the network's own plugin does, or to release it.
pub fn host_local(guest: &WineGuest, command: &str, pod: &str, network: &str, subnet: &str) -> Result<Option<String>, String> {
    // The default directory has no drive, and a program that Wine starts from outside has no current drive.
    let ipam = json!({"type": "host-local", "subnet": subnet, "dataDir": r"C:\var\lib\cni\networks"});
    call(guest, command, pod, &json!({"cniVersion": "1.0.0", "name": network, "type": "host-local", "ipam": ipam}))
}

/// Calls the plugin of a request, and returns the address that it assigned; its error message if it fails.
fn call(guest: &WineGuest, command: &str, pod: &str, request: &Value) -> Result<Option<String>, String> {
    let file = r"C:\hns\request.json";
    guest.write(file, request.to_string().as_bytes());
    let mut plugin = guest.program(&[&format!(r"C:\opt\cni\bin\{}.exe", text(request, "/type"))]).expect("the guest is on");
    let arguments = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};IgnoreUnknown=1");
    for (name, value) in [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", pod),
        ("CNI_NETNS", NETWORK),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", r"C:\opt\cni\bin"),
        ("CNI_ARGS", &arguments),
    ] {
        plugin.env(name, value);
    }
    let output = plugin.stdin(File::open(guest.path(file)).expect("the request")).output().expect("the plugin runs");
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    }
    if said.is_empty() {
        return Ok(None);
    }
    let answer: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{said}: {e}"));
    Ok(text(&answer, "/ips/0/address").split('/').next().map(str::to_owned))
}

/// The networks that an endpoint reaches with its own address, and the networks that it reaches as Services, in the order of the policies.
pub fn reaches(endpoint: &Value) -> (Vec<&str>, Vec<&str>) {
    let own = policies(endpoint, "OutBoundNAT").filter_map(|policy| policy["Exceptions"].as_array()).flatten().filter_map(Value::as_str);
    let routed = policies(endpoint, "SDNRoute").filter(|route| route["NeedEncap"] == json!(true));
    (own.collect(), routed.map(|route| text(route, "/DestinationPrefix")).collect())
}
