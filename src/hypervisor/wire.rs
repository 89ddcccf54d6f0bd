//! The function that every request of every driver passes. It gives each request a name, a number and, in tests, a fate.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::vm::DriverError;

/// One request to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of the procedure or path at the hypervisor.
    pub name: &'static str,
    /// Counts from 1, for each connection.
    pub number: u64,
    /// Whether the request may change something: when its reply is lost, the caller cannot know whether it did.
    pub changes: bool,
}

/// Whether a request only reads or may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Reads,
    Changes,
}

impl Effect {
    /// Returns the error for a request that may have arrived but got no answer.
    pub fn unanswered(self, text: String) -> DriverError {
        match self {
            Self::Reads => DriverError::Unreachable(text),
            Self::Changes => DriverError::Unknown(text),
        }
    }
}

/// Whether a request and its answer get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// The request does not arrive.
    #[cfg(test)]
    DropRequest,
    /// The request arrives, its answer does not.
    #[cfg(test)]
    DropReply,
}

/// Decides the fate of requests; in production it counts them and lets them pass.
pub type WireHook = Arc<dyn Fn(Request) -> Fate + Send + Sync>;

/// The path of all requests to one endpoint.
#[derive(Clone)]
pub struct Wire {
    hook: WireHook,
    count: Arc<AtomicU64>,
}

impl Wire {
    pub fn new(hook: WireHook) -> Self {
        Self { hook, count: Arc::default() }
    }

    /// Sends a request that changes nothing.
    pub async fn read<T, E: From<DriverError>>(&self, name: &'static str, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.request(name, Effect::Reads, work).await
    }

    /// Sends a request that may change something.
    pub async fn change<T, E: From<DriverError>>(&self, name: &'static str, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.request(name, Effect::Changes, work).await
    }

    /// Sends a request with that effect.
    pub async fn request<T, E: From<DriverError>>(
        &self,
        name: &'static str,
        effect: Effect,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        match (self.hook)(Request { name, number, changes: effect == Effect::Changes }) {
            Fate::Pass => work.await,
            #[cfg(test)]
            Fate::DropRequest => Err(DriverError::Unreachable(format!("request {name} was lost")).into()),
            #[cfg(test)]
            Fate::DropReply => {
                let _ = work.await;
                Err(effect.unanswered(format!("the answer to {name} was lost")).into())
            }
        }
    }
}
