//! A Proxmox VE cluster for each test: fakepve, which checks every request against the published schema, and a way to inspect it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use parking_lot::Mutex;
use rcgen::ExtendedKeyUsagePurpose;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use crate::hypervisor::contract::authority::Authority;
use crate::hypervisor::contract::program::program;
use crate::hypervisor::login::Login;

pub struct Cluster {
    process: Child,
    commands: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    /// The address of the server.
    pub server: String,
    pub authority: Authority,
    _directory: TempDir,
}

/// A VM, as the cluster stores it.
#[derive(Debug, Deserialize)]
pub struct Vm {
    pub vmid: u32,
    pub name: String,
    pub node: String,
    pub status: String,
    pub pool: Option<String>,
    pub config: serde_json::Map<String, Value>,
}

impl Vm {
    pub fn value(&self, key: &str) -> String {
        match &self.config[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

impl Cluster {
    /// Starts a cluster; `None`, with a message, if the program is missing.
    pub fn start() -> Option<Self> {
        let program = program("fakepve")?;
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("lab");
        let identity = authority.issue("pve1", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
        let [certificate, key] = [("certificate.pem", identity.certificate), ("key.pem", identity.key)].map(|(name, text)| {
            fs::write(directory.path().join(name), text).unwrap();
            directory.path().join(name)
        });
        let mut process = Command::new(program)
            .arg("--certificate")
            .arg(certificate)
            .arg("--key")
            .arg(key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, mut output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut server = String::new();
        output.read_line(&mut server).unwrap();
        let server = server.trim().to_owned();
        assert!(server.starts_with("127.0.0.1:"), "fakepve does not start: {server}");
        Some(Self { process, commands: Mutex::new((input, output)), server, authority, _directory: directory })
    }

    pub fn login(&self) -> Login {
        self.login_with("secret")
    }

    pub fn login_with(&self, secret: &str) -> Login {
        login(secret, &self.authority)
    }

    /// Returns the value of a Python expression about the cluster.
    pub fn ask<T: DeserializeOwned>(&self, expression: &str) -> T {
        let mut commands = self.commands.lock();
        let (input, output) = &mut *commands;
        writeln!(input, "{expression}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{expression}: {error}: {line}"));
        assert!(answer.get("error").is_none(), "{expression}: {answer}");
        serde_json::from_value(answer).unwrap_or_else(|error| panic!("{expression}: {error}: {line}"))
    }

    /// Runs a Python expression.
    pub fn tell(&self, expression: &str) {
        self.ask::<Value>(expression);
    }

    pub fn vms(&self) -> Vec<Vm> {
        self.ask("pve.machines()")
    }

    /// Returns the requests since the last call, as the server sees them.
    pub fn calls(&self) -> Vec<String> {
        self.ask("pve.calls()")
    }
}

/// Returns the content of a Secret for servers of that authority.
pub fn login(secret: &str, authority: &Authority) -> Login {
    let values = [("username", "capw@pve!capw"), ("password", secret), ("ca.crt", &authority.pem)];
    Login::new("lab/pve".into(), values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
