//! Looks that many share: who asks while one is under way waits for the next one, together with all others who do.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::hypervisor::DriverError;

/// Who asks within this time after the first one shares the look with it.
const GATHER: Duration = Duration::from_millis(100);

/// The newest look: when it began, and what it gave.
pub struct Shared<T>(Mutex<Option<(Instant, Result<T, DriverError>)>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Shared<T> {
    /// The result of a look that begins after this call: of the one that another caller makes meanwhile, or of an own one.
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

    /// When each caller asks, in milliseconds, and the number of the look that it gets; a look takes 50.
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
        // The second one asks before the first look begins, the third and fourth while it is under way.
        assert_eq!(join_all([0, 90, 110, 140, 1000].map(get)).await, [1, 1, 2, 2, 3]);
    }

    /// Else those who wait would try one after the other, each for its whole time limit.
    #[tokio::test(start_paused = true)]
    async fn a_look_that_fails_fails_for_all_who_share_it() {
        let (shared, cut) = (Shared::default(), DriverError::Transient("cut".into()));
        let both = tokio::join!(shared.get(async { Err(cut.clone()) }), shared.get(async { Ok(1) }));
        assert_eq!(both, (Err(cut.clone()), Err(cut)));
        assert_eq!(shared.get(async { Ok(2) }).await, Ok(2));
    }
}
