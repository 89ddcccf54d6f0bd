//! The rules of a simulated data centre, working on files with the time as a parameter. Its calls block.
//!
//! Every change holds the data centre's lock and reads the state again first. A VM appears and disappears by one rename, so that a
//! kill at any moment leaves a whole VM, none, or leftovers that [`Datacenter::observe`] shows and `retire` removes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::fault::{CREATE_FAILURES, Ledger};
use super::record::{Home, Record, RecordedPower, after, lock_file, remove_all};
use crate::api::hypervisor::{Fault, GuestKind, Simulated};
use crate::api::name::{base36, mebibytes};
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::{DriverError, DriverStep, Endpoint, Leftover, Listing, Row};
use crate::vm::{MachineKey, Observed, Power, Present, Seed, Seeded, StopMode, Thing, VmSpec};

/// The time between two checks of a guest that was switched off and is still running.
const STOP_MILLISECONDS: i64 = 300;
/// The longest name of a data centre's directory; a longer name ends in a hash.
const NAME_LENGTH: usize = 120;

pub(super) struct Datacenter {
    name: String,
    home: PathBuf,
    settings: Simulated,
    /// The total CPUs and MiB.
    capacity: Option<(i64, u64)>,
}

impl Datacenter {
    pub fn new(state: &Path, default_name: &str, settings: Simulated) -> Result<Self, DriverError> {
        let name = directory(settings.datacenter.as_deref().unwrap_or(default_name));
        let capacity = settings.capacity.as_ref().map(|capacity| {
            let memory = mebibytes(&capacity.memory).map_err(|error| DriverError::Invalid(format!("spec.simulated.capacity.memory: {error}")))?;
            Ok::<_, DriverError>((i64::from(capacity.cpus), memory))
        });
        Ok(Self { home: state.join(&name), name, settings, capacity: capacity.transpose()? })
    }

    pub fn reachable(&self) -> Result<(), DriverError> {
        if self.settings.unreachable {
            let text = format!(
                "data centre {} does not answer, because spec.simulated.unreachable of the WindowsHypervisor is true: set it to false",
                self.name
            );
            return Err(DriverError::Unreachable(text));
        }
        Ok(())
    }

    /// How many calls in a hundred fail.
    pub fn failing_calls(&self) -> i32 {
        self.settings.failing_calls.unwrap_or_default()
    }

    pub fn describe(&self) -> Endpoint {
        let (cpus, memory_mib) = self.capacity.unzip();
        Endpoint { id: format!("simulated:{}", self.name), version: "simulated 1.0".into(), cpus, memory_mib, lacks: Vec::new(), unfit: None }
    }

    pub fn check(&self, spec: &VmSpec) -> Result<(), DriverError> {
        let images: Vec<&str> = match &self.settings.images {
            Some(images) => images.iter().map(String::as_str).collect(),
            None => Simulated::DEFAULT_IMAGES.to_vec(),
        };
        if images.contains(&spec.image.as_str()) {
            return Ok(());
        }
        let known = if images.is_empty() { "no image at all".to_owned() } else { images.join(", ") };
        let text = format!(
            "image {:?} does not exist in data centre {}, which has {known}: correct spec.image of the machine, or spec.simulated.images of the WindowsHypervisor",
            spec.image, self.name
        );
        Err(DriverError::Missing { thing: Thing::Image, text })
    }

    pub fn observe(&self, key: &MachineKey, now: Timestamp) -> Result<Observed, DriverError> {
        let vm = self.vm(key.vm.0);
        // Two attempts: a VM that appears between both reads must not be treated as leftovers.
        for _ in 0..2 {
            let Some(record) = self.record(&vm)? else { continue };
            if record.mark != key.owner_mark() {
                let what = format!("{} in data centre {}, marked {:?}", vm.0.display(), self.name, record.mark);
                return Ok(Observed::Foreign { what, is_marked: key.is_named_by(&record.mark) });
            }
            return Ok(Observed::Present(self.present(&vm, &record, now)?));
        }
        let left: Vec<Home> = [vm.clone(), self.new_vm(key.vm.0), self.gone_vm(key.vm.0)].into_iter().filter(|home| home.0.exists()).collect();
        if left.is_empty() {
            return Ok(Observed::Absent);
        }
        let seeded = Seeded::from_attached(left.iter().any(Home::seeded));
        Ok(Observed::Present(Present { power: Power::Off, seeded, vm: false, addresses: Vec::new(), report: None, trouble: None, warning: None }))
    }

    fn present(&self, vm: &Home, record: &Record, now: Timestamp) -> Result<Present, DriverError> {
        Ok(Present {
            power: record.power(now),
            seeded: Seeded::from_attached(vm.seeded()),
            vm: true,
            addresses: record.addresses(now),
            report: vm.report().map_err(|error| self.failed("reading", &vm.console(), &error))?,
            trouble: None,
            warning: None,
        })
    }

    pub fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, now: Timestamp) -> Result<DriverStep, DriverError> {
        let _lock = self.lock()?;
        let vm = self.vm(key.vm.0);
        let Some(mut record) = self.own_record(&vm, key)? else { return self.create(key, spec, now) };
        match record.power(now) {
            Power::Creating => Ok(wait(now, record.exists_from)),
            Power::Stopping => Ok(wait(now, record.stops_at())),
            Power::On => Ok(DriverStep::Done),
            Power::Off if record.power_ons == 0 && !self.seeded(&vm, seed)? => {
                vm.attach(&SeedImage::from(seed)).map_err(|error| self.failed("writing", &vm.0, &error))?;
                Ok(DriverStep::Changed)
            }
            Power::Off => {
                let delays = &self.settings.delays;
                let slow = record.has(Fault::Slow);
                let take = |milliseconds: i64| if slow { milliseconds.saturating_mul(10).max(10_000) } else { milliseconds };
                record.boot_milliseconds = take(delays.boot_milliseconds);
                record.join_milliseconds = take(delays.join_milliseconds);
                record.power_ons += 1;
                self.switch(&vm, record, RecordedPower::On, now)?;
                Ok(DriverStep::Changed)
            }
        }
    }

    pub fn detach(&self, key: &MachineKey) -> Result<DriverStep, DriverError> {
        let _lock = self.lock()?;
        let vm = self.vm(key.vm.0);
        // A missing or foreign VM does not have our seed.
        if self.own_record(&vm, key)?.is_none() {
            return Ok(DriverStep::Done);
        }
        let had = vm.detach().map_err(|error| self.failed("removing the seed of", &vm.0, &error))?;
        Ok(if had { DriverStep::Changed } else { DriverStep::Done })
    }

    pub fn retire(&self, key: &MachineKey, how: StopMode, now: Timestamp) -> Result<DriverStep, DriverError> {
        if !self.home.exists() {
            return Ok(DriverStep::Done);
        }
        let _lock = self.lock()?;
        let vm = self.vm(key.vm.0);
        let record = self.own_record(&vm, key)?;
        let stop = self.settings.delays.stop_milliseconds;
        match (record.as_ref().map(|record| record.power(now)), how) {
            (Some(Power::On), StopMode::Graceful) if stop > 0 => {
                let record = record.map(|record| Record { stop_milliseconds: stop, ..record });
                let until = self.switch_if(&vm, record, RecordedPower::Stopping, now)?;
                Ok(until.map_or(DriverStep::Changed, |record| wait(now, record.stops_at())))
            }
            (Some(Power::On), _) | (Some(Power::Stopping), StopMode::Hard) => {
                self.switch_if(&vm, record, RecordedPower::Off, now)?;
                Ok(DriverStep::Changed)
            }
            (Some(Power::Stopping), StopMode::Graceful) => Ok(record.map_or(DriverStep::Changed, |record| wait(now, record.stops_at()))),
            // The guest's programs write to its disk until the last program has exited.
            (Some(Power::Off), _) if record.is_some_and(|record| record.guest == GuestKind::Wine) && runs(&vm) => {
                Ok(wait(now, after(now, STOP_MILLISECONDS)))
            }
            (Some(Power::Creating | Power::Off) | None, _) => self.remove(key.vm.0),
        }
    }

    pub fn list(&self, now: Timestamp) -> Result<Listing, DriverError> {
        let mut listing = Listing::default();
        for vm in self.vms()? {
            // An unreadable record may not be ours.
            let Ok(Some(record)) = vm.read() else { continue };
            if record.mark != record.key().owner_mark() {
                continue;
            }
            let present = self.present(&vm, &record, now)?;
            listing.rows.push(Row { key: record.key(), present, cpus: record.cpus, memory_mib: record.memory_mib });
        }
        listing.rows.sort_by_key(|row| row.key.vm);
        listing.leftovers = self.leftovers()?;
        Ok(listing)
    }

    /// The directories of VMs whose creation or removal was interrupted.
    fn leftovers(&self) -> Result<Vec<Leftover>, DriverError> {
        let is_left = |path: &PathBuf| path.extension().is_some_and(|end| end == "new" || end == "gone");
        if !self.entries()?.iter().any(is_left) {
            return Ok(Vec::new());
        }
        // Directories in use disappear before their process releases the lock.
        let _lock = self.lock()?;
        let mut leftovers: Vec<Leftover> =
            self.entries()?.into_iter().filter(is_left).map(|path| Leftover { what: format!("directory {}", path.display()) }).collect();
        leftovers.sort();
        Ok(leftovers)
    }

    fn create(&self, key: &MachineKey, spec: &VmSpec, now: Timestamp) -> Result<DriverStep, DriverError> {
        self.check(spec)?;
        self.room(spec)?;
        let faults = self.faults(key)?;
        let (new, vm) = (self.new_vm(key.vm.0), self.vm(key.vm.0));
        let create_milliseconds = self.settings.delays.create_milliseconds;
        let record = Record { guest: self.settings.guest, ..Record::new(key, spec, faults, create_milliseconds, now) };
        let make = || {
            // Leftovers of an earlier attempt or removal, whose process has ended: this process holds the lock.
            for left in [&new, &self.gone_vm(key.vm.0), &vm] {
                remove_all(&left.0)?;
            }
            fs::create_dir(&new.0)?;
            fs::create_dir(new.disk())?;
            new.write(&record)?;
            fs::rename(&new.0, &vm.0)
        };
        make().map_err(|error| self.failed("making", &vm.0, &error))?;
        Ok(if create_milliseconds > 0 { wait(now, record.exists_from) } else { DriverStep::Changed })
    }

    fn remove(&self, vm: Uuid) -> Result<DriverStep, DriverError> {
        let (home, new, gone) = (self.vm(vm), self.new_vm(vm), self.gone_vm(vm));
        let mut removed = false;
        let mut clear = || {
            for left in [&new, &gone] {
                removed |= left.0.exists();
                remove_all(&left.0)?;
            }
            match fs::rename(&home.0, &gone.0) {
                Ok(()) => removed = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            remove_all(&gone.0)
        };
        clear().map_err(|error| self.failed("removing", &home.0, &error))?;
        Ok(if removed { DriverStep::Changed } else { DriverStep::Done })
    }

    /// The faults of a new VM, or the error that one of them causes.
    fn faults(&self, key: &MachineKey) -> Result<Vec<Fault>, DriverError> {
        let path = self.home.join("faults.json");
        let mut ledger = Ledger::read(&path).map_err(|error| self.failed("reading", &path, &error))?;
        let (faults, mut changed) = ledger.faults(&self.settings.faults, key.vm.0, &key.name);
        let failure = if faults.contains(&Fault::CreateFails) { ledger.create_fails(key.vm.0) } else { None };
        changed |= failure.is_some();
        if changed {
            ledger.write(&path).map_err(|error| self.failed("writing", &path, &error))?;
        }
        match failure {
            None => Ok(faults),
            Some(n) => Err(DriverError::Transient(format!(
                "data centre {} failed to create {}, time {n} of {CREATE_FAILURES}, because spec.simulated.faults of the WindowsHypervisor says CreateFails; it is retried",
                self.name, key.name
            ))),
        }
    }

    fn room(&self, spec: &VmSpec) -> Result<(), DriverError> {
        let Some((cpus, memory)) = self.capacity else { return Ok(()) };
        let (mut used_cpus, mut used_memory) = (0, 0);
        for vm in self.vms()? {
            if let Ok(Some(record)) = vm.read() {
                used_cpus += i64::from(record.cpus);
                used_memory += record.memory_mib;
            }
        }
        if used_cpus + i64::from(spec.cpus) <= cpus && used_memory + spec.memory_mib <= memory {
            return Ok(());
        }
        Err(DriverError::Capacity(format!(
            "data centre {} has no room for {} CPUs and {} MiB: {used_cpus} of {cpus} CPUs and {used_memory} of {memory} MiB are taken. Remove machines, or raise spec.simulated.capacity of the WindowsHypervisor",
            self.name, spec.cpus, spec.memory_mib
        )))
    }

    /// Whether exactly this seed is attached.
    fn seeded(&self, vm: &Home, seed: &Seed) -> Result<bool, DriverError> {
        let attached = vm.seed().map_err(|error| self.failed("reading", &vm.0, &error))?;
        Ok(attached.is_some_and(|attached| attached == SeedImage::from(seed)))
    }

    fn switch(&self, vm: &Home, mut record: Record, power: RecordedPower, now: Timestamp) -> Result<Record, DriverError> {
        record.power = power;
        record.since = now;
        vm.write(&record).map_err(|error| self.failed("writing", &vm.record(), &error))?;
        Ok(record)
    }

    fn switch_if(&self, vm: &Home, record: Option<Record>, power: RecordedPower, now: Timestamp) -> Result<Option<Record>, DriverError> {
        record.map(|record| self.switch(vm, record, power, now)).transpose()
    }

    fn own_record(&self, vm: &Home, key: &MachineKey) -> Result<Option<Record>, DriverError> {
        match self.record(vm)? {
            Some(record) if record.mark != key.owner_mark() => Err(DriverError::Conflict(format!(
                "{} in data centre {} is marked {:?}, not {:?}: it is left alone. Remove that directory if it is not needed",
                vm.0.display(),
                self.name,
                record.mark,
                key.owner_mark()
            ))),
            record => Ok(record),
        }
    }

    fn record(&self, vm: &Home) -> Result<Option<Record>, DriverError> {
        vm.read().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => DriverError::Conflict(format!(
                "{} is not a VM of ours: {error}. It is left alone; remove that directory if it is not needed",
                vm.record().display()
            )),
            _ => self.failed("reading", &vm.record(), &error),
        })
    }

    /// Lists all VMs with one read of the directory.
    fn vms(&self) -> Result<Vec<Home>, DriverError> {
        let is_vm = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| Uuid::try_parse(name).is_ok());
        Ok(self.entries()?.into_iter().filter(is_vm).map(Home).collect())
    }

    fn entries(&self) -> Result<Vec<PathBuf>, DriverError> {
        let failed = |error: &io::Error| self.failed("listing", &self.home, error);
        let entries = match fs::read_dir(&self.home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| failed(&error))).collect()
    }

    fn lock(&self) -> Result<File, DriverError> {
        let path = self.home.join("lock");
        let lock = || {
            fs::create_dir_all(&self.home)?;
            let file = lock_file(&path)?;
            file.lock()?;
            Ok(file)
        };
        lock().map_err(|error: io::Error| self.failed("locking", &path, &error))
    }

    fn vm(&self, vm: Uuid) -> Home {
        Home(self.home.join(vm.to_string()))
    }

    fn new_vm(&self, vm: Uuid) -> Home {
        Home(self.home.join(format!("{vm}.new")))
    }

    fn gone_vm(&self, vm: Uuid) -> Home {
        Home(self.home.join(format!("{vm}.gone")))
    }

    fn failed(&self, what: &str, path: &Path, error: &io::Error) -> DriverError {
        DriverError::Transient(format!(
            "data centre {}: {what} {} failed: {error}. Check the directory given with --simulated-state",
            self.name,
            path.display()
        ))
    }
}

/// Whether a process runs the guest of this VM.
fn runs(vm: &Home) -> bool {
    lock_file(&vm.guest_lock()).is_ok_and(|lock| lock.try_lock().is_err())
}

fn directory(name: &str) -> String {
    if name.len() <= NAME_LENGTH {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_LENGTH - 10).collect();
    format!("{start}-{}", base36(name.as_bytes(), 8))
}

fn wait(now: Timestamp, until: Timestamp) -> DriverStep {
    let after = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    DriverStep::Wait { after: after.max(Duration::from_millis(1)) }
}
