//! Reads that many callers share: all callers that come during a read wait for the next read and share it.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::hypervisor::DriverError;

/// How long a read waits for more callers: they share it with the first caller.
const GATHER: Duration = Duration::from_millis(100);

/// The newest read: when it began, and its result.
pub struct Shared<T>(Mutex<Option<(Instant, Result<T, DriverError>)>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the result of a read that begins after this call: another caller's read, or its own.
    pub async fn get(&self, look: impl Future<Output = Result<T, DriverError>>) -> Result<T, DriverError> {
        let asked = Instant::now();
        let mut newest = self.0.lock().await;
        if let Some((_, seen)) = newest.as_ref().filter(|(began, _)| *began > asked) {
            return seen.clone();
        }
        sleep(GATHER).await;
        let began = Instant::now();
        let seen = look.await;
        *newest = Some((began, seen.clone()));
        seen
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::join_all;

    use super::*;

    /// The array holds when each caller comes, in milliseconds; the result is the number of the read that it gets. A read takes 50 ms.
    #[tokio::test(start_paused = true)]
    async fn who_asks_at_once_shares_and_who_comes_later_asks_again() {
        let (shared, looks) = (Shared::default(), Cell::new(0));
        let get = async |after| {
            sleep(Duration::from_millis(after)).await;
            let look = async {
                looks.set(looks.get() + 1);
                let number = looks.get();
                sleep(Duration::from_millis(50)).await;
                Ok(number)
            };
            shared.get(look).await.unwrap()
        };
        // The second caller comes before the first read begins, the third and fourth during it.
        assert_eq!(join_all([0, 90, 110, 140, 1000].map(get)).await, [1, 1, 2, 2, 3]);
    }

    /// Otherwise the waiting callers would try one after the other, each for its whole time limit.
    #[tokio::test(start_paused = true)]
    async fn a_look_that_fails_fails_for_all_who_share_it() {
        let (shared, cut) = (Shared::default(), DriverError::Transient("cut".into()));
        let both = tokio::join!(shared.get(async { Err(cut.clone()) }), shared.get(async { Ok(1) }));
        assert_eq!(both, (Err(cut.clone()), Err(cut)));
        assert_eq!(shared.get(async { Ok(2) }).await, Ok(2));
    }
}
