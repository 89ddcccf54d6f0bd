//! The Windows programs of all versions, run by Wine, each on the files rendered for it: they must read all of them and find no fault.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use capw::bootstrap::paths;
use capw::bootstrap::plan::Kind;
use capw::bootstrap::read::Payload;
use serde_json::Value;

use crate::program_logs::faultless;
use crate::real_windows_node::CNI;
use crate::world::facts::CA;
use crate::world::{stretch, wine};

/// Messages of containerd about Wine and a machine without images, rather than about its configuration.
const KNOWN: [&str; 4] = [
    // 2.x migrates version 3 to 4, which older 2.x reject.
    "Configuration migrated from version 3",
    "fsverity is only supported on Linux systems",
    "snapshotter does not export root path",
    // The prepared prefix has no revision of Windows; guests have one.
    "read `UBR` from registry",
];
/// Exit code of `timeout` when it ended the program.
const TIMED_OUT: i32 = 124;
const BOOTED: &str = "containerd successfully booted";
const CONTAINERD: &str = r"C:\config.toml";
const PROXY_OUT: &str = r"C:\kube-proxy-out.yaml";

/// The files and flags with which the kubelet of a payload starts.
#[derive(Debug)]
pub struct Kubelet {
    /// The cluster's configuration with our patch.
    pub configuration: Value,
    pub flags: Vec<String>,
    pub variables: Vec<(String, String)>,
}

/// A Wine prefix with the programs of all versions.
pub struct Judge {
    home: tempfile::TempDir,
}

impl Judge {
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let judge = Self { home };
        let copied = std::process::Command::new("cp").arg("-a").arg(wine::programs().join("wine-prefix")).arg(judge.prefix()).status();
        assert!(copied.is_ok_and(|status| status.success()), "the prepared prefix is copied");
        judge
    }

    fn prefix(&self) -> PathBuf {
        self.home.path().join("prefix")
    }

    fn path(&self, windows: &str) -> PathBuf {
        self.prefix().join("drive_c").join(windows.trim_start_matches("C:\\").replace('\\', "/"))
    }

    fn write(&self, windows: &str, text: &str) {
        let path = self.path(windows);
        fs::create_dir_all(path.parent().expect("a directory")).expect("the directory is made");
        fs::write(path, text).expect("the file is written");
    }

    /// A command for a program of a version, which `timeout` ends after `seconds`.
    fn command(&self, program: &str, version: &str, arguments: &[&str], seconds: u32) -> Command {
        const INSIDE: &str = r#"sockets=/tmp/.wine-$(id -u); mkdir -p -m 700 "$sockets"; mount -t tmpfs -o mode=700 none "$sockets"
ip link set lo up; cd "$1"; shift; exec "$@""#;
        let name = format!("{program}-{version}.exe");
        let from = wine::programs().join(format!("{program}-windows-{version}/{program}.exe"));
        let to = self.prefix().join("drive_c").join(&name);
        if !to.exists() && fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        }
        let wine = if Path::new("/usr/lib/wine/wine64").exists() { "/usr/lib/wine/wine64" } else { "wine64" };
        let mut command = Command::new("unshare");
        command
            .args(["--fork", "--pid", "--net", "--ipc", "--mount", "--mount-proc", "--kill-child", "sh", "-c", INSIDE, "sh"])
            .arg(self.prefix().join("drive_c"))
            .args(["timeout", &seconds.to_string(), wine, r"C:\windows\console.exe", &format!("C:\\{name}")])
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.home.path())
            .env("WINEPREFIX", self.prefix())
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "pdh=n")
            .env("DISPLAY", "")
            .stdin(Stdio::null());
        command
    }

    /// Runs a program of a version to its end: whether it succeeded, and its whole output.
    fn run(&self, program: &str, version: &str, arguments: &[&str], variables: &[(String, String)]) -> (bool, String) {
        let seconds = (120.0 * stretch()) as u32;
        let once = || {
            let output = self.command(program, version, arguments, seconds).envs(variables.iter().cloned()).output().expect("unshare runs");
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            // A program that `timeout` ended half-way has not rejected anything.
            let ended = output.status.code() != Some(TIMED_OUT);
            ((output.status.success(), said), ended)
        };
        again(once, |((_, said), ended)| *ended && spoke(said)).0
    }

    /// kubeadm's KubeletConfiguration of a new cluster of this version, to which our patch is applied.
    pub fn cluster_configuration(&self, version: &str) -> Value {
        let (_, printed) = self.run("kubeadm", version, &["config", "print", "init-defaults", "--component-configs", "KubeletConfiguration"], &[]);
        let document =
            printed.split("---").find(|text| text.contains("kind: KubeletConfiguration")).unwrap_or_else(|| panic!("kubeadm prints:\n{printed}"));
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}:\n{document}"))
    }

    pub fn join(&self, version: &str, configuration: &str, what: &str) {
        self.write(r"C:\join.yaml", configuration);
        let (well, said) = self.run("kubeadm", version, &["config", "validate", "--config", r"C:\join.yaml"], &[]);
        assert!(well && said.contains("ok"), "kubeadm {version} refuses the JoinConfiguration of {what}:\n{said}");
        faultless(&said);
    }

    /// The kubelet checks flags and configuration, and then ends because there is no cluster to join.
    pub fn kubelet(&self, version: &str, kubelet: &Kubelet, payload: &Payload, what: &str) {
        // JSON is YAML.
        self.write(paths::KUBELET_CONFIG, &kubelet.configuration.to_string());
        self.write(paths::CLUSTER_CA, CA);
        fs::create_dir_all(self.prefix().join("drive_c/var/lib/kubelet-pki")).expect("the directory is made");
        for item in &payload.plan.items {
            match &item.kind {
                Kind::File { path, source, .. } if path.starts_with(paths::KUBERNETES) => {
                    self.write(path, &String::from_utf8_lossy(&payload.files[source]));
                }
                Kind::Directory { paths, .. } => paths.iter().filter(|path| path.starts_with("C:\\etc")).for_each(|path| {
                    fs::create_dir_all(self.path(path)).expect("the directory is made");
                }),
                _ => {}
            }
        }
        let flags: Vec<&str> = kubelet.flags.iter().map(String::as_str).collect();
        let (_, said) = self.run("kubelet", version, &flags, &kubelet.variables);
        assert!(said.contains("unable to load bootstrap kubeconfig"), "the kubelet {version} did not come as far as joining with {what}:\n{said:?}");
        let said: String = said.lines().filter(|line| !line.contains("FLAG: --")).map(|line| format!("{line}\n")).collect();
        faultless(&said);
    }

    /// containerd prints the configuration that it parsed, which must contain everything that was written.
    pub fn containerd(&self, version: &str, written: &str, what: &str) {
        self.write(CONTAINERD, written);
        let (well, said) = self.run("containerd", version, &["--config", CONTAINERD, "config", "dump"], &[]);
        assert!(well, "containerd {version} refuses the configuration of {what}:\n{said}");
        unwarned(&said, version, what);
        let dump: String = said.lines().filter(|line| !line.starts_with("time=")).map(|line| format!("{line}\n")).collect();
        let understood: toml::Table = toml::from_str(&dump).unwrap_or_else(|error| panic!("{error}:\n{dump}"));
        let mut written: toml::Table = toml::from_str(written).expect("TOML");
        if understood.get("version").and_then(toml::Value::as_integer) == Some(4) {
            migrated(&mut written);
        }
        written.remove("version");
        let json = |table: toml::Table| serde_json::to_value(table).expect("a table");
        let lost = missing(&json(written), &json(understood));
        assert!(lost.is_empty(), "containerd {version} dropped or changed {lost:?} of {what}:\n{dump}");
    }

    /// containerd starts with all of its plug-ins, until it serves.
    pub fn containerd_starts(&self, version: &str, written: &str, variables: &[(String, String)], what: &str) {
        self.write(CONTAINERD, written);
        self.write(CNI.0, CNI.1);
        // The containerd lines do not read each other's data.
        let (root, state) = (format!(r"C:\containerd-{version}\root"), format!(r"C:\containerd-{version}\state"));
        let arguments = ["--config", CONTAINERD, "--root", &root, "--state", &state];
        let once = || {
            let mut child = self
                .command("containerd", version, &arguments, (120.0 * stretch()) as u32)
                .envs(variables.iter().cloned())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("unshare runs");
            let mut said = String::new();
            for line in BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok) {
                said.push_str(&line);
                said.push('\n');
                if line.contains(BOOTED) {
                    break;
                }
            }
            let _ = child.kill();
            let _ = child.wait();
            said
        };
        let said = again(once, |said| spoke(said) && (said.contains(BOOTED) || said.contains("level=fatal")));
        assert!(said.contains(BOOTED), "containerd {version} does not start with {what}:\n{said}");
        unwarned(&said, version, what);
    }

    /// kube-proxy reads and checks its configuration, and writes the configuration that it parsed.
    pub fn kube_proxy(&self, version: &str, path: &str, written: &str, flags: &[String], what: &str) {
        self.write(path, written);
        let out = self.path(PROXY_OUT);
        let _ = fs::remove_file(&out);
        let write = format!("--write-config-to={PROXY_OUT}");
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain([write.as_str()]).collect();
        let (well, said) = self.run("kube-proxy", version, &flags, &[]);
        assert!(well, "kube-proxy {version} refuses the configuration of {what}:\n{said}");
        let said: String = said.lines().filter(|line| !line.contains("FLAG: --")).map(|line| format!("{line}\n")).collect();
        faultless(&said);
        let understood = fs::read_to_string(&out).unwrap_or_else(|error| panic!("{}: {error}:\n{said}", out.display()));
        let read = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let lost = missing(&read(written), &read(&understood));
        assert!(lost.is_empty(), "kube-proxy {version} dropped or changed {lost:?} of {what}:\n{understood}");
    }
}

/// Repeats a run without a verdict: Wine itself did not start, or the program had no time to end.
fn again<T>(run: impl Fn() -> T, judged: impl Fn(&T) -> bool) -> T {
    const ATTEMPTS: usize = 3;
    let mut attempt = 1;
    loop {
        let result = run();
        if attempt == ATTEMPTS || judged(&result) {
            return result;
        }
        attempt += 1;
    }
}

/// Whether the program itself printed this. On a busy machine Wine sometimes fails to start, or one of its own libraries crashes a finished program.
fn spoke(said: &str) -> bool {
    !said.is_empty() && !said.contains("wine client error") && !said.contains("wine: Unhandled page fault")
}

/// Asserts that containerd logged no warning except the [`KNOWN`] ones.
fn unwarned(said: &str, version: &str, what: &str) {
    let loud = |line: &&str| ["level=warning", "level=error", "level=fatal"].iter().any(|level| line.contains(level));
    let warnings: Vec<&str> = said.lines().filter(loud).filter(|line| !KNOWN.iter().any(|known| line.contains(known))).collect();
    assert!(warnings.is_empty(), "containerd {version} with {what}:\n{}", warnings.join("\n"));
}

/// Converts to schema 4, as containerd 2.3 does with 3: the sections of its servers have become plug-ins, of which we write one.
fn migrated(written: &mut toml::Table) {
    if let Some(metrics) = written.remove("metrics") {
        let plugins = written.entry("plugins").or_insert_with(|| toml::Table::new().into());
        plugins.as_table_mut().expect("a table").insert("io.containerd.server.v1.metrics".into(), metrics);
    }
}

/// Paths of values in one document that are missing or different in the other.
fn missing(written: &Value, understood: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    look(written, understood, "", &mut lost);
    lost
}

fn look(written: &Value, understood: &Value, at: &str, lost: &mut Vec<String>) {
    match (written, understood) {
        (Value::Object(written), Value::Object(understood)) => {
            for (key, value) in written {
                match understood.get(key) {
                    Some(found) => look(value, found, &format!("{at}/{key}"), lost),
                    None => lost.push(format!("{at}/{key}")),
                }
            }
        }
        (written, understood) if written == understood => {}
        _ => lost.push(at.to_owned()),
    }
}
