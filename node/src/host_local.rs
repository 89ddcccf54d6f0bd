//! Reserves addresses of the node's block for the node itself. host-local reserves them in the store of the network, so no pod gets them, and they
//! stay the same after a restart.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::node::{Failure, Node};
use crate::subnet::Subnet;

/// The purpose of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The source address of kube-proxy's packets from the node into an overlay.
    /// <https://learn.microsoft.com/virtualization/windowscontainers/kubernetes/common-problems>
    SourceVip,
    /// The gateway of pods in a bridge. flanneld gives the node this address without informing host-local:
    /// <https://github.com/kubernetes/kubernetes/issues/74766>.
    Gateway,
}

impl Purpose {
    /// The holder of the reservation: a container and its interface.
    const fn holder(self) -> [&'static str; 2] {
        match self {
            Self::SourceVip => ["kube-proxy", "source-vip"],
            Self::Gateway => ["flannel", "gateway"],
        }
    }

    /// The required address, if only one is possible.
    fn asked(self, subnet: Subnet) -> Option<Ipv4Addr> {
        (self == Self::Gateway).then(|| subnet.gateway())
    }
}

/// Returns the reserved address in this subnet, and reserves one if none exists.
pub fn reserve(node: &Node, network: &str, subnet: Subnet, purpose: Purpose) -> Result<Ipv4Addr, Failure> {
    let asked = purpose.asked(subnet);
    if let Some(address) = reserved(node, network, purpose) {
        if asked.map_or_else(|| subnet.contains(address), |asked| asked == address) {
            return Ok(address);
        }
        call(node, "DEL", network, subnet, purpose)?;
    }
    let answer = call(node, "ADD", network, subnet, purpose)?;
    address(&answer).ok_or_else(|| Failure(format!("host-local.exe gave no address in {subnet}: {answer}")))
}

/// Finds the reserved address. host-local names its files by the addresses, and each file names the container and, on a second line, the interface.
fn reserved(node: &Node, network: &str, purpose: Purpose) -> Option<Ipv4Addr> {
    let files = fs::read_dir(node.addresses(network)).ok()?.flatten();
    let ours = |path| fs::read_to_string(path).is_ok_and(|text| text.lines().map(str::trim).eq(purpose.holder()));
    files.filter(|file| ours(file.path())).find_map(|file| file.file_name().to_str()?.parse().ok())
}

/// Returns the address in the answer of host-local: `{"ips": [{"address": "10.244.1.2/24"}]}`.
fn address(answer: &str) -> Option<Ipv4Addr> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer.pointer("/ips/0/address")?.as_str()?.split('/').next()?.parse().ok()
}

/// Calls host-local as a CNI plugin of this network does. <https://www.cni.dev/docs/spec/#section-3-execution-protocol>
fn call(node: &Node, command: &str, network: &str, subnet: Subnet, purpose: Purpose) -> Result<String, Failure> {
    let program = node.plugin("host-local")?;
    let failed = |what: String| Failure(format!("{}: {command}: {what}", program.display()));
    let store = node.addresses(network);
    let ips: Vec<Ipv4Addr> = purpose.asked(subnet).into_iter().collect();
    let request = json!({"cniVersion": "1.0.0", "name": network, "type": "flannel", "runtimeConfig": {"ips": ips}, "ipam": {
        "type": "host-local", "dataDir": store.parent(), "ranges": [[{"subnet": subnet.to_string()}]]}});
    let [container, interface] = purpose.holder();
    let mut call = Command::new(&program);
    call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    call.env("CNI_COMMAND", command).env("CNI_CONTAINERID", container).env("CNI_IFNAME", interface).env("CNI_NETNS", "none");
    call.env("CNI_PATH", node.plugins());
    let mut call = call.spawn().map_err(|error| failed(error.to_string()))?;
    if let Some(mut input) = call.stdin.take() {
        match input.write_all(request.to_string().as_bytes()) {
            // host-local has ended, and its output contains the reason.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.map_err(|error| failed(error.to_string()))?,
        }
    }
    let output = call.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(answer) } else { Err(failed(answer)) }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::path::Path;

    use super::*;
    use crate::node::tests::node;
    use crate::node::write;
    #[cfg(unix)]
    use crate::node::{read, tests::program};

    #[test]
    fn only_an_address_in_our_name_is_ours() {
        let drive = tempfile::tempdir().unwrap();
        let node = node(drive.path());
        let store = node.addresses("cbr0");
        let both = || [Purpose::SourceVip, Purpose::Gateway].map(|purpose| reserved(&node, "cbr0", purpose));
        assert_eq!(both(), [None; 2]);
        write(&store.join("10.244.1.3"), "4f1c\r\neth0").unwrap();
        write(&store.join("10.244.1.4"), "kube-proxy\r\neth0").unwrap();
        write(&store.join("last_reserved_ip.0"), "10.244.1.4").unwrap();
        assert_eq!(both(), [None; 2]);
        write(&store.join("10.244.1.5"), "kube-proxy\r\nsource-vip").unwrap();
        write(&store.join("10.244.1.2"), "flannel\r\ngateway").unwrap();
        assert_eq!(both(), [5, 2].map(|last| Some(Ipv4Addr::new(10, 244, 1, last))));
    }

    /// The script records its input, and answers like host-local.
    #[cfg(unix)]
    #[test]
    fn what_is_reserved_and_fits_the_subnet_stays() {
        let subnet = |file: &Path, text: &str| {
            write(file, &format!("FLANNEL_SUBNET={text}\n")).unwrap();
            crate::subnet::read(file).unwrap()
        };
        for (purpose, there, fits) in [
            (Purpose::SourceVip, "10.244.1.7", true),
            (Purpose::SourceVip, "10.244.9.7", false),
            (Purpose::Gateway, "10.244.1.2", true),
            (Purpose::Gateway, "10.244.1.7", false),
        ] {
            let drive = tempfile::tempdir().unwrap();
            let node = node(drive.path());
            let asked = drive.path().join("asked");
            let script = format!("(echo $CNI_COMMAND; cat; echo) >> {}; echo '{{\"ips\": [{{\"address\": \"10.244.1.2/24\"}}]}}'", asked.display());
            program(&node.plugins().join("host-local.exe"), &script);
            write(&node.addresses("cbr0").join(there), &purpose.holder().join("\r\n")).unwrap();
            let address = reserve(&node, "cbr0", subnet(&node.subnet_file(), "10.244.1.1/24"), purpose).unwrap();
            let calls = read(&asked).unwrap_or_default();
            let commands: Vec<&str> = calls.lines().filter(|line| line.len() == 3).collect();
            let (expected, called): (_, &[&str]) = if fits { (there, &[]) } else { ("10.244.1.2", &["DEL", "ADD"]) };
            assert_eq!((address.to_string().as_str(), commands.as_slice()), (expected, called), "{purpose:?} {there}");
            let is_asked_for = calls.contains(r#""ips":["10.244.1.2"]"#);
            assert_eq!(is_asked_for, !fits && purpose == Purpose::Gateway, "{calls}");
        }
    }

    #[test]
    fn the_address_is_that_of_the_answer() {
        assert_eq!(address(r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.244.1.2/24"}]}"#), Some(Ipv4Addr::new(10, 244, 1, 2)));
        assert_eq!(address(r#"{"code": 999, "msg": "no addresses available"}"#), None);
    }
}
