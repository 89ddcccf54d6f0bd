//! Keeps workload clusters that answer late or not at all from delaying the others. The number of waiting requests is limited, for one cluster and
//! for all of them. While a cluster is known not to answer, only a few requests are sent, and the other passes of its objects end at once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::error::ApiError;
use super::limits::REQUEST_LIMIT;
use crate::registry::Registry;

/// The default number of passes of a controller at the same time.
const PASSES: usize = 32;
/// The longest wait for a turn, which a server that answers never needs. A request that takes longer than this is late.
const PATIENCE: Duration = Duration::from_secs(1);
/// The failed requests in a row after which no requests are sent to the server for a while.
const FAILURES: u32 = 5;
/// The first rest; each further one is twice as long.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The gate of a workload cluster. Clones share everything.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    turns: Semaphore,
    /// The places for late requests to this cluster, and to all clusters together.
    late: Semaphore,
    all_late: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The failures in a row.
    failures: u32,
    /// The error of the last failure.
    cause: String,
    /// No request is sent before this time.
    rests_until: Option<Instant>,
}

/// The gate of a single cluster.
impl Default for Gate {
    fn default() -> Self {
        Gates::default().of("")
    }
}

impl Gate {
    /// Sends a request, unless the server does not answer: then returns the error of its last request.
    pub async fn pass<T>(&self, call: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let _turn = match timeout(PATIENCE, self.0.turns.acquire()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) | Err(_) => return Err(ApiError::Throttled { after: PATIENCE }),
        };
        if let Some(cause) = self.0.state.lock().rest() {
            return Err(ApiError::Unreachable(cause));
        }
        let answer = self.wait_for(call).await;
        self.0.state.lock().note(match &answer {
            Err(ApiError::Unreachable(cause)) => Some(cause),
            _ => None,
        });
        answer
    }

    /// Waits for the answer. A late request is given up if the places for late requests are taken: its pass may serve another cluster.
    async fn wait_for<T>(&self, call: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let mut call = pin!(call);
        if let Ok(answer) = timeout(PATIENCE, call.as_mut()).await {
            return answer;
        }
        let (Ok(_of_cluster), Ok(_of_all)) = (self.0.late.try_acquire(), self.0.all_late.try_acquire()) else {
            return Err(ApiError::Throttled { after: PATIENCE });
        };
        call.await
    }
}

/// The gates in use, by fingerprint of the kubeconfig: Secrets with the same kubeconfig share a gate. A part of the kubeconfig, e.g. server and
/// user, is not enough: one tenant could fill the gate of another.
pub struct Gates {
    gates: Registry<String, Shared>,
    passes: usize,
    late: Arc<Semaphore>,
}

impl Default for Gates {
    fn default() -> Self {
        Self::new(PASSES)
    }
}

impl Gates {
    /// Creates the gates. `passes` is the number of passes of a controller at the same time. Requests to one cluster take at most half of them, and
    /// a quarter if they are late; late requests to all clusters take at most half.
    pub fn new(passes: usize) -> Self {
        Self { gates: Registry::default(), passes, late: Arc::new(Semaphore::new((passes / 2).max(1))) }
    }

    pub fn of(&self, fingerprint: &str) -> Gate {
        let turns = |part: usize| Semaphore::new((self.passes / part).max(1));
        let make = || Shared { turns: turns(2), late: turns(4), all_late: self.late.clone(), state: Mutex::default() };
        Gate(self.gates.get(fingerprint.to_owned(), make))
    }
}

impl State {
    /// Returns why nothing is sent now. After a rest, one request is sent first; the others wait for its result.
    fn rest(&mut self) -> Option<String> {
        let until = self.rests_until?;
        if until > Instant::now() {
            return Some(self.cause.clone());
        }
        self.rests_until = Some(Instant::now() + REQUEST_LIMIT);
        None
    }

    fn note(&mut self, failure: Option<&String>) {
        let Some(cause) = failure else {
            *self = Self::default();
            return;
        };
        self.failures = self.failures.saturating_add(1);
        self.cause.clone_from(cause);
        if let Some(rests) = self.failures.checked_sub(FAILURES) {
            let rest = REST.saturating_mul(1 << rests.min(10)).min(LONGEST_REST);
            self.rests_until = Some(Instant::now() + rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{join_all, pending};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::sleep;

    async fn lost() -> Result<(), ApiError> {
        Err(ApiError::Unreachable("connection refused".into()))
    }

    /// With as many requests as a controller has passes.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_holds_no_more_than_its_turns_and_soon_only_one() {
        let gate = Gate::default();
        let hang = || gate.pass(async { timeout(REQUEST_LIMIT, pending::<()>()).await.map_err(|_| ApiError::Unreachable("no answer".into())) });
        let start = Instant::now();
        let took = |_| start.elapsed();
        let ended = join_all((0..32).map(|_| async { hang().await.map_err(took).unwrap_err() })).await;
        assert_eq!(ended.iter().filter(|took| **took <= 2 * PATIENCE).count(), PASSES - PASSES / 4, "they give their pass back");
        // From now on the gate knows that the server does not answer.
        let start = Instant::now();
        assert_eq!(hang().await, Err(ApiError::Unreachable("no answer".into())));
        assert_eq!(start.elapsed(), Duration::ZERO);
        sleep(LONGEST_REST).await;
        let start = Instant::now();
        let ended = join_all((0..32).map(|_| async { hang().await.map_err(|_| start.elapsed()).unwrap_err() })).await;
        assert_eq!(ended.iter().filter(|took| !took.is_zero()).count(), 1, "one of them asks");
    }

    /// A server that answers in the end never gets a rest.
    #[tokio::test(start_paused = true)]
    async fn clusters_that_answer_late_leave_half_of_the_passes() {
        let gates = Gates::new(PASSES);
        let start = Instant::now();
        let late = async |gate: Gate| {
            let answer = gate.pass(async {
                sleep(REQUEST_LIMIT - Duration::from_secs(1)).await;
                Ok(())
            });
            (answer.await, start.elapsed())
        };
        let calls = ["a", "b", "c"].into_iter().flat_map(|cluster| (0..PASSES).map(move |_| cluster)).map(|cluster| late(gates.of(cluster)));
        let good = async {
            sleep(2 * PATIENCE).await;
            gates.of("good").pass(async { Ok(()) }).await
        };
        let (answers, good) = tokio::join!(join_all(calls), good);
        let (answered, given_up): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(answer, _)| answer.is_ok());
        assert_eq!(answered.len(), PASSES / 2);
        assert!(given_up.iter().all(|(answer, took)| *answer == Err(ApiError::Throttled { after: PATIENCE }) && *took <= 2 * PATIENCE));
        assert_eq!(good, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_again_is_used_again() {
        let (gate, sent) = (Gate::default(), AtomicUsize::new(0));
        let fail = || {
            gate.pass(async {
                sent.fetch_add(1, Ordering::Relaxed);
                lost().await
            })
        };
        for _ in 0..20 {
            fail().await.unwrap_err();
        }
        assert_eq!(sent.load(Ordering::Relaxed), 5);
        for (rest, sent_by_then) in [(1, 6), (1, 6), (2, 7), (4, 8), (30, 9), (30, 10)] {
            sleep(Duration::from_secs(rest)).await;
            fail().await.unwrap_err();
            assert_eq!(sent.load(Ordering::Relaxed), sent_by_then, "after {rest}s");
        }
        sleep(LONGEST_REST).await;
        // Any answer ends the rest.
        gate.pass(async { Err::<(), _>(ApiError::Forbidden("no".into())) }).await.unwrap_err();
        for _ in 0..4 {
            assert_eq!(fail().await.unwrap_err().label(), "unreachable");
            gate.pass(async { Ok(()) }).await.unwrap();
        }
    }
}
