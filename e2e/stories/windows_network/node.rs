//! A Windows node of these stories: its programs, and the objects of its networking service.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::linux_side;
use crate::world::{self, Capw, simulated_vms, text, wine};

/// The file with the fault of a node's networking service.
pub const FAULT: &str = r"C:\hns\fault";

/// The Windows programs besides Kubernetes.
pub struct Programs {
    pub node: PathBuf,
    pub agnhost: PathBuf,
    /// The other programs, each with its path on the node.
    others: Vec<(PathBuf, &'static str)>,
}

impl Programs {
    /// Finds the programs. `None`: something is missing, and `story` does not run.
    pub fn find(story: &str) -> Option<Self> {
        Self::found().inspect_err(|lacks| wine::skip(story, lacks)).ok()
    }

    /// Finds the programs; the error names what is missing.
    fn found() -> Result<Self, String> {
        if let Some(lacks) = wine::lacks(&[&wine::kubernetes()]) {
            return Err(lacks);
        }
        let found = |name: &str, file: &str| {
            let script = world::checkout().join("e2e/tools/windows/build.sh");
            let output = Command::new("bash").arg(script).args(["--path", name]).output().map_err(|error| error.to_string())?;
            let file = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(file);
            if file.exists() { Ok(file) } else { Err(format!("{} (e2e/tools/windows/build.sh)", file.display())) }
        };
        Ok(Self {
            node: found("own", "capw-node.exe")?,
            agnhost: found("agnhost", "agnhost.exe")?,
            others: vec![
                (found("flannel", "flannel.exe")?, r"C:\k\flanneld.exe"),
                (found("host-local", "host-local.exe")?, r"C:\opt\cni\bin\host-local.exe"),
                (found("win-bridge", "win-bridge.exe")?, r"C:\opt\cni\bin\win-bridge.exe"),
                (found("win-overlay", "win-overlay.exe")?, r"C:\opt\cni\bin\win-overlay.exe"),
                (found("own", "computenetwork.dll")?, r"C:\windows\system32\computenetwork.dll"),
                (found("own", "vmcompute.dll")?, r"C:\windows\system32\vmcompute.dll"),
                // Wine's own PowerShell is in a folder that comes later in the path.
                (found("own", "powershell.exe")?, r"C:\windows\powershell.exe"),
            ],
        })
    }

    /// Copies the programs, the networking service and a PowerShell to a node, as its image or bootstrap data would. `false`: they exist already.
    pub fn put_into(&self, guest: &wine::WineGuest, address: &str) -> bool {
        let service = r"C:\hns\node.json";
        if guest.path(service).exists() {
            return false;
        }
        for (from, to) in &self.others {
            guest.write(to, &fs::read(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())));
        }
        // Flannel's CNI plugin is in no package registry. It only passes on the request that `pod::attach` builds.
        guest.write(r"C:\opt\cni\bin\flannel.exe", b"");
        guest.write(service, json!({"address": address}).to_string().as_bytes());
        true
    }
}

pub fn address(node: &Value) -> Option<&str> {
    let internal = node["status"]["addresses"].as_array()?.iter().find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()
}

/// The value of a flannel annotation of a node.
pub fn annotation<'a>(node: &'a Value, key: &str) -> &'a str {
    node["metadata"]["annotations"][format!("flannel.alpha.coreos.com/{key}")].as_str().unwrap_or_default()
}

/// The network of a node that has its lease of this backend, by name and type of that network; the node still has the taint.
pub fn leased(node: &Value, guest: &wine::WineGuest, backend: &str, name: &str, kind: &str) -> Result<Value, String> {
    let lease = (annotation(node, "backend-type"), annotation(node, "kube-subnet-manager"), Some(annotation(node, "public-ip")));
    if lease != (backend, "true", address(node)) {
        return Err(format!("its lease is {lease:?}"));
    }
    // No kubelet reports the pods here as ready.
    if !linux_side::is_unverified(node) {
        return Err("it has no taint".to_owned());
    }
    let networks = objects(guest, "networks");
    let [network] = networks.as_slice() else { return Err(format!("its networks are {networks:?}")) };
    let subnet = &network["Ipams"][0]["Subnets"][0]["IpAddressPrefix"];
    if (&network["Name"], &network["Type"], subnet) != (&json!(name), &json!(kind), &node["spec"]["podCIDR"]) {
        return Err(format!("its network is {network:#}"));
    }
    Ok(network.clone())
}

/// The objects in the networking service of a node.
pub fn objects(guest: &wine::WineGuest, kind: &str) -> Vec<Value> {
    let files = fs::read_dir(guest.path(&format!(r"C:\hns\{kind}"))).into_iter().flatten().flatten();
    files.filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok()).collect()
}

pub fn policies<'a>(object: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    object["Policies"].as_array().into_iter().flatten().filter(move |policy| policy["Type"] == kind).map(|policy| &policy["Settings"])
}

/// The guest of a Node.
pub fn guest_of(capw: &Capw, node: &Value) -> Option<wine::WineGuest> {
    let vms = simulated_vms(capw.state());
    let vm = vms.iter().find(|vm| vm.is_whole() && text(node, "/spec/providerID").ends_with(&vm.directory))?;
    Some(wine::WineGuest::of(capw.state(), &vm.datacenter, &vm.directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows provides a program only with the functions that it names.
    #[test]
    fn the_program_of_the_nodes_is_small_and_can_listen_on_nothing() {
        let Some(programs) = Programs::find("windows_network::node") else { return };
        let program = fs::read(&programs.node).expect("capw-node.exe");
        assert!(program.len() <= 20 << 20, "{} bytes", program.len());
        let has = |function: &str| {
            let name = [function.as_bytes(), b"\0"].concat();
            program.windows(name.len()).any(|at| at == name)
        };
        assert!(has("bind"), "it looks for the adapter with the node's address by one");
        let listening: Vec<&str> =
            ["listen", "accept", "WSAAccept", "AcceptEx", "recvfrom", "WSARecvFrom"].into_iter().filter(|name| has(name)).collect();
        assert_eq!(listening, [""; 0]);
    }
}
