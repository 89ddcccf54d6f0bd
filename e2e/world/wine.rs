//! Wine guests and the Windows programs: whether this machine can run them, and access to a running guest. It must not judge.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::step;
use super::tools::Tools;

/// The parts that this machine lacks for running Windows programs of these Kubernetes versions (`1.36.3`); `None` if it can run them.
pub fn lacks(versions: &[&str]) -> Option<String> {
    let programs = programs();
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root, for namespaces of guests".to_owned());
    }
    for (program, argument) in [("unshare", "--version"), ("nsenter", "--version"), ("ip", "-V"), ("hostname", "-V")] {
        if Command::new(program).arg(argument).output().is_err() {
            missing.push(format!("the program {program}"));
        }
    }
    let mut folders = vec!["wine-prefix".to_owned()];
    folders.extend(versions.iter().map(|version| format!("kubelet-windows-{version}")));
    missing.extend(
        folders
            .iter()
            .map(|name| programs.join(name))
            .filter(|path| !path.exists())
            .map(|path| format!("{} (e2e/tools/windows/build.sh)", path.display())),
    );
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Prints that a test does not run, and why. In CI, where `CI` is `true`, that is a failure.
pub fn skip(test: &str, lacks: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test}: this machine lacks {lacks}");
    eprintln!("NOT RUN: {test}: this machine lacks {lacks}");
}

/// Folder of the Windows programs, for `--wine-programs`.
pub use super::tools::programs;

/// The disk and the running machine of one Wine guest.
#[derive(Debug, Clone)]
pub struct WineGuest {
    disk: PathBuf,
}

impl WineGuest {
    /// The guest of a VM: `directory` as [`super::SimulatedVm`] has it.
    pub fn of(state: &Path, datacenter: &str, directory: &str) -> Self {
        Self { disk: state.join(datacenter).join(directory).join("disk") }
    }

    /// The path of this host for a Windows path. Case-sensitive.
    pub fn path(&self, windows: &str) -> PathBuf {
        self.disk.join("wine/drive_c").join(windows.trim_start_matches("C:\\").replace('\\', "/"))
    }

    /// Writes a file, and creates its folder if that is missing.
    pub fn write(&self, windows: &str, content: &[u8]) {
        let path = self.path(windows);
        let folder = path.parent().expect("a folder");
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, content)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Text of a file in the guest.
    pub fn read(&self, windows: &str) -> Result<String, String> {
        let path = self.path(windows);
        std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The output of the program of a plan's item.
    pub fn said(&self, item: &str) -> Result<String, String> {
        let path = self.disk.join("logs").join(format!("{item}.log"));
        std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// All files on its disk that contain a text: drive C:, the registry's files and the output of its programs. Paths below `disk/`.
    pub fn files_with(&self, text: &str) -> Vec<String> {
        let found = super::search::files_with(&self.disk, text);
        found.iter().map(|file| file.strip_prefix(&self.disk).unwrap_or(file).display().to_string()).collect()
    }

    /// The guest's own files on drive C:, by path from there with `/`.
    pub fn own_files(&self) -> Vec<(String, Vec<u8>)> {
        let drive = self.disk.join("wine/drive_c");
        let own = super::search::files(&drive).into_iter().filter(|file| super::search::is_own(file));
        own.filter_map(|file| Some((file.strip_prefix(&drive).ok()?.display().to_string(), std::fs::read(&file).ok()?))).collect()
    }

    /// The file where the guest records data for which Wine has no place.
    pub fn kept(&self) -> PathBuf {
        self.disk.join("wine.json")
    }

    /// The output of `service.exe`: for `show` state, start type, failure actions, command line, dependencies.
    pub fn service(&self, words: &[&str]) -> Result<Vec<String>, String> {
        let argv: Vec<&str> = std::iter::once(r"C:\windows\service.exe").chain(words.iter().copied()).collect();
        self.windows(&argv)
    }

    /// Stops the kubelet's service. If the kubelet or its log writer hangs while stopping, as seen once in forty times with Wine, it is
    /// killed.
    pub fn stop_kubelet(&self) {
        let Err(said) = self.service(&["stop", "kubelet"]) else { return };
        let is_ended = |program: &&str| self.windows(&["taskkill", "/f", "/im", program]).is_ok();
        let ended: Vec<&str> = ["kubelet.exe", "kube-log-runner.exe"].into_iter().filter(is_ended).collect();
        step(format!("the kubelet does not stop ({}); ended: {ended:?}", said.trim()));
        self.service(&["stop", "kubelet"]).expect("it has stopped");
    }

    /// Runs a Windows program in the guest; returns its lines of output.
    pub fn windows(&self, argv: &[&str]) -> Result<Vec<String>, String> {
        let output = self.program(argv)?.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
        if output.status.success() { Ok(text.lines().map(str::to_owned).collect()) } else { Err(text) }
    }

    /// A command for a Windows program in the guest.
    pub fn program(&self, argv: &[&str]) -> Result<Command, String> {
        let pid = std::fs::read_to_string(self.disk.join("machine.pid")).map_err(|error| format!("the guest is off: {error}"))?;
        let wine = if Path::new("/usr/lib/wine/wine64").exists() { "/usr/lib/wine/wine64" } else { "wine64" };
        let mut program = Command::new("nsenter");
        program
            .args(["--target", &pid, "--net", "--uts", "--ipc", "--mount", &format!("--pid=/proc/{pid}/ns/pid_for_children"), "--"])
            .arg(wine)
            .args(argv)
            .env("WINEPREFIX", self.disk.join("wine"))
            .env("WINEDEBUG", "-all")
            .env("DISPLAY", "")
            // Debian's Wine finds its server below TMPDIR: the guest has none.
            .env_remove("TMPDIR");
        Ok(program)
    }

    /// The ID of the process that holds the machine, while it is on.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.disk.join("machine.pid")).ok()?.parse().ok()
    }
}

/// Version of the control plane's Kubernetes, without its v.
pub fn kubernetes() -> String {
    Tools::ensure().kubernetes_version.trim_start_matches('v').to_owned()
}
