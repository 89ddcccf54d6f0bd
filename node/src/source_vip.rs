//! The source VIP: the address that kube-proxy puts on what it sends from the node into the overlay. It is one of the node's own part of the pod
//! network. host-local reserves it in the store of that network, so no pod gets it, and the same one is found there after a restart.
//! <https://learn.microsoft.com/virtualization/windowscontainers/kubernetes/common-problems>

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::node::{Failure, Node};
use crate::subnet::Subnet;

/// In whose name it is reserved.
const CONTAINER: &str = "kube-proxy";
const INTERFACE: &str = "source-vip";

/// The address that is reserved in this subnet, reserved now if there was none.
pub fn reserve(node: &Node, network: &str, subnet: Subnet) -> Result<Ipv4Addr, Failure> {
    if let Some(address) = reserved(node, network) {
        if subnet.contains(address) {
            return Ok(address);
        }
        host_local(node, "DEL", network, subnet)?;
    }
    let answer = host_local(node, "ADD", network, subnet)?;
    address(&answer).ok_or_else(|| Failure(format!("host-local.exe gave no address in {subnet}: {answer}")))
}

/// host-local names its files by the addresses, and writes into each for whom it is: the container and, on a second line, the interface.
fn reserved(node: &Node, network: &str) -> Option<Ipv4Addr> {
    let files = fs::read_dir(node.addresses(network)).ok()?.flatten();
    let ours = |path| fs::read_to_string(path).is_ok_and(|text| text.lines().map(str::trim).eq([CONTAINER, INTERFACE]));
    files.filter(|file| ours(file.path())).find_map(|file| file.file_name().to_str()?.parse().ok())
}

/// `{"ips": [{"address": "10.244.1.2/24"}]}`
fn address(answer: &str) -> Option<Ipv4Addr> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer.pointer("/ips/0/address")?.as_str()?.split('/').next()?.parse().ok()
}

/// Calls host-local as a CNI plugin of this network would. <https://www.cni.dev/docs/spec/#section-3-execution-protocol>
fn host_local(node: &Node, command: &str, network: &str, subnet: Subnet) -> Result<String, Failure> {
    let program = node.plugin("host-local")?;
    let failed = |what: String| Failure(format!("{}: {command}: {what}", program.display()));
    let store = node.addresses(network);
    let request = json!({"cniVersion": "1.0.0", "name": network, "type": "win-overlay", "ipam": {
        "type": "host-local", "dataDir": store.parent(), "ranges": [[{"subnet": subnet.to_string()}]]}});
    let mut call = Command::new(&program);
    call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    call.env("CNI_COMMAND", command).env("CNI_CONTAINERID", CONTAINER).env("CNI_IFNAME", INTERFACE).env("CNI_NETNS", "none");
    call.env("CNI_PATH", node.plugins());
    let mut call = call.spawn().map_err(|error| failed(error.to_string()))?;
    if let Some(mut input) = call.stdin.take() {
        input.write_all(request.to_string().as_bytes()).map_err(|error| failed(error.to_string()))?;
    }
    let output = call.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(answer) } else { Err(failed(answer)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::node;
    use crate::node::write;

    #[test]
    fn only_an_address_in_our_name_is_ours() {
        let drive = tempfile::tempdir().unwrap();
        let node = node(drive.path());
        let store = node.addresses("flannel.4096");
        assert_eq!(reserved(&node, "flannel.4096"), None);
        write(&store.join("10.244.1.3"), "4f1c\r\neth0").unwrap();
        write(&store.join("10.244.1.4"), "kube-proxy\r\neth0").unwrap();
        write(&store.join("last_reserved_ip.0"), "10.244.1.4").unwrap();
        assert_eq!(reserved(&node, "flannel.4096"), None);
        write(&store.join("10.244.1.2"), "kube-proxy\r\nsource-vip").unwrap();
        assert_eq!(reserved(&node, "flannel.4096"), Some(Ipv4Addr::new(10, 244, 1, 2)));
    }

    #[test]
    fn the_address_is_that_of_the_answer() {
        assert_eq!(address(r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.244.1.2/24"}]}"#), Some(Ipv4Addr::new(10, 244, 1, 2)));
        assert_eq!(address(r#"{"code": 999, "msg": "no addresses available"}"#), None);
    }
}
