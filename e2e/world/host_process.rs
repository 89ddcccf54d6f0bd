//! Pods of one HostProcess container on Wine guests. Wine has no containers, so the kubelet there starts none: this module replaces the
//! kubelet and containerd, which run the container as a process of the host. It writes the volumes to drive C:, sets the variables, and
//! runs the program of the image with the arguments of the pod. It restarts a container that has ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;

use super::client::{Kind, text};
use super::control_plane::ControlPlane;
use super::wine::WineGuest;

const PODS: Kind = Kind::new("v1", "pods");
/// The folder where containerd puts the files of an image and its volumes; arguments refer to it by the variable below.
const IMAGE: &str = r"C:\hpc";
const MOUNT_POINT: &str = "%CONTAINER_SANDBOX_MOUNT_POINT%";

/// The pods of one namespace.
pub struct HostProcesses {
    namespace: String,
    /// The program in the image.
    program: PathBuf,
    /// The containers by pod name.
    containers: BTreeMap<String, Container>,
}

struct Container {
    process: Child,
    log: PathBuf,
    starts: u32,
}

impl HostProcesses {
    pub fn new(namespace: &str, program: &Path) -> Self {
        Self { namespace: namespace.into(), program: program.to_owned(), containers: BTreeMap::new() }
    }

    /// Starts the missing containers of pods that are bound to a guest's Node.
    pub async fn run(&mut self, cp: &ControlPlane, guest_of: impl Fn(&str) -> Option<WineGuest>) {
        let of_host = cp.list(PODS, Some(&self.namespace)).await.into_iter().filter(|pod| pod["spec"]["hostNetwork"] == true);
        for pod in of_host {
            let (name, node) = (text(&pod, "/metadata/name"), text(&pod, "/spec/nodeName"));
            let runs = |container: &mut Container| container.process.try_wait().is_ok_and(|status| status.is_none());
            if self.containers.get_mut(name).is_some_and(runs) {
                continue;
            }
            let Some(guest) = guest_of(node) else { continue };
            let node = cp.get(Kind::NODE, node).await.unwrap_or_default();
            let log = cp.directory().join(format!("{name}.log"));
            let process = self.start(cp, &guest, &pod, &node, &log).await;
            let starts = self.containers.get(name).map_or(1, |before| before.starts + 1);
            self.containers.insert(name.to_owned(), Container { process, log, starts });
        }
    }

    /// The output of containers, from all their starts, of pods whose name begins with `start`.
    pub fn logs(&self, start: &str) -> String {
        self.texts(start).map(|(name, log)| format!("--- {name}\n{log}")).collect()
    }

    /// The last line that begins with `beginning`, of each pod whose name begins with `start`.
    pub fn last_lines(&self, start: &str, beginning: &str) -> Vec<String> {
        let last = |log: &str| log.lines().rfind(|line| line.starts_with(beginning)).unwrap_or_default().to_owned();
        self.texts(start).map(|(_, log)| last(&log)).collect()
    }

    /// Each pod whose name begins with `start`, with the output of its containers.
    fn texts<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (&'a str, String)> {
        let containers = self.containers.iter().filter(move |(name, _)| name.starts_with(start));
        containers.map(|(name, container)| (name.as_str(), fs::read_to_string(&container.log).unwrap_or_default()))
    }

    /// The number of container starts of pods whose name begins with `start`.
    pub fn starts(&self, start: &str) -> u32 {
        self.containers.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, container)| container.starts).sum()
    }

    async fn start(&self, cp: &ControlPlane, guest: &WineGuest, pod: &Value, node: &Value, log: &Path) -> Child {
        let name = self.program.file_name().expect("a program").to_str().expect("a name");
        let image = format!(r"{IMAGE}\{name}");
        // Written once: Wine maps parts of the file, and a running container would lose them.
        if !guest.path(&image).exists() {
            guest.write(&image, &fs::read(&self.program).unwrap_or_else(|e| panic!("{}: {e}", self.program.display())));
        }
        let container = &pod["spec"]["containers"][0];
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let volume = pod["spec"]["volumes"].as_array().into_iter().flatten().find(|volume| volume["name"] == mount["name"]);
            let folder = format!("{IMAGE}{}", text(mount, "/mountPath").replace('/', r"\"));
            for (file, content) in self.volume(cp, pod, volume.expect("the volume of the mount")).await {
                guest.write(&format!(r"{folder}\{file}"), content.as_bytes());
            }
        }
        let words = container["args"].as_array().into_iter().flatten().map(|word| word.as_str().expect("a text").replace(MOUNT_POINT, IMAGE));
        let argv: Vec<String> = std::iter::once(image).chain(words).collect();
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let log = File::options().create(true).append(true).open(log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let mut program = guest.program(&argv).expect("the guest is on");
        for variable in container["env"].as_array().into_iter().flatten() {
            program.env(text(variable, "/name"), value(variable, pod, node));
        }
        let output = log.try_clone().expect("a second handle");
        program.stdin(std::process::Stdio::null()).stdout(output).stderr(log).spawn().expect("the container starts")
    }

    /// The files of a volume.
    async fn volume(&self, cp: &ControlPlane, pod: &Value, volume: &Value) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let sources = volume["projected"]["sources"].as_array().cloned().unwrap_or_else(|| vec![volume.clone()]);
        for source in sources {
            if let Some(path) = source["serviceAccountToken"]["path"].as_str() {
                files.insert(path.to_owned(), cp.token_for(&self.namespace, text(pod, "/spec/serviceAccountName")).await);
            } else if let Some(name) = source["configMap"]["name"].as_str() {
                let map = cp.get(Kind::CONFIG_MAP, &format!("{}/{name}", self.namespace)).await.unwrap_or_else(|| panic!("no ConfigMap {name}"));
                let data = map["data"].as_object().into_iter().flatten();
                files.extend(data.map(|(key, content)| (key.clone(), content.as_str().expect("a text").to_owned())));
            } else {
                panic!("a volume of an unknown kind: {volume}");
            }
        }
        files
    }
}

/// The value of a variable. The supported fields of a pod exist in the downward API and in a pod on the host's network.
fn value(variable: &Value, pod: &Value, node: &Value) -> String {
    match variable.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str) {
        None => text(variable, "/value").to_owned(),
        Some("spec.nodeName") => text(pod, "/spec/nodeName").to_owned(),
        Some("status.hostIP") => {
            let internal = node["status"]["addresses"].as_array().into_iter().flatten().find(|address| address["type"] == "InternalIP");
            text(internal.expect("the Node's address"), "/address").to_owned()
        }
        Some(other) => panic!("a field of a pod that is not known here: {other}"),
    }
}
