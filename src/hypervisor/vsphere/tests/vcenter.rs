//! A vCenter of its own for tests: govmomi's simulator, with a front that is as strict as a vCenter, and govmomi's client to look at it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rcgen::ExtendedKeyUsagePurpose;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hypervisor::contract::authority::Authority;
use crate::hypervisor::login::Login;

pub struct Vcenter {
    process: Child,
    commands: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    /// Its address.
    pub server: String,
    authority: Authority,
    _directory: TempDir,
}

/// A VM, as govmomi's client sees it.
#[derive(Debug, Deserialize)]
pub struct Machine {
    pub name: String,
    pub power: String,
    pub cpus: u32,
    pub memory: u64,
    pub disks: Option<Vec<u64>>,
    pub networks: Option<Vec<String>>,
    pub values: std::collections::BTreeMap<String, String>,
}

/// The program that e2e/tools/build.sh makes, the newest one.
#[allow(clippy::disallowed_methods, reason = "where the programs of tests are")]
fn program() -> Option<PathBuf> {
    let cache = std::env::var_os("CAPW_CACHE").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache"), PathBuf::from);
    let versions = fs::read_dir(cache.join("tools")).into_iter().flatten().flatten().map(|entry| entry.path().join("vcsim"));
    let found = versions.filter(|path| path.is_file() && path.to_string_lossy().contains("/vcsim-"));
    let found = found.max_by_key(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "vcsim is missing: e2e/tools/build.sh");
        eprintln!("NOT RUN: vcsim is missing: run e2e/tools/build.sh");
    }
    found
}

impl Vcenter {
    /// `None`, and why, if the program is not there.
    pub fn start() -> Option<Self> {
        let program = program()?;
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
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, mut output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut server = String::new();
        output.read_line(&mut server).unwrap();
        let server = server.trim().to_owned();
        assert!(server.starts_with("127.0.0.1:"), "vcsim does not start: {server}");
        Some(Self { process, commands: Mutex::new((input, output)), server, authority, _directory: directory })
    }

    pub fn login(&self) -> Login {
        self.login_with("secret")
    }

    pub fn login_with(&self, password: &str) -> Login {
        let values = [("username", "capw"), ("password", password), ("ca.crt", &self.authority.pem)];
        Login::new("lab/vcenter".into(), values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into())
    }

    /// Has a command carried out by govmomi's client.
    pub fn ask(&self, command: Value) -> Value {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The requests since the last call, by method, as the server counts them.
    pub fn requests(&self) -> std::collections::BTreeMap<String, u32> {
        serde_json::from_value(self.ask(json!({"do": "requests"}))).unwrap()
    }
}

impl Drop for Vcenter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
