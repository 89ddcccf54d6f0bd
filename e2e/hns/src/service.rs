//! The objects of the service, as files below one directory. Several programs call it at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::model::{Failure, Kind, attached, code, created, is_asked_for, modified, newer, newer_endpoint, older, older_endpoint, parse};

/// The version of HNS in Windows Server 2022.
const VERSION: (u32, u32) = (15, 4);

/// The service of one node.
pub struct Service {
    root: PathBuf,
}

/// The lock on the service: while it is held, no other call runs.
struct Turn(#[allow(dead_code, reason = "the lock ends with the file")] Option<File>);

impl Service {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A JSON list of the GUIDs that match the query.
    pub fn enumerate(&self, kind: Kind, query: &str) -> Result<String, Failure> {
        let _turn = self.begin("enumerate", kind.folder(), query)?;
        let mut found = Vec::new();
        for object in self.all(kind) {
            if is_asked_for(&object, query)? {
                found.push(object.get("ID").cloned().unwrap_or_default());
            }
        }
        Ok(json!(found).to_string())
    }

    /// Creates an object under that GUID. `network` is the network of an endpoint.
    pub fn create(&self, kind: Kind, id: &str, settings: &str, network: Option<&str>) -> Result<(), Failure> {
        let _turn = self.begin("create", &format!("{}/{id}", kind.folder()), settings)?;
        if kind == Kind::Network && self.fault() == "exists" {
            return Err(Failure(code::NETWORK_ALREADY_EXISTS));
        }
        let object = created(kind, id, settings, network, &self.address())?;
        self.store(kind, id, &object);
        Ok(())
    }

    /// Succeeds if the object exists.
    pub fn open(&self, kind: Kind, id: &str) -> Result<(), Failure> {
        let _turn = self.begin("open", &format!("{}/{id}", kind.folder()), "")?;
        self.load(kind, id).map(drop)
    }

    /// The properties of an object.
    pub fn query(&self, kind: Kind, id: &str) -> Result<String, Failure> {
        let _turn = self.begin("query", &format!("{}/{id}", kind.folder()), "")?;
        Ok(self.load(kind, id)?.to_string())
    }

    pub fn modify(&self, kind: Kind, id: &str, settings: &str) -> Result<(), Failure> {
        let _turn = self.begin("modify", &format!("{}/{id}", kind.folder()), settings)?;
        let object = modified(kind, &self.load(kind, id)?, settings)?;
        self.store(kind, id, &object);
        Ok(())
    }

    pub fn delete(&self, kind: Kind, id: &str) -> Result<(), Failure> {
        let _turn = self.begin("delete", &format!("{}/{id}", kind.folder()), "")?;
        self.remove(kind, id).map(drop)
    }

    /// Handles a call of the older API: returns the whole response. `new_id` generates the GUID of a created object.
    pub fn call(&self, method: &str, path: &str, request: &str, new_id: impl FnOnce() -> String) -> Result<String, Failure> {
        let turn = self.begin(method, path, request)?;
        let failed = |failure: Failure| json!({"Success": false, "Error": failure.words(), "ErrorCode": failure.0});
        let (first, id) = path.trim_matches('/').split_once('/').unwrap_or((path.trim_matches('/'), ""));
        let (id, action) = id.split_once('/').unwrap_or((id, ""));
        let output = match (method, first, id) {
            ("GET", "globals", _) => Ok(json!({"Major": VERSION.0, "Minor": VERSION.1})),
            ("GET", "networks", "") => Ok(self.all(Kind::Network).iter().map(older).collect()),
            ("GET", "networks", id) => self.load(Kind::Network, id).map(|network| older(&network)),
            ("POST", "networks", "") => {
                drop(turn);
                let (id, asked) = (new_id(), parse(request)?);
                let settings = newer(&asked, &self.address()).to_string();
                self.create(Kind::Network, &id, &settings, None).and_then(|()| self.load(Kind::Network, &id)).map(|network| older(&network))
            }
            ("DELETE", "networks", id) => self.remove(Kind::Network, id),
            ("GET", "endpoints", "") => Ok(self.all(Kind::Endpoint).iter().map(older_endpoint).collect()),
            ("GET", "endpoints", id) => self.load(Kind::Endpoint, id).map(|endpoint| older_endpoint(&endpoint)),
            ("POST", "endpoints", "") => {
                drop(turn);
                let (id, asked) = (new_id(), parse(request)?);
                let (network, settings) = (asked.get("VirtualNetwork").and_then(Value::as_str), newer_endpoint(&asked).to_string());
                let made = self.create(Kind::Endpoint, &id, &settings, network).and_then(|()| self.load(Kind::Endpoint, &id));
                made.map(|endpoint| older_endpoint(&endpoint))
            }
            ("POST", "endpoints", id) if action == "attach" => self.load(Kind::Endpoint, id).and_then(|endpoint| {
                self.store(Kind::Endpoint, id, &attached(&endpoint)?);
                Ok(Value::Null)
            }),
            ("DELETE", "endpoints", id) => self.remove(Kind::Endpoint, id),
            ("GET", "policylists", _) => Ok(json!([])),
            _ => Err(Failure(code::REQUEST_UNSUPPORTED)),
        };
        Ok(output.map_or_else(failed, |output| json!({"Success": true, "Output": output})).to_string())
    }

    /// Takes the lock, and logs the call.
    fn begin(&self, what: &str, of: &str, with: &str) -> Result<Turn, Failure> {
        let _ = fs::create_dir_all(&self.root);
        let lock = File::create(self.root.join("lock")).ok().filter(|lock| lock.lock().is_ok());
        if let Ok(mut log) = OpenOptions::new().create(true).append(true).open(self.root.join("calls.log")) {
            let _ = writeln!(log, "{what} {of} {with}");
        }
        if self.is_down() { Err(Failure(code::MANAGER_STOPPED)) } else { Ok(Turn(lock)) }
    }

    /// Whether the service is stopped, for all calls or for a number of them.
    fn is_down(&self) -> bool {
        let fault = self.fault();
        let left: Option<u32> = fault.strip_prefix("down ").and_then(|left| left.parse().ok());
        if let Some(left) = left.filter(|left| *left > 0) {
            let _ = fs::write(self.root.join("fault"), format!("down {}", left - 1));
        }
        left.map_or(fault == "down", |left| left > 0)
    }

    fn fault(&self) -> String {
        fs::read_to_string(self.root.join("fault")).unwrap_or_default().trim().to_owned()
    }

    /// The node's address; by default the loopback address.
    fn address(&self) -> String {
        let node = fs::read_to_string(self.root.join("node.json")).ok().and_then(|text| parse(&text).ok());
        node.and_then(|node| Some(node.get("address")?.as_str()?.to_owned())).unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    fn path(&self, kind: Kind, id: &str) -> PathBuf {
        self.root.join(kind.folder()).join(format!("{}.json", id.to_ascii_uppercase()))
    }

    fn load(&self, kind: Kind, id: &str) -> Result<Value, Failure> {
        read(&self.path(kind, id)).ok_or_else(|| kind.missing())
    }

    fn all(&self, kind: Kind) -> Vec<Value> {
        let files = fs::read_dir(self.root.join(kind.folder())).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
        paths.sort();
        paths.iter().filter_map(|path| read(path)).collect()
    }

    fn remove(&self, kind: Kind, id: &str) -> Result<Value, Failure> {
        fs::remove_file(self.path(kind, id)).map(|()| Value::Null).map_err(|_| kind.missing())
    }

    fn store(&self, kind: Kind, id: &str, object: &Value) {
        let path = self.path(kind, id);
        if let Some(folder) = path.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(path, format!("{object:#}\n"));
    }
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn objects_are_created_found_changed_and_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::new(directory.path());
        fs::write(directory.path().join("node.json"), r#"{"address": "10.0.0.5"}"#).unwrap();
        service.create(Kind::Network, "AB-1", r#"{"Name": "flannel.4096", "Type": "Overlay"}"#, None).unwrap();
        let by_name = |name: &str| service.enumerate(Kind::Network, &json!({"Filter": json!({"Name": name}).to_string()}).to_string()).unwrap();
        assert_eq!((by_name("flannel.4096").as_str(), by_name("other").as_str()), (r#"["AB-1"]"#, "[]"));
        assert!(service.query(Kind::Network, "ab-1").unwrap().contains("10.0.0.5"));
        service.create(Kind::Endpoint, "E", "{}", Some("AB-1")).unwrap();
        assert!(service.query(Kind::Endpoint, "E").unwrap().contains("00-15-5D-"));
        service.delete(Kind::Network, "AB-1").unwrap();
        assert_eq!(service.open(Kind::Network, "AB-1"), Err(Failure(code::NETWORK_NOT_FOUND)));
        let calls = fs::read_to_string(directory.path().join("calls.log")).unwrap();
        assert_eq!(calls.lines().filter(|line| line.starts_with("create ")).count(), 2);
    }

    #[test]
    fn the_older_api_shows_the_same_networks() {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::new(directory.path());
        let call = |method: &str, path: &str, request: &str| parse(&service.call(method, path, request, || "AB-1".into()).unwrap()).unwrap();
        assert_eq!(call("GET", "/globals/version", "")["Output"]["Major"], 15);
        let made = call("POST", "/networks/", r#"{"Name": "cbr0", "Type": "L2Bridge"}"#);
        assert_eq!((&made["Success"], &made["Output"]["ID"]), (&json!(true), &json!("AB-1")));
        assert_eq!(call("GET", "/networks/", "")["Output"][0]["Name"], "cbr0");
        assert_eq!(call("GET", "/networks/AB-1", "")["Output"]["Name"], "cbr0");
        assert_eq!(call("DELETE", "/networks/AB-1", "")["Success"], true);
        assert_eq!(call("GET", "/networks/AB-1", "")["Success"], false);
        assert_eq!(call("PATCH", "/networks/AB-1", "")["Success"], false);
    }

    #[test]
    fn the_older_api_makes_an_endpoint_of_the_node_itself() {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::new(directory.path());
        let call = |method: &str, path: &str, request: &str| parse(&service.call(method, path, request, || "AB-1".into()).unwrap()).unwrap();
        let made = call("POST", "/endpoints/", r#"{"Name": "cbr0_ep", "VirtualNetwork": "N", "IPAddress": "10.244.1.2"}"#);
        let expected = json!([{"ID": "AB-1", "Name": "cbr0_ep", "VirtualNetwork": "N", "IPAddress": "10.244.1.2", "GatewayAddress": null,
            "MacAddress": made["Output"]["MacAddress"], "State": 1}]);
        assert_eq!((&made["Output"], &call("GET", "/endpoints/", "")["Output"]), (&expected[0], &expected));
        assert_eq!(service.enumerate(Kind::Endpoint, r#"{"Filter": "{\"VirtualNetwork\":\"N\"}"}"#).as_deref(), Ok(r#"["AB-1"]"#));
        let attach = || call("POST", "/endpoints/AB-1/attach", r#"{"SystemType": "Host", "CompartmentId": 1}"#);
        assert_eq!(attach()["Success"], true);
        assert_eq!(call("GET", "/endpoints/AB-1", "")["Output"]["State"], 2);
        assert_eq!(attach()["Error"], "This endpoint is already attached to the switch. ");
        assert_eq!(call("POST", "/endpoints/AB-1", "")["Success"], false);
        assert_eq!(call("DELETE", "/endpoints/AB-1", "")["Success"], true);
        assert_eq!(call("POST", "/endpoints/AB-1/attach", "")["Success"], false);
    }

    #[test]
    fn faults_are_as_files_say() {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::new(directory.path());
        fs::write(directory.path().join("fault"), "exists\n").unwrap();
        assert_eq!(service.create(Kind::Network, "A", "{}", None), Err(Failure(code::NETWORK_ALREADY_EXISTS)));
        fs::write(directory.path().join("fault"), "down").unwrap();
        assert_eq!(service.enumerate(Kind::Endpoint, ""), Err(Failure(code::MANAGER_STOPPED)));
        assert_eq!(service.call("GET", "/globals/version", "", String::new), Err(Failure(code::MANAGER_STOPPED)));
        fs::write(directory.path().join("fault"), "down 2").unwrap();
        for _ in 0..2 {
            assert_eq!(service.enumerate(Kind::Endpoint, ""), Err(Failure(code::MANAGER_STOPPED)));
        }
        assert_eq!(service.enumerate(Kind::Endpoint, "").as_deref(), Ok("[]"));
    }
}
