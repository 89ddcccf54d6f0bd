//! The model of a Windows machine: a disk, the journal of its runner, and its surroundings. The runner works on it as on Windows.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::disk::{Act, Disk};
use super::error::JoinError;
use super::image::Image;
use super::journal::{Ended, Journal};
use super::programs::{self, Program};
use super::runner::{self, Failure, Machine};
use crate::bootstrap::plan::{Check, Item, Plan};

/// The stored state of a machine.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Kept {
    pub journal: Journal,
    pub disk: Disk,
    /// The number of the VM's power on whose start of Windows was counted.
    pub power_ons: u32,
}

/// The surroundings of a machine: the cluster that it joins, its storage, and its faults. In the simulator this is a VM.
pub trait World {
    /// Why the step never becomes true, if a fault hits it.
    fn broken(&self, item: &Item) -> Option<String>;

    /// The end of a program that fails to do its work.
    fn program(&mut self, _argv: &[String]) -> Option<Run> {
        None
    }

    /// The time until the service runs; `None` if it ends while it starts.
    fn service(&self, _name: &str) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Lets kubeadm join the cluster with that file.
    async fn join(&mut self, disk: &Disk, configuration: &str) -> Result<(), JoinError>;

    /// Undoes kubeadm's changes for the join.
    async fn reset(&mut self);

    /// Prints lines on the console.
    async fn say(&mut self, lines: String);

    async fn keep(&mut self, kept: &Kept) -> io::Result<()>;
}

/// The run of a program that fails to do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub takes: Duration,
    pub code: i32,
    /// The program's last output.
    pub said: String,
}

/// A machine that is on.
pub struct Model<W> {
    pub kept: Kept,
    pub world: W,
    /// Lines that are not on the console yet. The next slow step prints them: many machines write many lines.
    said: String,
}

impl<W: World> Model<W> {
    pub fn new(kept: Kept, world: W) -> Self {
        Self { kept, world, said: String::new() }
    }

    /// A machine that was never on.
    pub fn of_image(image: &Image, computer_name: &str, world: W) -> Self {
        Self::new(Kept { disk: Disk::of_image(image, computer_name), ..Kept::default() }, world)
    }

    /// Starts Windows.
    pub fn start(&mut self) {
        let moment = self.kept.journal.start();
        let world = &self.world;
        self.kept.disk.start(moment, |service| world.service(service).is_some());
    }

    /// Carries out the plan to its end, including the restarts that it requests.
    pub async fn carry_out(&mut self, plan: &Plan) -> io::Result<()> {
        while runner::carry_out(self, plan).await? == Ended::ForRestart {
            self.start();
            self.keep().await?;
        }
        Ok(())
    }

    async fn tell(&mut self) {
        if !self.said.is_empty() {
            self.world.say(std::mem::take(&mut self.said)).await;
        }
    }

    /// Runs a program; returns true if it did its work.
    async fn run(&mut self, program: &Program) -> Result<bool, Failure> {
        let Some(run) = self.world.program(&program.argv) else { return Ok(true) };
        self.tell().await;
        let name = program.argv.first().map(String::as_str).unwrap_or_default();
        let limit = seconds(program.seconds);
        sleep(run.takes.min(limit)).await;
        if run.takes > limit {
            return Err(not_in_time(name, program.seconds));
        }
        if !program.good.contains(&run.code) {
            return Err(format!("{name} ended with {}: {}", run.code, run.said).into());
        }
        Ok(false)
    }

    async fn start_service(&mut self, name: &str, limit: Duration) -> Result<(), Failure> {
        let takes = self.world.service(name).filter(|takes| *takes <= limit);
        if takes != Some(Duration::ZERO) {
            self.tell().await;
            sleep(takes.unwrap_or(limit)).await;
        }
        if takes.is_none() {
            return Err(String::from(TIME_OUT).into());
        }
        let moment = self.kept.journal.next_moment();
        self.kept.disk.run_service(name, moment);
        Ok(())
    }

    async fn join(&mut self, item: &Item, program: &str, configuration: &str) -> Result<(), Failure> {
        self.tell().await;
        match timeout(seconds(item.seconds), self.world.join(&self.kept.disk, configuration)).await {
            Ok(Ok(())) => {
                let moment = self.kept.journal.next_moment();
                self.kept.disk.joined(moment, self.world.service("kubelet").is_some());
                Ok(())
            }
            Ok(Err(error)) => Err(format!("{program} ended with 1: error: {error}").into()),
            Err(_) => Err(not_in_time(program, item.seconds)),
        }
    }
}

impl<W: World> Machine for Model<W> {
    fn journal(&mut self) -> &mut Journal {
        &mut self.kept.journal
    }

    async fn is_true(&mut self, item: &Item) -> Result<bool, String> {
        Ok(self.world.broken(item).is_none() && self.kept.disk.is_true(item, &self.kept.journal))
    }

    async fn act(&mut self, item: &Item) -> Result<(), Failure> {
        if let Some(why) = self.world.broken(item) {
            return Err(why.into());
        }
        let programs = programs::of(item);
        for program in &programs {
            if !self.run(program).await? {
                return Ok(());
            }
        }
        let moment = self.kept.journal.next_moment();
        match self.kept.disk.act(item, moment) {
            Act::Done => Ok(()),
            Act::Join { configuration } => {
                let program = programs.first().and_then(|program| program.argv.first()).map(String::as_str);
                self.join(item, program.unwrap_or_default(), configuration).await
            }
            Act::StartService { name } => self.start_service(name, seconds(item.seconds)).await,
            Act::Wait(check) => Err(format!("{} within {} seconds", runner::finding(self, check).await, item.seconds).into()),
            Act::Never(why) => Err(why.into()),
        }
    }

    async fn undo(&mut self, _item: &Item, _argv: &[String]) {
        self.world.reset().await;
    }

    async fn holds(&mut self, check: &Check) -> Result<bool, String> {
        Ok(self.kept.disk.holds(check))
    }

    async fn value(&mut self, key: &str, name: &str) -> Option<String> {
        self.kept.disk.value(key, name)
    }

    async fn say(&mut self, line: String) {
        self.said += &line;
    }

    async fn keep(&mut self) -> io::Result<()> {
        self.tell().await;
        self.world.keep(&self.kept).await
    }
}

/// PowerShell's message when a service does not come to run.
const TIME_OUT: &str = r#"Exception calling "WaitForStatus" with "2" argument(s): "Time out has expired and the operation has not been completed.""#;

fn not_in_time(program: &str, seconds: u32) -> Failure {
    format!("{program} did not end within {seconds} seconds").into()
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
