//! A wrapper for any driver: a deadline, a tracing span and a callback for each call, limits on concurrent calls, and the names that
//! images and networks have at this endpoint.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, debug_span};

use super::driver::{Caps, Driver, DriverStep, ImageFirmware};
use super::gate::{Gate, Kept};
use super::gates::EndpointGates;
use super::listing::{Listing, Wanted};
use crate::api::hypervisor::Alias;
use crate::vm::{DriverError, Endpoint, Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

/// One finished call to a hypervisor.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `<namespace>/<name>` of the WindowsHypervisor.
    pub endpoint: &'a str,
    pub driver: &'static str,
    /// The method of [`Driver`], e.g. `advance`.
    pub call: &'static str,
    /// `ok` or [`DriverError::label`].
    pub outcome: &'static str,
    pub took: Duration,
}

/// Called after every call to a driver.
pub type CallHook = Arc<dyn Fn(Call<'_>) + Send + Sync>;

/// The settings of a WindowsHypervisor that do not depend on the driver.
#[derive(Clone, Default)]
pub struct EndpointSettings {
    /// `<namespace>/<name>` of the WindowsHypervisor.
    pub name: String,
    pub images: Vec<Alias>,
    pub networks: Vec<Alias>,
    /// The most concurrent changes, in addition to the limits of the endpoint.
    pub most_changes: Option<usize>,
}

/// A driver with deadlines, spans, a callback and limits.
pub struct ObservedDriver {
    inner: Arc<dyn Driver>,
    settings: EndpointSettings,
    hook: CallHook,
    gates: Arc<EndpointGates>,
    changes: Arc<Gate>,
}

impl ObservedDriver {
    pub fn new(inner: Arc<dyn Driver>, settings: EndpointSettings, gates: Arc<EndpointGates>, hook: CallHook) -> Self {
        let changes = settings.most_changes.map_or_else(|| gates.changes.clone(), |most| Arc::new(Gate::within(gates.changes.clone(), most)));
        Self { inner, settings, hook, gates, changes }
    }

    async fn read<T>(&self, call: &'static str, work: impl Future<Output = Result<T, DriverError>>) -> Result<T, DriverError> {
        let _permit = self.gates.reads.enter().map_err(|after| DriverError::Busy { after })?;
        self.timed(call, work, DriverError::Unreachable).await
    }

    /// Calls the driver to change the VM. A change whose reply is late may have happened: the caller must observe, not repeat the change.
    async fn change(
        &self,
        call: &'static str,
        key: &MachineKey,
        work: impl Future<Output = Result<DriverStep, DriverError>>,
    ) -> Result<DriverStep, DriverError> {
        let _permit = self.changes.enter_for(key.vm).map_err(|after| DriverError::Busy { after })?;
        self.timed(call, work, DriverError::Unknown).await
    }

    /// Returns the spec with the names that images and networks have at this endpoint.
    fn translated(&self, spec: &VmSpec) -> VmSpec {
        let translate = |aliases: &[Alias], name: &str| aliases.iter().find(|alias| alias.name == name).map_or(name, |alias| &alias.is).to_owned();
        let mut spec = spec.clone();
        spec.image = translate(&self.settings.images, &spec.image);
        for nic in &mut spec.nics {
            nic.network = nic.network.as_deref().map(|name| translate(&self.settings.networks, name));
        }
        spec
    }

    async fn timed<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, DriverError>>,
        late: impl FnOnce(String) -> DriverError,
    ) -> Result<T, DriverError> {
        let Caps { driver, deadline, .. } = *self.inner.caps();
        let endpoint = self.settings.name.as_str();
        let span = debug_span!("hypervisor", endpoint, driver, call);
        let start = Instant::now();
        let result = match timeout(deadline, work.instrument(span)).await {
            Ok(result) => result,
            Err(_) => Err(late(format!(
                "hypervisor {endpoint} did not answer {call} within {} s: check that it runs and can be reached",
                deadline.as_secs()
            ))),
        };
        let outcome = result.as_ref().err().map_or("ok", DriverError::label);
        (self.hook)(Call { endpoint, driver, call, outcome, took: start.elapsed() });
        result
    }
}

#[async_trait]
impl Driver for ObservedDriver {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn keep_place(&self, key: &MachineKey) -> Result<Option<Kept>, DriverError> {
        self.changes.keep(key.vm).map(Some).map_err(|after| DriverError::Busy { after })
    }

    // No limit: only the endpoint's own controller calls this, one call at a time, and calls about machines must not delay it.
    async fn describe(&self) -> Result<Endpoint, DriverError> {
        self.timed("describe", self.inner.describe(), DriverError::Unreachable).await
    }

    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        self.timed("list", self.inner.list(wanted), DriverError::Unreachable).await
    }

    async fn check(&self, spec: &VmSpec, seed: SeedKind) -> Result<(), DriverError> {
        if !self.caps().seeds.contains(&seed) {
            return Err(DriverError::Invalid(format!(
                "the driver {} cannot give machines a seed of kind {seed:?}: choose another spec.channel of the WindowsBootstrapConfig",
                self.caps().driver
            )));
        }
        self.read("check", self.inner.check(&self.translated(spec), seed)).await
    }

    async fn image_firmware(&self, spec: &VmSpec) -> Result<ImageFirmware, DriverError> {
        self.read("image_firmware", self.inner.image_firmware(&self.translated(spec))).await
    }

    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError> {
        self.read("observe", self.inner.observe(key, journal)).await
    }

    async fn confirm_absence(&self, key: &MachineKey) -> Result<(), DriverError> {
        self.read("confirm_absence", self.inner.confirm_absence(key)).await
    }

    async fn plan(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        self.read("plan", self.inner.plan(key, &self.translated(spec), journal)).await
    }

    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        self.change("advance", key, self.inner.advance(key, &self.translated(spec), seed, journal, observed)).await
    }

    async fn detach(&self, key: &MachineKey, journal: &Journal) -> Result<DriverStep, DriverError> {
        self.change("detach", key, self.inner.detach(key, journal)).await
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        self.change("retire", key, self.inner.retire(key, how, journal, observed)).await
    }

    fn hints(&self) -> Option<BoxStream<'static, ()>> {
        self.inner.hints()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::{HostName, VmUuid};
    use crate::vm::{MacAddress, Nic, Thing};
    use parking_lot::Mutex;

    /// A driver whose calls take time.
    struct Slow {
        takes: Duration,
        caps: Caps,
        asked: Mutex<Vec<VmSpec>>,
    }

    #[async_trait]
    impl Driver for Slow {
        fn caps(&self) -> &Caps {
            &self.caps
        }
        async fn describe(&self) -> Result<Endpoint, DriverError> {
            tokio::time::sleep(self.takes).await;
            Ok(Endpoint::default())
        }
        async fn check(&self, spec: &VmSpec, _: SeedKind) -> Result<(), DriverError> {
            self.asked.lock().push(spec.clone());
            Err(DriverError::Missing { thing: Thing::Image, text: "image".into() })
        }
        async fn list(&self, _: &Wanted) -> Result<Listing, DriverError> {
            Ok(Listing::default())
        }
        async fn observe(&self, _: &MachineKey, _: &Journal) -> Result<Observed, DriverError> {
            tokio::time::sleep(self.takes).await;
            Ok(Observed::Absent)
        }
        async fn advance(&self, _: &MachineKey, _: &VmSpec, _: &Seed, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
            Ok(DriverStep::Done)
        }
        async fn detach(&self, _: &MachineKey, _: &Journal) -> Result<DriverStep, DriverError> {
            Ok(DriverStep::Done)
        }
        async fn retire(&self, _: &MachineKey, _: StopMode, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
            tokio::time::sleep(self.takes).await;
            Ok(DriverStep::Changed)
        }
    }

    type Calls = Arc<Mutex<Vec<(String, &'static str, &'static str)>>>;

    fn observed(takes: Duration, passes: usize, settings: EndpointSettings) -> (Arc<Slow>, ObservedDriver, Calls) {
        let second = Duration::from_secs(1);
        let caps = Caps { driver: "slow", seeds: &[SeedKind::Drive], tick: second, deadline: 30 * second, reads: 8, changes: 4 };
        let (slow, calls) = (Arc::new(Slow { takes, caps, asked: Mutex::default() }), Calls::default());
        let told = calls.clone();
        let hook = Arc::new(move |call: Call<'_>| told.lock().push((call.endpoint.to_owned(), call.call, call.outcome)));
        let settings = EndpointSettings { name: "lab/one".into(), ..settings };
        let gates = Arc::new(EndpointGates::new(slow.caps(), passes));
        (slow.clone(), ObservedDriver::new(slow, settings, gates, hook), calls)
    }

    async fn retire(driver: &ObservedDriver) -> Result<DriverStep, DriverError> {
        let key = MachineKey { vm: VmUuid::of("x"), cluster: "lab/one".into(), name: "x".into() };
        driver.retire(&key, StopMode::Hard, &Journal::new(), &Observed::Absent).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_read_is_unreachable_and_a_late_change_is_unknown() {
        let (_, driver, calls) = observed(Duration::from_secs(60), 32, EndpointSettings::default());
        assert!(matches!(driver.describe().await, Err(DriverError::Unreachable(text)) if text.contains("lab/one") && text.contains("30 s")));
        assert!(matches!(retire(&driver).await, Err(DriverError::Unknown(_))));
        let endpoint = || "lab/one".to_owned();
        assert_eq!(*calls.lock(), [(endpoint(), "describe", "unreachable"), (endpoint(), "retire", "unknown")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_finds_no_place_comes_back_and_holds_no_pass() {
        for (passes, most_changes, most) in [
            (32, None, 4),
            (32, Some(3), 3),
            // Of eight passes, at most two may be changes.
            (8, None, 2),
            (1, None, 1),
        ] {
            let settings = EndpointSettings { most_changes, ..EndpointSettings::default() };
            let (_, driver, calls) = observed(Duration::from_secs(20), passes, settings);
            let start = Instant::now();
            let results = futures::future::join_all((0..12).map(|_| retire(&driver))).await;
            let busy = results.iter().filter(|result| matches!(result, Err(DriverError::Busy { .. }))).count();
            assert_eq!((12 - busy, calls.lock().len(), start.elapsed().as_secs()), (most, most, 20), "{results:?}");
            assert_eq!(retire(&driver).await, Ok(DriverStep::Changed), "the places are free again");
        }
    }

    #[tokio::test]
    async fn names_are_translated_and_only_seeds_that_the_driver_knows_are_given() {
        let alias = |name: &str, is: &str| Alias { name: name.into(), is: is.into() };
        let settings = EndpointSettings {
            images: vec![alias("windows", "[gold] ws2022")],
            networks: vec![alias("nodes", "vlan-114")],
            ..EndpointSettings::default()
        };
        let (slow, driver, _) = observed(Duration::ZERO, 32, settings);
        let nic = |network: Option<&str>| Nic { network: network.map(str::to_owned), mac: MacAddress([2; 6]) };
        let spec = VmSpec {
            image: "windows".into(),
            cpus: 1,
            memory_mib: 1,
            system_disk_gib: None,
            disks: Vec::new(),
            nics: vec![nic(Some("nodes")), nic(Some("other")), nic(None)],
            uefi: true,
            secure_boot: true,
            tpm: false,
            nested_virtualization: false,
            host_name: HostName::parse("win-1").unwrap(),
        };
        assert!(matches!(driver.check(&spec, SeedKind::GuestInfo).await, Err(DriverError::Invalid(text)) if text.contains("spec.channel")));
        driver.check(&spec, SeedKind::Drive).await.unwrap_err();
        let asked = &slow.asked.lock()[0];
        assert_eq!((asked.image.as_str(), &asked.nics), ("[gold] ws2022", &vec![nic(Some("vlan-114")), nic(Some("other")), nic(None)]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_hangs_holds_no_more_than_its_turns() {
        // Reads take at most a quarter of the passes, and so do changes.
        for (passes, most_reads, most_changes) in [(32, 8, 4), (16, 4, 4), (8, 2, 2)] {
            let (_, driver, _) = observed(Duration::from_secs(60), passes, EndpointSettings::default());
            let key = MachineKey { vm: VmUuid::of("x"), cluster: "lab/one".into(), name: "x".into() };
            let start = Instant::now();
            let busy = |result: Result<(), DriverError>| matches!(result, Err(DriverError::Busy { .. })) && start.elapsed().is_zero();
            let reads = futures::future::join_all((0..32).map(|_| async { busy(driver.observe(&key, &Journal::new()).await.map(drop)) })).await;
            assert_eq!(reads.into_iter().filter(|busy| *busy).count(), 32 - most_reads);
            let start = Instant::now();
            let busy = |result: Result<(), DriverError>| matches!(result, Err(DriverError::Busy { .. })) && start.elapsed().is_zero();
            let changes = futures::future::join_all((0..32).map(|_| async { busy(retire(&driver).await.map(drop)) })).await;
            assert_eq!(changes.into_iter().filter(|busy| *busy).count(), 32 - most_changes);
        }
    }
}
