//! A separate vCenter for each test: govmomi's simulator, with a front that is as strict as a vCenter, and govmomi's client to inspect it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use parking_lot::Mutex;
use rcgen::ExtendedKeyUsagePurpose;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hypervisor::contract::authority::Authority;
use crate::hypervisor::contract::program::program;
use crate::hypervisor::login::Login;

pub struct Vcenter {
    process: Child,
    commands: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    /// The address of the server.
    pub server: String,
    authority: Authority,
    directory: TempDir,
}

/// A VM, as govmomi's client sees it.
#[derive(Debug, Deserialize)]
pub struct Machine {
    pub name: String,
    pub power: String,
    pub cpus: u32,
    pub memory: u64,
    pub disks: Option<Vec<u64>>,
    /// The datastores of its disks.
    pub stores: Option<Vec<String>>,
    pub networks: Option<Vec<String>>,
    /// The image files of its CDs.
    pub drives: Option<Vec<String>>,
    pub values: std::collections::BTreeMap<String, String>,
}

impl Vcenter {
    /// Starts a vCenter; `None`, with the reason, if the program is missing.
    pub fn start() -> Option<Self> {
        let program = program("vcsim")?;
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("lab");
        let identity = authority.issue("vcenter", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
        let [certificate, key] = [("certificate.pem", identity.certificate), ("key.pem", identity.key)].map(|(name, text)| {
            fs::write(directory.path().join(name), text).unwrap();
            directory.path().join(name)
        });
        let mut process = Command::new(program)
            .arg("-certificate")
            .arg(certificate)
            .arg("-key")
            .arg(key)
            .env("TMPDIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let (input, mut output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut server = String::new();
        output.read_line(&mut server).unwrap();
        let server = server.trim().to_owned();
        assert!(server.starts_with("127.0.0.1:"), "vcsim does not start: {server}");
        Some(Self { process, commands: Mutex::new((input, output)), server, authority, directory })
    }

    pub fn login(&self) -> Login {
        self.login_with("secret")
    }

    pub fn login_with(&self, password: &str) -> Login {
        let values = [("username", "capw"), ("password", password), ("ca.crt", &self.authority.pem)];
        Login::new("lab/vcenter".into(), values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into())
    }

    /// Runs a command in govmomi's client.
    pub fn ask(&self, command: Value) -> Value {
        let mut commands = self.commands.lock();
        let (input, output) = &mut *commands;
        writeln!(input, "{command}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{command}: {error}: {line}"));
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer
    }

    pub fn machines(&self, folder: &str) -> Vec<Machine> {
        serde_json::from_value(self.ask(json!({"do": "vms", "folder": folder}))).unwrap()
    }

    /// The content of a file, e.g. `[LocalDS_0] vm/seed.iso`.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let (_, path) = name.split_once("] ").unwrap();
        let (directory, file) = path.split_once('/').unwrap();
        let content = self.ask(json!({"do": "file", "name": directory, "task": file}));
        Some(STANDARD.decode(content.as_str().unwrap()).unwrap()).filter(|content| !content.is_empty())
    }

    /// The requests since the last call, by method, as counted by the server.
    pub fn requests(&self) -> std::collections::BTreeMap<String, u32> {
        serde_json::from_value(self.ask(json!({"do": "requests"}))).unwrap()
    }
}

impl Drop for Vcenter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            eprintln!("the simulator of a vCenter wrote: {}", log.get(..20_000).unwrap_or(&log));
        }
    }
}
