//! The tools of a case: connections, machines, and passes until a condition holds. A case ends between two calls, never in one.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::bench::{Bench, seed};
use super::run::{Run, Twin};
use crate::hypervisor::machine::{Machine, pause};
use crate::hypervisor::{Driver, DriverError, DriverStep, Endpoint, Leftover, Listing, Wanted};
use crate::vm::{MachineKey, Observed, Power, Present, SeedKind, Seeded, StopMode, VmSpec};

/// The pause between two checks, and after a temporary failure.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest delay of a listing behind the state.
const LAG: Duration = Duration::from_secs(60);

/// Why a case ended early.
pub enum Ended {
    Failed(String),
    DoesNotApply(String),
    Stopped,
}

impl From<DriverError> for Ended {
    fn from(error: DriverError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The end of a case with an unexpected finding.
pub fn failed<T>(text: impl Into<String>) -> Result<T, Ended> {
    Err(Ended::Failed(text.into()))
}

/// One case while it runs.
pub struct Trial<'a> {
    bench: &'a Bench<'a>,
    number: usize,
    until: Instant,
    /// The last temporary failure.
    trouble: Mutex<Option<String>>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(bench: &'a Bench<'a>, number: usize, until: Instant) -> Self {
        Self { bench, number, until, trouble: Mutex::default() }
    }

    pub fn run(&self) -> &Run {
        self.bench.run
    }

    pub fn spec(&self) -> &VmSpec {
        &self.bench.spec
    }

    /// A new connection.
    pub fn connect(&self) -> Result<Arc<dyn Driver>, Ended> {
        Ok((self.bench.connect)()?)
    }

    /// Records the endpoint's description of itself.
    pub fn describes(&self, endpoint: Endpoint) {
        // The first description stays.
        let _ = self.bench.endpoint.set(endpoint);
    }

    /// The machine of this case, before anything of it exists.
    pub fn machine(&self, driver: &dyn Driver) -> Arc<Machine> {
        self.seeded(first_seed(driver))
    }

    /// The machine of this case, with a seed of that kind.
    pub fn seeded(&self, kind: SeedKind) -> Arc<Machine> {
        self.noted(self.run().key(self.number), self.spec().clone(), kind)
    }

    /// The machine of this case, with another image.
    pub fn of_image(&self, driver: &dyn Driver, image: String) -> Arc<Machine> {
        self.noted(self.run().key(self.number), VmSpec { image, ..self.spec().clone() }, first_seed(driver))
    }

    /// One of two machines with the same long name.
    pub fn twin(&self, driver: &dyn Driver, twin: Twin) -> Arc<Machine> {
        self.noted(self.run().twin(twin), self.spec().clone(), first_seed(driver))
    }

    fn noted(&self, key: MachineKey, spec: VmSpec, kind: SeedKind) -> Arc<Machine> {
        let machine = Arc::new(Machine::of(key.clone(), spec_of(&key, spec), seed(kind)));
        self.bench.ledger.note(&machine);
        machine
    }

    /// Repeats a call until its answer is not a temporary failure.
    pub async fn answer<T, F: Future<Output = Result<T, DriverError>>>(&self, ask: impl Fn() -> F) -> Result<Result<T, DriverError>, Ended> {
        loop {
            self.may_go_on()?;
            let error = match ask().await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(error) => error,
            };
            let text = error.to_string();
            match pause(Err(error)) {
                Ok(after) => self.trouble(text, after).await,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Repeats a call as [`Self::answer`] does; any other failure fails the case.
    pub async fn ask<T, F: Future<Output = Result<T, DriverError>>>(&self, ask: impl Fn() -> F) -> Result<T, Ended> {
        Ok(self.answer(ask).await??)
    }

    /// Runs passes until a pass finds nothing to do (`true`), or until `most` passes have changed something.
    pub async fn steps<F: Future<Output = Result<DriverStep, DriverError>>>(&self, most: usize, pass: impl Fn() -> F) -> Result<bool, Ended> {
        let mut steps = 0;
        while steps < most {
            match self.ask(&pass).await? {
                DriverStep::Done => return Ok(true),
                DriverStep::Wait { after } => self.rest(after).await,
                _ => steps += 1,
            }
        }
        Ok(false)
    }

    pub async fn make(&self, machine: &Machine, driver: &dyn Driver) -> Result<(), Ended> {
        self.steps(usize::MAX, || machine.advance(driver)).await.map(drop)
    }

    /// Removes the machine without a guest shutdown, and proves its absence by another observation.
    pub async fn remove(&self, machine: &Machine, driver: &dyn Driver) -> Result<(), Ended> {
        self.steps(usize::MAX, || machine.retire(driver, StopMode::Hard)).await?;
        self.is_absent(machine, driver).await
    }

    pub async fn is_absent(&self, machine: &Machine, driver: &dyn Driver) -> Result<(), Ended> {
        match self.ask(|| machine.look(driver)).await? {
            Observed::Absent => self.ask(|| driver.confirm_absence(&machine.key)).await,
            other => failed(format!("{} should not be there: {}", machine.key.name, found(&other))),
        }
    }

    /// Returns the VM, which must be on.
    pub async fn is_on(&self, machine: &Machine, driver: &dyn Driver) -> Result<Present, Ended> {
        match self.ask(|| machine.look(driver)).await? {
            Observed::Present(vm) if vm.vm && vm.power == Power::On => Ok(vm),
            other => failed(format!("{} should be on: {}", machine.key.name, found(&other))),
        }
    }

    pub async fn list(&self, driver: &dyn Driver) -> Result<Listing, Ended> {
        let wanted = Wanted::default();
        self.ask(|| driver.list(&wanted)).await
    }

    /// Checks that the listing has the machine that many times, and no leftovers of it.
    pub async fn is_listed(&self, machine: &Machine, driver: &dyn Driver, times: usize) -> Result<(), Ended> {
        let until = Instant::now() + LAG;
        loop {
            let listing = self.list(driver).await?;
            let rows = listing.rows.iter().filter(|row| row.key == machine.key).count();
            let leftovers: Vec<&str> =
                listing.leftovers.iter().filter(|leftover| is_of(leftover, &machine.key)).map(|leftover| leftover.what.as_str()).collect();
            if rows == times && leftovers.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                let leftovers = if leftovers.is_empty() { String::new() } else { format!(", and without a VM: {}", leftovers.join(", ")) };
                return failed(format!("{} is listed {rows} times, not {times}{leftovers}", machine.key.name));
            }
            self.rest(AGAIN).await;
        }
    }

    fn may_go_on(&self) -> Result<(), Ended> {
        if self.bench.stop.is_cancelled() {
            return Err(Ended::Stopped);
        }
        if Instant::now() < self.until {
            return Ok(());
        }
        let trouble = self.trouble.lock().clone();
        let trouble = trouble.map(|text| format!("; the last failure: {text}")).unwrap_or_default();
        failed(format!("it takes longer than {} s{trouble}. --timeout gives it more", self.bench.limit.as_secs()))
    }

    /// Reports a temporary failure and waits.
    async fn trouble(&self, text: String, after: Duration) {
        self.bench.say(&format!("  again: {text}"));
        *self.trouble.lock() = Some(text);
        self.rest(after.max(AGAIN)).await;
    }

    /// Waits for that time, or until the case has to end.
    pub async fn rest(&self, after: Duration) {
        tokio::select! {
            () = sleep(after) => {}
            () = sleep_until(self.until) => {}
            () = self.bench.stop.cancelled() => {}
        }
    }
}

/// The kind of seed that a machine gets unless it requests another kind.
pub fn first_seed(driver: &dyn Driver) -> SeedKind {
    driver.caps().seeds.first().copied().unwrap_or(SeedKind::Drive)
}

/// The spec with the machine's own addresses, as each WindowsMachine has them.
fn spec_of(key: &MachineKey, mut spec: VmSpec) -> VmSpec {
    for (index, nic) in spec.nics.iter_mut().enumerate() {
        nic.mac = crate::vm::MacAddress::of(key.vm, index);
    }
    spec
}

/// Whether the leftover belongs to that machine: drivers name their objects by the VM's UUID or its first digits.
fn is_of(leftover: &Leftover, key: &MachineKey) -> bool {
    let id = key.vm.0.simple().to_string();
    leftover.what.contains(id.get(..8).unwrap_or(&id))
}

/// The observation as text.
fn found(observed: &Observed) -> String {
    match observed {
        Observed::Absent => "there is nothing".into(),
        Observed::Foreign { what, .. } => format!("{what} has another mark"),
        Observed::Present(Present { vm: false, .. }) => "something is left without its VM".into(),
        Observed::Present(Present { power, trouble, .. }) => {
            let trouble = trouble.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
            format!("its power is {power:?}{trouble}")
        }
    }
}

/// The properties of a VM that stay the same while its guest runs.
pub fn steady(vm: &Present) -> (Power, Seeded, bool) {
    (vm.power, vm.seeded, vm.vm)
}
