//! `capw-node flannel`.

use crate::access;
use crate::child::Child;
use crate::node::{Failure, Node, PAUSE, read, remove, write};
use crate::say;
use crate::subnet;

const PROGRAM: &str = "flanneld";
/// The file by which containerd learns of the network. It calls the node's network ready from then on.
const CONFLIST: &str = "10-flannel.conflist";

/// Runs flanneld until it ends.
pub fn run(node: &Node) -> Result<(), Failure> {
    let program = node.program(PROGRAM)?;
    for plugin in ["flannel", "host-local", "win-overlay"] {
        node.plugin(plugin)?;
    }
    node.wait_for_address()?;
    let conflist = read(&node.settings.join("cni.conflist"))?;
    let kubeconfig = access::kubeconfig(node, "flannel")?;
    // One of an earlier run, or of a network that is gone since Windows started, says nothing.
    remove(&node.subnet_file())?;
    let mut flanneld = Child::start(&program, &arguments(node, &kubeconfig))?;
    let subnet = flanneld.until(PAUSE, || Ok(subnet::read(&node.subnet_file())))?;
    write(&node.networks().join(CONFLIST), &conflist)?;
    say(&format!("containerd has the network; pods of this node are in {subnet}"));
    flanneld.until(PAUSE, || Ok(None))
}

/// It reads its own Node, and is told the adapter: it would ask PowerShell for the one with the default route. Without `--ip-masq`: that would have the
/// CNI plugins translate addresses a second time, for all but the node's own pods.
fn arguments(node: &Node, kubeconfig: &str) -> Vec<String> {
    vec![
        "--kube-subnet-mgr".into(),
        format!("--kubeconfig-file={kubeconfig}"),
        format!("--net-config-path={}", node.settings.join("net-conf.json").display()),
        format!("--subnet-file={}", node.subnet_file().display()),
        format!("--iface={}", node.address),
        "--iptables-forward-rules=false".into(),
    ]
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::node::tests::node;

    fn program(path: &Path, script: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The network is handed to containerd only once flanneld has it, and what an earlier run left does not count.
    #[test]
    fn the_network_is_told_last() {
        for (script, told) in [("exit 1", false), ("echo FLANNEL_SUBNET=10.244.1.1/24 > \"$SUBNET\"; sleep 1; exit 2", true)] {
            let drive = tempfile::tempdir().unwrap();
            let node = node(drive.path());
            for plugin in ["flannel", "host-local", "win-overlay"] {
                program(&node.plugins().join(format!("{plugin}.exe")), "exit 0");
            }
            write(&node.subnet_file(), "FLANNEL_SUBNET=10.244.9.1/24\n").unwrap();
            write(&node.settings.join("cni.conflist"), "{}").unwrap();
            let script = script.replace("$SUBNET", &node.subnet_file().display().to_string());
            program(&drive.path().join("k").join("flanneld.exe"), &script);
            let Failure(why) = run(&node).unwrap_err();
            assert!(why.starts_with("flanneld.exe: ended (exit status: "), "{why}");
            assert_eq!(node.networks().join(CONFLIST).exists(), told, "{script}");
        }
    }
}
