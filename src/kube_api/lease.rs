//! Leader election on a Lease, so that only one of several processes works.
//!
//! Rules: a foreign lease is dead when it was *seen* unchanged for its duration by our own monotonic clock (remote clocks are never compared);
//! every write is a replace with the version that was read; we stop working before another process may take over (renew deadline < duration); a
//! graceful stop releases the lease. A process that loses the lease must exit.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::{Instant, sleep, timeout};

use super::error::ApiError;

/// The wall clock, for the times in the Lease that people read.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The lease and its intervals: `retry < renew_deadline < duration`.
#[derive(Clone, Debug)]
pub struct Settings {
    pub namespace: String,
    pub name: String,
    /// The identity, unique among all processes that compete for the lease.
    pub identity: String,
    /// The time without a renewal after which others take over.
    pub duration: Duration,
    /// The time without a renewal after which we stop.
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl Settings {
    /// Creates settings with the intervals that Kubernetes' own components use.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A candidate for the lease, which holds it once [`Lease::acquire`] has returned.
pub struct Lease {
    api: Api<LeaseObject>,
    settings: Settings,
    clock: Clock,
    /// The last state that another holder wrote, and when we first saw it.
    seen: Option<(LeaseSpec, Instant)>,
    /// When the request of the last successful write was sent.
    renewed: Instant,
}

/// The outcome of one attempt.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Held,
    HeldByOther(String),
}

impl Lease {
    pub fn new(client: Client, settings: Settings, clock: Clock) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self { api, settings, clock, seen: None, renewed: Instant::now() }
    }

    /// Returns when this process holds the lease. Failures are logged and retried; drop the future to stop waiting.
    pub async fn acquire(&mut self) {
        let mut said = String::new();
        loop {
            let outcome = match timeout(self.settings.renew_deadline, self.attempt()).await {
                Ok(Ok(Attempt::Held)) => return,
                Ok(Ok(Attempt::HeldByOther(holder))) => format!("held by {holder}"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the API server does not answer".to_owned(),
            };
            if outcome != said {
                tracing::info!(lease = %self.name(), state = %outcome, "waiting for leadership");
                said = outcome;
            }
            sleep(self.settings.retry).await;
        }
    }

    /// Renews the lease and returns only when it is lost, with the reason. The caller must stop all work then.
    pub async fn hold(&mut self) -> String {
        loop {
            sleep(self.settings.retry).await;
            let left = self.settings.renew_deadline.saturating_sub(self.renewed.elapsed());
            // A request that hangs leaves time for further attempts.
            match timeout(left.min(self.settings.renew_deadline / 3), self.attempt()).await {
                Ok(Ok(Attempt::Held)) => continue,
                Ok(Ok(Attempt::HeldByOther(holder))) => return format!("{holder} took it"),
                Ok(Err(error)) => tracing::warn!(lease = %self.name(), %error, "lease not renewed"),
                Err(_) => {}
            }
            if self.renewed.elapsed() >= self.settings.renew_deadline {
                return format!("it could not be renewed for {}s", self.settings.renew_deadline.as_secs());
            }
        }
    }

    /// Releases the lease, so that another process need not wait for it to expire. Call it after all work has stopped.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        let Some(mut object) = self.read().await? else { return Ok(()) };
        if object.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) != Some(&self.settings.identity) {
            return Ok(());
        }
        let spec = object.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime((self.clock)()));
        self.replace(&object).await
    }

    fn name(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    async fn read(&self) -> Result<Option<LeaseObject>, ApiError> {
        self.api.get_opt(&self.settings.name).await.map_err(|e| ApiError::of(&format!("get leases {}", self.name()), e))
    }

    async fn replace(&self, object: &LeaseObject) -> Result<(), ApiError> {
        let call = self.api.replace(&self.settings.name, &PostParams::default(), object).await;
        call.map(|_| ()).map_err(|e| ApiError::of(&format!("update leases {}", self.name()), e))
    }

    /// Reads the lease, and writes it if it is ours or may be taken.
    async fn attempt(&mut self) -> Result<Attempt, ApiError> {
        let sent = Instant::now();
        let now = MicroTime((self.clock)());
        match self.read().await? {
            None => {
                let metadata =
                    ObjectMeta { name: Some(self.settings.name.clone()), namespace: Some(self.settings.namespace.clone()), ..Default::default() };
                let spec = LeaseSpec { acquire_time: Some(now.clone()), lease_transitions: Some(0), ..self.spec(now) };
                let object = LeaseObject { metadata, spec: Some(spec) };
                let made = self.api.create(&PostParams::default(), &object).await;
                made.map_err(|e| ApiError::of(&format!("create leases {}", self.name()), e))?;
            }
            Some(mut object) => {
                let had = object.spec.take().unwrap_or_default();
                let holder = had.holder_identity.clone().unwrap_or_default();
                let transitions = had.lease_transitions.unwrap_or(0);
                let mine = holder == self.settings.identity;
                if !mine && !holder.is_empty() && !self.is_dead(&had) {
                    return Ok(Attempt::HeldByOther(holder));
                }
                object.spec = Some(LeaseSpec {
                    acquire_time: if mine { had.acquire_time } else { Some(now.clone()) },
                    lease_transitions: Some(if mine { transitions } else { transitions.saturating_add(1) }),
                    ..self.spec(now)
                });
                self.replace(&object).await?;
            }
        }
        self.seen = None;
        self.renewed = sent;
        Ok(Attempt::Held)
    }

    fn spec(&self, now: MicroTime) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.settings.duration.as_secs()).unwrap_or(i32::MAX)),
            renew_time: Some(now),
            ..Default::default()
        }
    }

    /// Whether another holder's lease was seen unchanged for its whole duration.
    fn is_dead(&mut self, spec: &LeaseSpec) -> bool {
        let duration = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map_or(self.settings.duration, Duration::from_secs);
        match &self.seen {
            Some((had, since)) if had == spec => since.elapsed() >= duration,
            _ => {
                self.seen = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
