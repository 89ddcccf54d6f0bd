//! A machine that is a Wine prefix: real paths, registry, services and restarts, on which a real PowerShell runs our scripts. The parts that
//! Wine lacks have stand-ins (`windows/stand-ins.ps1`, `windows/stand_in.c`). Each machine has its own namespaces for processes and network.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::limit::Limit;
use super::{console, image};

/// The longest time from a start of the machine to the end of the runner.
const START: Duration = Duration::from_secs(400);
/// The script of the first process: it holds the namespaces until its standard input closes.
const FIRST: &str = r#"set -e
sockets=/tmp/.wine-$(id -u); mkdir -p -m 700 "$sockets"; mount -t tmpfs -o mode=700 none "$sockets"
hostname win-1; ip link set lo up; [ ! -e "$1" ] || ip -batch "$1"; echo ready; read -r _ || true"#;

/// Commands for `ip` that create the machine's networks, where a test has written them.
pub const NETWORKS: &str = r"C:\stand-in\networks";

/// The service that runs the scripts at a start of the machine.
#[derive(Clone, Debug)]
pub enum Source {
    /// cloudbase-init runs the user data, at each start until a script reports that all is done.
    CloudbaseInit,
    /// The tasks that are scheduled for a start of the machine.
    Tasks,
}

/// How a run of a script ended.
#[derive(Debug)]
pub enum Ended {
    Code(i32),
    /// PowerShell crashed, as .NET sometimes does on Wine. For the plan this is a power cut.
    Crashed,
    /// A stand-in reached a call at which it had to wait, and everything was killed there.
    Held(String),
    /// The run was killed at the given limit.
    Killed,
}

/// One machine. Its namespaces end when it is dropped; its disk is removed with the scratch directory.
pub struct Machine {
    prefix: PathBuf,
    log: PathBuf,
    /// Starts of Windows.
    pub boots: u32,
    power: Option<(Child, ChildStdin)>,
}

impl Machine {
    /// Creates a machine with a fresh disk below `directory`.
    pub fn new(directory: &Path) -> Self {
        let prefix = directory.join("prefix");
        image::copy(&prefix);
        Self { prefix, log: directory.join("console.log"), boots: 0, power: None }
    }

    /// The path of this host for a Windows path.
    pub fn path(&self, windows: &str) -> PathBuf {
        self.prefix.join("drive_c").join(windows.trim_start_matches("C:\\").replace('\\', "/"))
    }

    /// The text of a file on the disk; empty if there is no such file.
    pub fn read(&self, windows: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(windows)).unwrap_or_default()).trim_start_matches('\u{feff}').to_owned()
    }

    /// Writes a file, with the directories above it.
    pub fn write(&self, windows: &str, content: impl AsRef<[u8]>) {
        let path = self.path(windows);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Adds a rule for a stand-in: see `windows/stand_in.c`.
    pub fn rule(&self, rule: &str) {
        self.write(r"C:\stand-in\rules", format!("{}{rule}\n", self.read(r"C:\stand-in\rules")));
    }

    /// The lines that the runner has reported.
    pub fn report(&self) -> Vec<String> {
        let older = self.read(r"C:\ProgramData\capw\report.log.1");
        let lines = older.lines().map(str::to_owned).collect::<Vec<_>>();
        lines.into_iter().chain(self.read(r"C:\ProgramData\capw\report.log").lines().map(str::to_owned)).collect()
    }

    /// The whole log of the runner.
    pub fn log(&self) -> String {
        self.read(r"C:\ProgramData\capw\bootstrap.log")
    }

    /// The output of PowerShell, from all starts.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The programs that were called, in order, with their arguments.
    pub fn calls(&self) -> Vec<String> {
        self.read(r"C:\stand-in\calls.log").lines().map(str::to_owned).collect()
    }

    pub fn is_finished(&self) -> bool {
        self.path(r"C:\ProgramData\capw\state\finished").exists()
    }

    /// Whether the runner requested a restart since the machine started.
    pub fn wants_restart(&self) -> bool {
        self.path(r"C:\stand-in\shutdown").exists()
    }

    /// Switches the machine on and applies pending changes, as a start of Windows does.
    pub fn boot(&mut self) {
        self.switch_off();
        self.boots += 1;
        let mut first = Command::new("unshare")
            .args(["--fork", "--pid", "--net", "--ipc", "--uts", "--mount", "--mount-proc", "--kill-child", "sh", "-c", FIRST, "sh"])
            .arg(self.path(NETWORKS))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the program unshare, and root");
        let power = first.stdin.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(first.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready", "namespaces need root");
        self.power = Some((first, power));
        for feature in fs::read_dir(self.path(r"C:\stand-in\features")).expect("features").flatten() {
            let state = fs::read_to_string(feature.path()).expect("a state");
            let next = match state.as_str() {
                "EnablePending" => "Enabled",
                "DisablePending" => "Disabled",
                same => same,
            };
            fs::write(feature.path(), next).expect("a state");
        }
        for gone in ["shutdown", "shutdown-asked"] {
            let _ = fs::remove_file(self.path(&format!(r"C:\stand-in\{gone}")));
        }
        let _ = fs::remove_dir_all(self.path(r"C:\stand-in\pids"));
        fs::create_dir_all(self.path(r"C:\stand-in\pids")).expect("a directory");
        let _ = fs::rename(self.path(r"C:\stand-in\domain-pending"), self.path(r"C:\stand-in\domain"));
        // Wine's first program after a start may fail: this import is retried.
        self.import("");
    }

    /// Imports lines of a `.reg` file.
    pub fn import(&self, lines: &str) {
        self.write(r"C:\stand-in\import.reg", format!("REGEDIT4\r\n\r\n{lines}"));
        let mut last = String::new();
        // Wine's first program after a start may fail.
        for _ in 0..4 {
            let output = self.wine(&["reg", "import", r"C:\stand-in\import.reg"]).stdin(Stdio::null()).output().expect("wine");
            if output.status.success() {
                return;
            }
            last = String::from_utf8_lossy(&output.stderr).into_owned();
        }
        panic!("reg import: {last}");
    }

    /// Runs the scripts of a start, until the last of them has ended.
    pub fn start(&mut self, source: &Source) -> Ended {
        self.start_for(source, None)
    }

    /// As [`Self::start`], but kills everything at that limit.
    pub fn start_for(&mut self, source: &Source, limit: Option<&Limit>) -> Ended {
        self.run_each(&self.entries(source), limit)
    }

    /// Runs scripts one after the other, until one does not end by itself.
    pub fn run_each(&self, scripts: &[Vec<String>], limit: Option<&Limit>) -> Ended {
        let mut ended = Ended::Code(0);
        for argv in scripts {
            ended = self.powershell(argv, limit);
            if !matches!(ended, Ended::Code(_)) {
                break;
            }
        }
        ended
    }

    /// The scripts of a start, with their arguments; the bootstrap's task comes last.
    pub fn entries(&self, source: &Source) -> Vec<Vec<String>> {
        match source {
            Source::CloudbaseInit => vec![self.user_data()],
            Source::Tasks => self.boot_tasks().into_iter().map(|arguments| script_of(&arguments)).collect(),
        }
    }

    /// The script that cloudbase-init runs: a copy of the user data on the drive.
    pub fn user_data(&self) -> Vec<String> {
        let copy = r"C:\stand-in\user-data.ps1";
        fs::copy(self.path(r"C:\delivered\openstack\latest\user_data"), self.path(copy)).expect("user data");
        vec![copy.to_owned()]
    }

    /// Arguments of the tasks that run at a start of the machine, the bootstrap's task last: the others are short.
    fn boot_tasks(&self) -> Vec<String> {
        let tasks: Value = serde_json::from_str(&self.read(r"C:\stand-in\kept\tasks.json")).unwrap_or_default();
        let mut found: Vec<(String, String)> = tasks
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, task)| task["AtStartup"] == true)
            .map(|(name, task)| (name.clone(), task["Arguments"].as_str().unwrap_or_default().to_owned()))
            .collect();
        found.sort_by_key(|(name, _)| (name == "capw", name.clone()));
        found.into_iter().map(|(_, arguments)| arguments).collect()
    }

    /// Maps a directory of this host to a drive, e.g. `e:`.
    pub fn add_drive(&self, letter: &str, directory: &Path) {
        let link = self.prefix.join("dosdevices").join(letter);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(directory, link).expect("a link");
    }

    /// Sets the clock of Windows, from its next start on, off by this many hours; a time server corrects it.
    pub fn set_clock(&self, hours: i32) {
        self.write(r"C:\stand-in\clock", format!("{}{}", if hours < 0 { "" } else { "+" }, hours * 3600));
        self.write(r"C:\stand-in\clock-offset", (-hours * 3600).to_string());
    }

    /// Starts a program that holds a file as a scanner does, until the child is killed.
    pub fn hold(&self, windows: &str) -> Child {
        let mut child = self.wine(&[r"C:\stand-in\bin\hold.exe", windows]).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("wine");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("held"), "{windows}: {line}");
        child
    }

    /// Starts a program that locks a file for `time`, beginning when a runner has started.
    pub fn hold_a_while(&self, windows: &str, time: Duration) -> Child {
        let milliseconds = time.as_millis().to_string();
        let argv = [r"C:\stand-in\bin\hold.exe", windows, &milliseconds, r"C:\ProgramData\capw\runner.lock"];
        self.wine(&argv).stdout(Stdio::null()).stdin(Stdio::null()).spawn().expect("wine")
    }

    /// Runs a script with PowerShell and the stand-ins until it ends, a stand-in holds, or the limit is reached.
    pub fn powershell(&self, argv: &[String], limit: Option<&Limit>) -> Ended {
        for _ in 0..3 {
            let printed = self.console().len();
            let ended = self.run(argv, limit);
            // Shortly after Wine starts its drives may be missing; PowerShell then starts without its modules, and our script never runs.
            if !self.console().get(printed..).unwrap_or_default().contains("InitializeDefaultDrives") {
                return ended;
            }
        }
        panic!("Wine has no drives; PowerShell printed:\n{}", self.console());
    }

    fn run(&self, argv: &[String], limit: Option<&Limit>) -> Ended {
        let held = self.path(r"C:\stand-in\held");
        // Left over from a call that was in progress when the power was cut.
        let _ = fs::remove_file(&held);
        let mut child = self.spawn(argv);
        let (begun, before) = (Instant::now(), limit.map_or(0, |limit| limit.count(&self.report())));
        let mut reached = None;
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code().map_or(Ended::Crashed, |low| Ended::Code(code(low)));
            }
            if let Ok(call) = fs::read_to_string(&held) {
                let _ = fs::remove_file(&held);
                self.kill(&mut child);
                return Ended::Held(call);
            }
            if limit.is_some_and(|limit| limit.count(&self.report()) >= before + limit.reports) {
                reached.get_or_insert_with(Instant::now);
            }
            if reached.zip(limit).is_some_and(|(reached, limit)| reached.elapsed() > limit.then) {
                self.kill(&mut child);
                return Ended::Killed;
            }
            if begun.elapsed() > START {
                self.kill(&mut child);
                panic!("{argv:?} did not end within {START:?}; it reported {:?}", self.report().last());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a script; the caller waits for it.
    pub fn spawn(&self, argv: &[String]) -> Child {
        let side = console::open(&self.log);
        let options = ["-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File", r"C:\stand-in\start.ps1"];
        let mut command = self.wine(&[r"P:\pwsh.exe"]);
        command.args(options).args(argv);
        for (name, value) in image::POWERSHELL_ENVIRONMENT {
            command.env(name, value);
        }
        // Wine's console needs a terminal.
        command.stdin(side.try_clone().expect("a terminal")).stdout(side.try_clone().expect("a terminal")).stderr(side);
        command.spawn().expect("nsenter")
    }

    /// A command that runs a Windows program inside the machine.
    pub fn wine(&self, argv: &[&str]) -> Command {
        let mut command = self.inside(image::wine());
        command.args(argv).process_group(0).current_dir(self.path(r"C:\"));
        command
    }

    /// A command that runs a program of this host in the machine's namespaces.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid(), "--pid", "--net", "--ipc", "--uts", "--mount", "--", program]);
        image::environment(&mut command, &self.prefix);
        command
    }

    /// Ends everything that runs, as the reset button does, but writes the registry first: Wine would lose what Windows keeps.
    fn kill(&self, child: &mut Child) {
        let _ = child.kill();
        self.stop_wine();
        let _ = child.wait();
    }

    fn stop_wine(&self) {
        if self.power.is_none() {
            return;
        }
        // A program that starts at this moment starts its own server.
        for _ in 0..20 {
            let _ = self.wineserver("-k").status();
            let mut ended = self.wineserver("-w").spawn().expect("nsenter");
            let asked = Instant::now();
            while asked.elapsed() < Duration::from_secs(10) {
                if ended.try_wait().expect("a child").is_some() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = ended.kill();
            let _ = ended.wait();
        }
        panic!("Wine does not end");
    }

    fn wineserver(&self, option: &str) -> Command {
        let mut command = self.inside(image::wineserver());
        command.arg(option).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Shuts Windows down.
    pub fn switch_off(&mut self) {
        self.stop_wine();
        if let Some((mut first, power)) = self.power.take() {
            drop(power);
            let _ = first.wait();
        }
    }

    /// The ID of the process that holds the namespaces: the child of unshare, which itself stays outside.
    pub fn pid(&self) -> String {
        let unshare = self.power.as_ref().expect("the machine is on").0.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap_or_default();
        children.split_whitespace().next().expect("a process in the namespaces").to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.switch_off();
    }
}

/// Restores an exit code: this host sees only its lowest byte, and our larger codes are known.
fn code(low: i32) -> i32 {
    match low {
        low if low == 1002 & 0xff => 1002,
        low if low == 1003 & 0xff => 1003,
        low => low,
    }
}

/// `powershell.exe … -File PATH ARGUMENTS` of a task: the path and the arguments.
fn script_of(arguments: &str) -> Vec<String> {
    let words = winsplit::split(arguments);
    let at = words.iter().position(|word| word == "-File").unwrap_or_else(|| panic!("a task runs no script: {arguments}"));
    words[at + 1..].to_vec()
}
