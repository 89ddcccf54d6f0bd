//! The node: its name, and the places of its programs and files.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The reason why the program of the pod does not run, as a sentence with the remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// The node of the pod. Paths below `drive` match the paths that bootstrap data and the CNI plugins use.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub address: IpAddr,
    pub api_server: String,
    pub settings: PathBuf,
    pub access: PathBuf,
    pub drive: PathBuf,
}

/// The pause between two checks for changes.
pub const PAUSE: Duration = Duration::from_millis(500);
/// The time limit for the Node's address to appear on an adapter after Windows has started.
const ADDRESS_LIMIT: Duration = Duration::from_secs(60);

impl Node {
    /// The path of a program of Kubernetes or of its network.
    pub fn program(&self, name: &str) -> Result<PathBuf, Failure> {
        installed(self.drive.join("k").join(format!("{name}.exe")))
    }

    /// The path of a CNI plugin.
    pub fn plugin(&self, name: &str) -> Result<PathBuf, Failure> {
        installed(self.plugins().join(format!("{name}.exe")))
    }

    pub fn plugins(&self) -> PathBuf {
        self.drive.join("opt").join("cni").join("bin")
    }

    /// The folder in which containerd expects network configurations.
    pub fn networks(&self) -> PathBuf {
        self.drive.join("etc").join("cni").join("net.d")
    }

    /// The folder in which host-local stores the allocated addresses of a network.
    pub fn addresses(&self, network: &str) -> PathBuf {
        self.drive.join("var").join("lib").join("cni").join("networks").join(network)
    }

    /// The file in which flanneld writes the node's block of the pod network.
    pub fn subnet_file(&self) -> PathBuf {
        self.drive.join("run").join("flannel").join("subnet.env")
    }

    /// The path of a file that is written for a program.
    pub fn written(&self, program: &str, file: &str) -> PathBuf {
        self.drive.join("run").join("capw").join(program).join(file)
    }

    /// Reads a file of the settings as JSON.
    pub fn setting(&self, file: &str) -> Result<Value, Failure> {
        let path = self.settings.join(file);
        serde_json::from_str(&read(&path)?).map_err(|error| Failure(format!("{}: it is no JSON: {error}", path.display())))
    }

    /// Waits until the Node's address is on an adapter: network programs find the adapter by this address.
    pub fn wait_for_address(&self) -> Result<(), Failure> {
        let from = Instant::now();
        loop {
            let Err(error) = UdpSocket::bind((self.address, 0)) else { return Ok(()) };
            if from.elapsed() >= ADDRESS_LIMIT {
                return Err(Failure(format!(
                    "no adapter has the address {} of Node {}: {error}. Compare the Node's InternalIP with `ipconfig` on the node",
                    self.address, self.name
                )));
            }
            sleep(PAUSE);
        }
    }
}

/// Returns the path of a program, or an error if it is missing on the node.
fn installed(path: PathBuf) -> Result<PathBuf, Failure> {
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure(format!(
        "{} is missing: name it in spec.programs.downloads of the WindowsBootstrapConfig, or use an image that has it",
        path.display()
    )))
}

pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

/// Writes a file atomically: a reader sees either the old text or the new one.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let beside = path.with_extension("new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(failed)
}

/// Removes a file if it exists.
pub fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure(format!("{}: {error}", path.display()))),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A node whose drive is a folder.
    pub fn node(drive: &Path) -> Node {
        Node {
            name: "win-1".into(),
            address: IpAddr::from([127, 0, 0, 1]),
            api_server: "https://10.0.0.1:6443".into(),
            settings: drive.join("settings"),
            access: drive.join("access"),
            drive: drive.to_owned(),
        }
    }

    /// Creates a program that runs a script.
    #[cfg(unix)]
    pub fn program(path: &Path, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        write(path, &format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_is_not_on_the_node_is_named_with_the_remedy() {
        let drive = tempfile::tempdir().unwrap();
        let Failure(why) = node(drive.path()).program("flanneld").unwrap_err();
        assert!(why.contains("flanneld.exe is missing") && why.contains("spec.programs.downloads"), "{why}");
    }

    #[test]
    fn a_file_is_written_as_a_whole_and_may_be_gone() {
        let drive = tempfile::tempdir().unwrap();
        let path = drive.path().join("a").join("b.conf");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(read(&path).as_deref(), Ok("two"));
        assert_eq!(fs::read_dir(drive.path().join("a")).unwrap().count(), 1, "nothing is left beside it");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn an_address_of_this_machine_is_found_at_once() {
        let drive = tempfile::tempdir().unwrap();
        assert_eq!(node(drive.path()).wait_for_address(), Ok(()));
    }
}
