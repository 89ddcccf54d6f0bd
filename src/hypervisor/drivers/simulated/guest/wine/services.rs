//! The services of a Wine guest. Wine's service manager keeps their configuration and runs them; this module adds the functions that it
//! lacks: starting services with their dependencies, and restarting them after a failure according to their failure actions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::machine::Machine;
use super::registry;
use crate::bootstrap::paths;
use crate::bootstrap::plan::Start;

/// Runs a program with a console.
pub const CONSOLE: &str = r"C:\windows\console.exe";
const SERVICE: &str = r"C:\windows\service.exe";
const HOLD: &str = r"C:\windows\hold.exe";
/// Services that check whether Windows' own service manager started them, and do not recognise Wine's: they run as plain
/// programs with the command line of their service. Each has the name of the pipe that it opens.
const PLAIN: [(&str, &str); 1] = [("containerd", paths::CRI_PIPE)];

/// A service as the plan requires it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    pub command_line: String,
    pub automatic: bool,
    pub depends_on: Vec<String>,
    pub reset_seconds: u32,
    pub restart_delays: Vec<u32>,
}

impl Service {
    pub fn new(command_line: &str, start: Start, depends_on: &[String], reset_seconds: u32, restart_delays: &[u32]) -> Self {
        Self {
            command_line: command_line.to_owned(),
            automatic: start == Start::Auto,
            depends_on: depends_on.to_vec(),
            reset_seconds,
            restart_delays: restart_delays.to_vec(),
        }
    }

    fn start(&self) -> &'static str {
        if self.automatic { "auto" } else { "demand" }
    }

    fn delays(&self) -> String {
        self.restart_delays.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// The service manager of one start of the machine.
pub struct Services {
    machine: Arc<Machine>,
    /// The directory of the programs' output.
    logs: PathBuf,
    /// The tasks of the started services, by name.
    running: BTreeMap<String, AbortHandle>,
    /// By name of the pipe: true once the pipe exists.
    pipes: BTreeMap<String, watch::Receiver<bool>>,
}

impl Drop for Services {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

impl Services {
    pub fn new(machine: Arc<Machine>, logs: PathBuf) -> Self {
        Self { machine, logs, running: BTreeMap::new(), pipes: BTreeMap::new() }
    }

    /// Whether the service has this configuration.
    pub async fn is_set(&self, name: &str, wanted: &Service) -> Result<bool, String> {
        let (status, text) = self.tool(&["show", name]).await?;
        let mut lines = text.lines().skip(1);
        let mut next = || lines.next().unwrap_or_default();
        let same = next() == wanted.start() && next() == format!("{} {}", wanted.reset_seconds, wanted.delays()) && next() == wanted.command_line;
        Ok(status && same && (wanted.depends_on.is_empty() || lines.eq(wanted.depends_on.iter().map(String::as_str))))
    }

    pub async fn set(&self, name: &str, wanted: &Service) -> Result<(), String> {
        let (reset, delays) = (wanted.reset_seconds.to_string(), wanted.delays());
        let mut words = vec!["set", name, wanted.start(), &reset, &delays, &wanted.command_line];
        words.extend(wanted.depends_on.iter().map(String::as_str));
        self.done(&words).await
    }

    pub async fn runs(&self, name: &str) -> Result<bool, String> {
        if plain(name).is_some() {
            return Ok(self.running.get(name).is_some_and(|task| !task.is_finished()));
        }
        let (_, text) = self.tool(&["show", name]).await?;
        Ok(text.lines().next() == Some("running"))
    }

    /// Starts the service and its dependencies, after stopping the service if it runs. From then on it is restarted after failures.
    pub async fn start(&mut self, name: &str, all: &BTreeMap<String, Service>) -> Result<(), String> {
        let service = all.get(name).ok_or_else(|| format!("the service {name} does not exist"))?.clone();
        for needed in &service.depends_on {
            if !self.runs(needed).await? {
                Box::pin(self.start(needed, all)).await?;
            }
        }
        if let Some(task) = self.running.remove(name) {
            task.abort();
        }
        let task = if let Some(pipe) = plain(name) {
            let number = self.logs.join(format!("{name}.number"));
            let plain = PlainService { machine: self.machine.clone(), logs: self.logs.clone(), number, name: name.to_owned(), service };
            self.machine.kill(&plain.number).await.map_err(|error| error.to_string())?;
            let child = plain.start().await.map_err(|error| format!("{name}: {error}"))?;
            let (opened, there) = watch::channel(false);
            self.pipes.insert(pipe.to_owned(), there);
            tokio::spawn(async move { plain.keep(pipe, child, &opened).await })
        } else {
            self.done(&["stop", name]).await?;
            self.done(&["start", name]).await?;
            let (machine, name) = (self.machine.clone(), name.to_owned());
            tokio::spawn(async move { keep(&machine, &name, &service).await })
        };
        self.running.insert(name.to_owned(), task.abort_handle());
        Ok(())
    }

    /// Starts the automatic services in the order of their dependencies. Wine writes its registry only now and then: a power cut
    /// loses services that Windows would have kept, so they are defined again first.
    pub async fn start_automatic(&mut self, all: &BTreeMap<String, Service>) -> Result<(), String> {
        for (name, service) in all {
            if !self.is_set(name, service).await? {
                self.set(name, service).await?;
            }
        }
        for (name, _) in all.iter().filter(|(_, service)| service.automatic) {
            if !self.runs(name).await? {
                self.start(name, all).await?;
            }
        }
        Ok(())
    }

    /// Whether the pipe appears within two seconds.
    pub async fn pipe(&self, name: &str) -> Result<bool, String> {
        let there = self.pipes.get(name).ok_or_else(|| format!("no service that runs opens the pipe {name}"))?;
        let mut there = there.clone();
        Ok(timeout(Duration::from_secs(2), there.wait_for(|there| *there)).await.is_ok_and(|there| there.is_ok()))
    }

    async fn tool(&self, words: &[&str]) -> Result<(bool, String), String> {
        tool(&self.machine, words).await
    }

    async fn done(&self, words: &[&str]) -> Result<(), String> {
        match self.tool(words).await? {
            (true, _) => Ok(()),
            (false, text) => Err(format!("the service manager: {}: {}", words.iter().take(2).copied().collect::<Vec<_>>().join(" "), text.trim())),
        }
    }
}

fn plain(name: &str) -> Option<&'static str> {
    PLAIN.iter().find(|(plain, _)| *plain == name).map(|(_, pipe)| *pipe)
}

async fn tool(machine: &Machine, words: &[&str]) -> Result<(bool, String), String> {
    let argv: Vec<&str> = std::iter::once(SERVICE).chain(words.iter().copied()).collect();
    let (status, text) = machine.tool(&argv).await.map_err(|error| format!("the service manager does not answer: {error}"))?;
    Ok((status.success(), text))
}

/// A service whose program runs without the service manager.
struct PlainService {
    machine: Arc<Machine>,
    logs: PathBuf,
    /// The file with the number of its process.
    number: PathBuf,
    name: String,
    service: Service,
}

impl PlainService {
    /// Starts the program. Its output beside its log is written to a file of its name.
    async fn start(&self) -> io::Result<Child> {
        let Self { machine, logs, number, name, service } = self;
        let words = winsplit::split(&service.command_line);
        let argv: Vec<&str> = [CONSOLE, "--none"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let output = File::options().create(true).append(true).open(logs.join(format!("{name}.out")))?;
        let key = format!(r"HKLM\SYSTEM\CurrentControlSet\Services\{name}");
        let environment = registry::read(machine, &key, "Environment").await.ok().flatten().map(|value| value.data).unwrap_or_default();
        let variables = environment.split("\\0").filter_map(|line| line.split_once('='));
        machine.windows(&machine.drive(), Some(number), &argv).envs(variables).stdout(output.try_clone()?).stderr(output).spawn()
    }

    /// Waits for the end of the program and restarts it, until the machine is off. Holds its pipe: see hold.c.
    async fn keep(&self, pipe: &str, mut child: Child, opened: &watch::Sender<bool>) {
        let mut failures = Failures::default();
        loop {
            let pipe = format!(r"\\.\pipe\{pipe}");
            let hold =
                self.machine.windows(&self.machine.drive(), None, &[CONSOLE, HOLD, &pipe]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            let mut holder = hold.ok();
            if let Some(output) = holder.as_mut().and_then(|holder| holder.stdout.take()) {
                let (mut line, mut output) = (String::new(), BufReader::new(output));
                tokio::select! {
                    _ = output.read_line(&mut line) => { opened.send_replace(line.starts_with("holding")); }
                    _ = child.wait() => {}
                }
            }
            let _ = child.wait().await;
            opened.send_replace(false);
            sleep(failures.pause(&self.service)).await;
            let _ = self.machine.kill(&self.number).await;
            match self.start().await {
                Ok(started) => child = started,
                Err(_) => return,
            }
        }
    }
}

/// Waits for failures of a service and restarts it, until the machine is off. A service that was stopped on purpose stays stopped.
async fn keep(machine: &Machine, name: &str, service: &Service) {
    let mut failures = Failures::default();
    loop {
        let argv = [SERVICE, "wait", name];
        let ended = machine.windows(&machine.drive(), None, &argv).stderr(Stdio::null()).output().await;
        let code = ended.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        if code == "0" {
            // The service was stopped on purpose, and may be started again.
            sleep(Duration::from_secs(1)).await;
            continue;
        }
        sleep(failures.pause(service)).await;
        let _ = tool(machine, &["start", name]).await;
    }
}

/// The failure count of the service manager, which selects the next delay.
#[derive(Default)]
struct Failures {
    count: usize,
    last: Option<Instant>,
}

impl Failures {
    fn pause(&mut self, service: &Service) -> Duration {
        let now = Instant::now();
        let reset = Duration::from_secs(u64::from(service.reset_seconds));
        if self.last.is_some_and(|last| now.duration_since(last) > reset) {
            self.count = 0;
        }
        let delay = service.restart_delays.get(self.count).or(service.restart_delays.last()).copied().unwrap_or(1_000);
        (self.count, self.last) = (self.count + 1, Some(now));
        Duration::from_millis(u64::from(delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_falls_into_its_words() {
        let words = winsplit::split(r#""C:\Program Files\a.exe" --config "C:\x y\c" -l"#);
        assert_eq!(words, [r"C:\Program Files\a.exe", "--config", r"C:\x y\c", "-l"]);
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_and_are_forgotten() {
        let service = Service { restart_delays: vec![5, 10], reset_seconds: 900, ..Service::default() };
        let mut failures = Failures::default();
        let pauses: Vec<u128> = (0..3).map(|_| failures.pause(&service).as_millis()).collect();
        assert_eq!(pauses, [5, 10, 10]);
        tokio::time::advance(Duration::from_secs(901)).await;
        assert_eq!(failures.pause(&service).as_millis(), 5);
    }
}
