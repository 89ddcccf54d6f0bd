//! A wrapper for any driver: a deadline, a tracing span and a callback for each call, and limits on concurrent calls, so that an endpoint
//! that hangs does not hold up the machines of others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use tracing::{Instrument, debug_span};

use super::{Driver, DriverError, DriverStep, Endpoint, OwnedVm};
use crate::vm::{Journal, MachineKey, Observed, Seed, StopMode, VmSpec};

/// One finished call to a hypervisor.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `<namespace>/<name>` of the WindowsHypervisor.
    pub endpoint: &'a str,
    pub driver: &'static str,
    /// Method of [`Driver`], e.g. `advance`.
    pub call: &'static str,
    /// `ok` or [`DriverError::label`].
    pub outcome: &'static str,
    pub took: Duration,
}

/// Called after every call to a driver.
pub type CallHook = Arc<dyn Fn(Call<'_>) + Send + Sync>;

/// Concurrent changes at one endpoint.
pub const CONCURRENT_CHANGES: usize = 4;
/// Concurrent reads: fewer than a controller has passes.
const CONCURRENT_READS: usize = 16;
/// So long a call waits for its turn. Reads are quick where the endpoint answers; a change may take seconds.
const READ_PATIENCE: Duration = Duration::from_secs(1);
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// When it is tried again then.
const AFTER: Duration = Duration::from_secs(2);

/// A driver with deadlines, spans, a callback and a limit.
pub struct ObservedDriver {
    inner: Arc<dyn Driver>,
    endpoint: String,
    deadline: Duration,
    hook: CallHook,
    changes: Semaphore,
    reads: Semaphore,
}

impl ObservedDriver {
    /// `endpoint` is `<namespace>/<name>` of the WindowsHypervisor; `deadline` applies to each call.
    pub fn new(inner: Arc<dyn Driver>, endpoint: String, deadline: Duration, hook: CallHook) -> Self {
        Self { inner, endpoint, deadline, hook, changes: Semaphore::new(CONCURRENT_CHANGES), reads: Semaphore::new(CONCURRENT_READS) }
    }

    async fn read<T>(&self, call: &'static str, work: impl Future<Output = Result<T, DriverError>>) -> Result<T, DriverError> {
        let _turn = turn(&self.reads, READ_PATIENCE).await?;
        self.timed(call, work, DriverError::Unreachable).await
    }

    /// A change whose reply is late may have happened: the caller must observe, not repeat it.
    async fn change(&self, call: &'static str, work: impl Future<Output = Result<DriverStep, DriverError>>) -> Result<DriverStep, DriverError> {
        let _turn = turn(&self.changes, CHANGE_PATIENCE).await?;
        self.timed(call, work, DriverError::Unknown).await
    }

    async fn timed<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, DriverError>>,
        late: impl FnOnce(String) -> DriverError,
    ) -> Result<T, DriverError> {
        let driver = self.inner.name();
        let span = debug_span!("hypervisor", endpoint = %self.endpoint, driver, call);
        let start = Instant::now();
        let result = match timeout(self.deadline, work.instrument(span)).await {
            Ok(result) => result,
            Err(_) => Err(late(format!(
                "hypervisor {} did not answer {call} within {} s: check that it runs and can be reached",
                self.endpoint,
                self.deadline.as_secs()
            ))),
        };
        let outcome = result.as_ref().err().map_or("ok", DriverError::label);
        (self.hook)(Call { endpoint: &self.endpoint, driver, call, outcome, took: start.elapsed() });
        result
    }
}

async fn turn(turns: &Semaphore, patience: Duration) -> Result<SemaphorePermit<'_>, DriverError> {
    // Nothing closes it.
    timeout(patience, turns.acquire()).await.ok().and_then(Result::ok).ok_or(DriverError::Busy { after: AFTER })
}

#[async_trait]
impl Driver for ObservedDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        self.timed("describe", self.inner.describe(), DriverError::Unreachable).await
    }

    async fn check(&self, spec: &VmSpec) -> Result<(), DriverError> {
        self.read("check", self.inner.check(spec)).await
    }

    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError> {
        self.read("observe", self.inner.observe(key, journal)).await
    }

    async fn plan(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        self.read("plan", self.inner.plan(key, spec, journal)).await
    }

    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        self.change("advance", self.inner.advance(key, spec, seed, journal, observed)).await
    }

    async fn detach(&self, key: &MachineKey, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        self.change("detach", self.inner.detach(key, journal, observed)).await
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        self.change("retire", self.inner.retire(key, how, journal, observed)).await
    }

    async fn owned(&self) -> Result<Vec<OwnedVm>, DriverError> {
        // One at a time, for the endpoint itself: it tells whether the endpoint answers.
        self.timed("owned", self.inner.owned(), DriverError::Unreachable).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::VmUuid;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A driver whose calls take time.
    #[derive(Default)]
    struct Slow {
        takes: Duration,
        inside: AtomicUsize,
        most: AtomicUsize,
    }

    #[async_trait]
    impl Driver for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        async fn describe(&self) -> Result<Endpoint, DriverError> {
            tokio::time::sleep(self.takes).await;
            Ok(Endpoint::default())
        }
        async fn check(&self, _: &VmSpec) -> Result<(), DriverError> {
            Err(DriverError::NotFound("image".into()))
        }
        async fn observe(&self, _: &MachineKey, _: &Journal) -> Result<Observed, DriverError> {
            tokio::time::sleep(self.takes).await;
            Ok(Observed::Absent)
        }
        async fn plan(&self, _: &MachineKey, _: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
            Ok(journal.clone())
        }
        async fn advance(&self, _: &MachineKey, _: &VmSpec, _: &Seed, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
            Ok(DriverStep::Done)
        }
        async fn detach(&self, _: &MachineKey, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
            Ok(DriverStep::Done)
        }
        async fn retire(&self, _: &MachineKey, _: StopMode, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
            self.most.fetch_max(self.inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(self.takes).await;
            self.inside.fetch_sub(1, Ordering::SeqCst);
            Ok(DriverStep::Changed)
        }
        async fn owned(&self) -> Result<Vec<OwnedVm>, DriverError> {
            Ok(Vec::new())
        }
    }

    type Calls = Arc<Mutex<Vec<(String, &'static str, &'static str)>>>;

    fn observed(takes: Duration) -> (Arc<Slow>, ObservedDriver, Calls) {
        let (slow, calls) = (Arc::new(Slow { takes, ..Slow::default() }), Calls::default());
        let told = calls.clone();
        let hook = Arc::new(move |call: Call<'_>| told.lock().unwrap().push((call.endpoint.to_owned(), call.call, call.outcome)));
        (slow.clone(), ObservedDriver::new(slow, "lab/one".into(), Duration::from_secs(30), hook), calls)
    }

    async fn retire(driver: &ObservedDriver) -> Result<DriverStep, DriverError> {
        let key = MachineKey { vm: VmUuid::of("x"), cluster: "lab/one".into(), name: "x".into() };
        driver.retire(&key, StopMode::Hard, &Journal::new(), &Observed::Absent).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_read_is_unreachable_and_a_late_change_is_unknown() {
        let (_, driver, calls) = observed(Duration::from_secs(60));
        assert!(matches!(driver.describe().await, Err(DriverError::Unreachable(text)) if text.contains("lab/one") && text.contains("30 s")));
        assert!(matches!(retire(&driver).await, Err(DriverError::Unknown(_))));
        let endpoint = || "lab/one".to_owned();
        assert_eq!(*calls.lock().unwrap(), [(endpoint(), "describe", "unreachable"), (endpoint(), "retire", "unknown")]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_changes_are_limited_and_waiting_does_not_count_as_late() {
        let (slow, driver, calls) = observed(Duration::from_secs(4));
        let results = futures::future::join_all((0..12).map(|_| retire(&driver))).await;
        assert!(results.iter().all(|result| *result == Ok(DriverStep::Changed)), "{results:?}");
        assert_eq!(slow.most.load(Ordering::SeqCst), CONCURRENT_CHANGES);
        assert_eq!(calls.lock().unwrap().len(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_hangs_holds_no_more_than_its_turns() {
        let (_, driver, _) = observed(Duration::from_secs(60));
        let key = MachineKey { vm: VmUuid::of("x"), cluster: "lab/one".into(), name: "x".into() };
        let start = Instant::now();
        let reads =
            futures::future::join_all((0..32).map(|_| async { (driver.observe(&key, &Journal::new()).await.map(drop), start.elapsed()) })).await;
        let busy =
            |(result, took): &&(Result<(), DriverError>, Duration)| *result == Err(DriverError::Busy { after: AFTER }) && *took == READ_PATIENCE;
        assert_eq!(reads.iter().filter(busy).count(), 32 - CONCURRENT_READS);
        let start = Instant::now();
        let changes = futures::future::join_all((0..32).map(|_| async { (retire(&driver).await.map(drop), start.elapsed()) })).await;
        let busy =
            |(result, took): &&(Result<(), DriverError>, Duration)| *result == Err(DriverError::Busy { after: AFTER }) && *took == CHANGE_PATIENCE;
        assert_eq!(changes.iter().filter(busy).count(), 32 - CONCURRENT_CHANGES);
    }
}
