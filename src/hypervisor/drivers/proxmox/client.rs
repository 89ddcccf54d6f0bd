//! The typed requests of this driver. Each is one method of the API of Proxmox VE and passes the wire.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::connection::{Body, Call, Connection, Form};
use super::fault::{Error, Refusal};
use crate::hypervisor::DriverError;
use crate::hypervisor::wire::{Effect, Wire};

pub struct Client {
    connection: Connection,
    wire: Wire,
}

/// The node and id of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    pub node: String,
    pub vmid: u32,
}

/// A guest, node or storage in a cluster's listing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// The kind: `qemu`, `lxc`, `node`, `storage` and more.
    #[serde(rename = "type")]
    pub kind: String,
    pub node: String,
    #[serde(deserialize_with = "number")]
    pub vmid: u64,
    pub name: String,
    pub status: String,
    pub tags: String,
    pub lock: String,
    #[serde(deserialize_with = "number")]
    pub template: u64,
    #[serde(deserialize_with = "number")]
    pub maxcpu: u64,
    /// The memory in bytes.
    #[serde(deserialize_with = "number")]
    pub maxmem: u64,
    pub storage: String,
    #[serde(deserialize_with = "number")]
    pub shared: u64,
    /// The content types of a storage: `iso,images`.
    pub content: String,
}

impl Resource {
    pub fn is_vm(&self) -> bool {
        self.kind == "qemu"
    }

    pub fn location(&self) -> Location {
        Location { node: self.node.clone(), vmid: u32::try_from(self.vmid).unwrap_or_default() }
    }

    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.split([';', ',', ' ']).any(|has| has.eq_ignore_ascii_case(tag))
    }
}

/// Reads a number or a number in a string: Perl writes both.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Number(number) => number.as_u64().or(number.as_f64().map(|number| number as u64)).unwrap_or_default(),
        Value::String(text) => text.parse().unwrap_or_default(),
        Value::Bool(flag) => flag.into(),
        _ => 0,
    })
}

/// The configuration of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, Value>")]
pub struct Config(BTreeMap<String, String>);

impl From<BTreeMap<String, Value>> for Config {
    fn from(values: BTreeMap<String, Value>) -> Self {
        let text = |value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Self(values.into_iter().map(|(key, value)| (key, text(value))).collect())
    }
}

impl Config {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// The run state of a VM.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub status: String,
    /// The state that QEMU reports.
    pub qmpstatus: String,
    pub lock: String,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    Running,
    Succeeded,
    Failed(Refusal),
    /// The node has no record of the task.
    Forgotten,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Version {
    pub version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Task {
    status: String,
    exitstatus: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Certificate {
    filename: String,
    fingerprint: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Volume {
    volid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Interface {
    iface: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileContent {
    content: String,
}

fn vm(at: &Location) -> String {
    format!("/nodes/{}/qemu/{}", at.node, at.vmid)
}

fn segment(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

impl Client {
    pub fn new(connection: Connection, wire: Wire) -> Self {
        Self { connection, wire }
    }

    pub fn server(&self) -> &str {
        self.connection.server()
    }

    pub async fn version(&self) -> Result<Version, Error> {
        self.get("GetVersion", "/version".into()).await
    }

    /// Returns the fingerprint of the authority that a cluster creates when it is founded: the cluster's identity.
    pub async fn authority(&self, node: &str) -> Result<Option<String>, Error> {
        let all: Vec<Certificate> = self.get("GetCertificates", format!("/nodes/{node}/certificates/info")).await?;
        Ok(all.into_iter().find(|it| it.filename == "pve-root-ca.pem").map(|it| it.fingerprint).filter(|it| !it.is_empty()))
    }

    /// Returns the privileges of the token at a path.
    pub async fn privileges(&self, path: &str) -> Result<BTreeSet<String>, Error> {
        let all: BTreeMap<String, BTreeMap<String, Value>> =
            self.get("GetPermissions", format!("/access/permissions?path={}", segment(path))).await?;
        Ok(all.into_values().flat_map(BTreeMap::into_keys).collect())
    }

    /// Lists everything that the token may see.
    pub async fn resources(&self) -> Result<Vec<Resource>, Error> {
        self.get("GetResources", "/cluster/resources".into()).await
    }

    /// Lists all guests that the token may see: the server omits the others without an error.
    pub async fn guests(&self) -> Result<Vec<Resource>, Error> {
        self.get("ListGuests", "/cluster/resources?type=vm".into()).await
    }

    /// Lists the bridges of a node, and the VNets, that the token may use.
    pub async fn networks(&self, node: &str) -> Result<Vec<String>, Error> {
        let all: Vec<Interface> = self.get("ListNetworks", format!("/nodes/{node}/network?type=any_bridge")).await?;
        Ok(all.into_iter().map(|it| it.iface).collect())
    }

    /// Returns the configuration of a VM; `None`: that node has no such VM.
    pub async fn config(&self, at: &Location) -> Result<Option<Config>, Error> {
        unless_gone(self.get("GetConfig", format!("{}/config", vm(at))).await)
    }

    pub async fn status(&self, at: &Location) -> Result<Option<Status>, Error> {
        unless_gone(self.get("GetStatus", format!("{}/status/current", vm(at))).await)
    }

    /// Lists the names of the files in a storage for ISO images.
    pub async fn images(&self, node: &str, storage: &str) -> Result<Vec<String>, Error> {
        let all: Vec<Volume> = self.get("ListImages", format!("/nodes/{node}/storage/{storage}/content?content=iso")).await?;
        let start = format!("{storage}:iso/");
        Ok(all.into_iter().filter_map(|it| it.volid.strip_prefix(&start).map(str::to_owned)).collect())
    }

    /// Reads a file in the guest through its agent.
    pub async fn read_file(&self, at: &Location, file: &str) -> Result<String, Error> {
        let read: FileContent = self.get("ReadFile", format!("{}/agent/file-read?file={}", vm(at), segment(file))).await?;
        Ok(read.content)
    }

    /// Returns the state of a task. A token may read each of its own tasks, but the list of tasks shows it none.
    pub async fn task(&self, task: &str) -> Result<TaskState, Error> {
        let task: Result<Task, Error> = self.get("GetTask", format!("{}/status", task_path(task)?)).await;
        let Task { status, exitstatus } = match task {
            Err(Error::Refused(refusal)) if refusal.status == 500 => return Ok(TaskState::Forgotten),
            task => task?,
        };
        Ok(match exitstatus.as_str() {
            _ if status != "stopped" => TaskState::Running,
            "OK" => TaskState::Succeeded,
            text if text.starts_with("WARNINGS") => TaskState::Succeeded,
            text if text.starts_with("unable to open file") => TaskState::Forgotten,
            text => TaskState::Failed(Refusal::of_task(text)),
        })
    }

    pub async fn stop_task(&self, task: &str) -> Result<(), Error> {
        let call = Call { method: Method::DELETE, path: task_path(task)?, body: Body::None };
        self.send::<Value>("StopTask", Effect::Changes, call).await.map(drop)
    }

    /// Clones an image. This and the methods below return the task that they start, or an empty text if they start none.
    pub async fn clone(&self, image: &Location, form: Form) -> Result<String, Error> {
        self.change("Clone", Method::POST, format!("{}/clone", vm(image)), Body::Form(form)).await
    }

    pub async fn configure(&self, at: &Location, form: Form) -> Result<String, Error> {
        self.change("SetConfig", Method::POST, format!("{}/config", vm(at)), Body::Form(form)).await
    }

    pub async fn resize(&self, at: &Location, disk: &str, gib: u64) -> Result<String, Error> {
        let form = vec![("disk".to_owned(), disk.to_owned()), ("size".to_owned(), format!("{gib}G"))];
        self.change("Resize", Method::PUT, format!("{}/resize", vm(at)), Body::Form(form)).await
    }

    pub async fn start(&self, at: &Location) -> Result<String, Error> {
        self.change("Start", Method::POST, format!("{}/status/start", vm(at)), Body::None).await
    }

    pub async fn stop(&self, at: &Location) -> Result<String, Error> {
        self.change("Stop", Method::POST, format!("{}/status/stop", vm(at)), Body::None).await
    }

    /// Shuts down a guest. The task ends after that time even if the guest still runs: until then it blocks every other change of the VM.
    pub async fn shut_down(&self, at: &Location, seconds: u64) -> Result<String, Error> {
        let form = vec![("timeout".to_owned(), seconds.to_string())];
        self.change("ShutDown", Method::POST, format!("{}/status/shutdown", vm(at)), Body::Form(form)).await
    }

    /// Removes a VM with its disks, and its id from jobs and lists of the cluster.
    pub async fn destroy(&self, at: &Location) -> Result<String, Error> {
        self.change("Destroy", Method::DELETE, format!("{}?purge=1&destroy-unreferenced-disks=1", vm(at)), Body::None).await
    }

    pub async fn upload(&self, node: &str, storage: &str, name: &str, bytes: Bytes) -> Result<String, Error> {
        let body = Body::Image { name: name.to_owned(), bytes };
        self.change("Upload", Method::POST, format!("/nodes/{node}/storage/{storage}/upload"), body).await
    }

    pub async fn delete_image(&self, node: &str, storage: &str, name: &str) -> Result<String, Error> {
        // The server waits for the task, which is short.
        let path = format!("/nodes/{node}/storage/{storage}/content/{}?delay=5", segment(&format!("{storage}:iso/{name}")));
        self.change("DeleteImage", Method::DELETE, path, Body::None).await
    }

    async fn get<T: DeserializeOwned>(&self, name: &'static str, path: String) -> Result<T, Error> {
        self.send(name, Effect::Reads, Call { method: Method::GET, path, body: Body::None }).await
    }

    async fn change(&self, name: &'static str, method: Method, path: String, body: Body) -> Result<String, Error> {
        let task: Option<String> = self.send(name, Effect::Changes, Call { method, path, body }).await?;
        Ok(task.unwrap_or_default())
    }

    async fn send<T: DeserializeOwned>(&self, name: &'static str, effect: Effect, call: Call) -> Result<T, Error> {
        let work = async {
            let data = self.connection.send(&call, effect).await?;
            serde_json::from_value(data).map_err(|error| {
                let text = format!("the answer of {} to {name} cannot be read: {error}", self.server());
                effect.unanswered(text).into()
            })
        };
        self.wire.request(name, effect, work).await
    }
}

/// Returns the path of a task, whose id names its node: `UPID:NODE:…`.
fn task_path(task: &str) -> Result<String, DriverError> {
    let node = task.split(':').nth(1).filter(|node| task.starts_with("UPID:") && !node.is_empty());
    let node = node.ok_or_else(|| DriverError::Invalid(format!("{task:?} is no task of Proxmox VE")))?;
    Ok(format!("/nodes/{node}/tasks/{}", segment(task)))
}

fn unless_gone<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.is(Refusal::is_gone) => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_perl_writes_is_read() {
        let guest: Resource = serde_json::from_value(
            json!({"type": "qemu", "vmid": "20001", "maxcpu": 2.0, "maxmem": 4294967296u64, "template": true, "tags": "a;CAPW-x", "new": {}}),
        )
        .unwrap();
        assert_eq!((guest.vmid, guest.maxcpu, guest.maxmem >> 20, guest.template), (20001, 2, 4096, 1));
        assert!(guest.is_vm() && guest.has_tag("capw-x") && !guest.has_tag("capw"));
        let config: Config = serde_json::from_value(json!({"cores": 2, "memory": "4096", "name": "x"})).unwrap();
        assert_eq!((config.get("cores"), config.get("memory"), config.get("lock")), (Some("2"), Some("4096"), None));
    }

    #[test]
    fn a_task_says_where_it_is() {
        let path = task_path("UPID:pve1:000003E8:00001B58:6921:qmclone:9000:capw@pve!capw:").unwrap();
        assert_eq!(path, "/nodes/pve1/tasks/UPID%3Apve1%3A000003E8%3A00001B58%3A6921%3Aqmclone%3A9000%3Acapw%40pve%21capw%3A");
        assert!(task_path("").is_err() && task_path("x:y").is_err());
    }
}
