//! A program that runs in the background, in its own process group, writing to a log. When dropped, its whole group
//! ends. It must not stop anything that it did not start.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capw_patience::Patience;
use rustix::process::{Pid, Signal, kill_process_group};

use super::guardian;
use super::scratch::last_lines;

/// A command that can be started again.
pub struct Process {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    directory: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Describes the program `name`, run in `directory`, with the log `directory/name.log`; nothing runs yet.
    pub fn new(name: &str, program: &Path, directory: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            directory: directory.to_owned(),
            child: Mutex::new(None),
        }
    }

    /// Uses another program with the same arguments.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    /// Adds arguments.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable to the ones inherited.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts the program. Does nothing if it is running.
    pub fn start(&self) {
        if self.is_running() {
            return;
        }
        let path = self.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let child = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of a log"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", self.program.display()));
        guardian::guard_group(child.id());
        *self.lock() = Some(child);
    }

    /// Whether the program runs now.
    pub fn is_running(&self) -> bool {
        let mut child = self.lock();
        match child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => true,
            Some(_) => {
                Self::ended(child.take());
                false
            }
            None => false,
        }
    }

    /// The process ID, while the program runs.
    pub fn id(&self) -> Option<u32> {
        self.is_running().then(|| self.lock().as_ref().map(Child::id))?
    }

    /// Sends SIGKILL to the whole group, and waits for the end. Does nothing if the program does not run.
    pub fn kill(&self) {
        let Some(mut child) = self.lock().take() else {
            return;
        };
        send(child.id(), Signal::KILL);
        let _ = child.wait();
        Self::ended(Some(child));
    }

    /// Sends SIGTERM and waits; returns the exit status, `None` if the program was not running. Panics, after a SIGKILL, when `limit` passes.
    pub fn stop(&self, limit: Duration) -> Option<ExitStatus> {
        let mut child = self.lock().take()?;
        send(child.id(), Signal::TERM);
        let mut patience = Patience::new(limit);
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                Self::ended(Some(child));
                return Some(status);
            }
            if patience.is_over() {
                send(child.id(), Signal::KILL);
                let _ = child.wait();
                Self::ended(Some(child));
                panic!("{} did not end within {patience} of SIGTERM; its log ends:\n{}", self.name, self.log_end());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the program ends on its own and returns the exit status. Panics, after a SIGKILL, when `limit` passes.
    pub async fn end(&self, limit: Duration) -> ExitStatus {
        let mut patience = Patience::new(limit);
        loop {
            let ended = self.lock().as_mut().expect("a process that was started").try_wait();
            if let Ok(Some(status)) = ended {
                Self::ended(self.lock().take());
                return status;
            }
            if patience.is_over() {
                self.kill();
                panic!("{} did not end within {patience}; its log ends:\n{}", self.name, self.log_end());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Sends SIGSTOP: the program keeps its connections and does not answer.
    pub fn freeze(&self) {
        if let Some(id) = self.id() {
            send(id, Signal::STOP);
        }
    }

    /// Sends SIGCONT, after [`Process::freeze`].
    pub fn thaw(&self) {
        if let Some(id) = self.id() {
            send(id, Signal::CONT);
        }
    }

    /// The whole output so far, from all starts.
    pub fn log(&self) -> String {
        match std::fs::read(self.log_path()) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => panic!("{}: {e}", self.log_path().display()),
        }
    }

    /// The last lines of the log.
    pub fn log_end(&self) -> String {
        last_lines(&self.log_path(), 20)
    }

    /// Memory in use (resident set), in bytes; `None` if the program does not run.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }

    /// Processor time used so far, in seconds; `None` if the program does not run.
    pub fn processor_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()?)).ok()?;
        // The name in brackets may contain blanks; user and system time are the 14th and 15th field, in hundredths.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
    }

    /// The name of the program here, and of its log.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.name))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(child: Option<Child>) {
        if let Some(child) = child {
            guardian::forget_group(child.id());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends the signal of Ctrl-C in a terminal to the process group of this child.
pub fn interrupt(child: u32) {
    send(child, Signal::INT);
}

/// Sends a signal to a process group whose first process is a child of this process.
pub(super) fn send(group: u32, signal: Signal) {
    // The child has not been waited for, so the ID is still its own.
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}
