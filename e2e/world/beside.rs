//! Work beside a story: the part of a kubelet that the story needs, or continuous checks.

use std::future::Future;
use std::time::Duration;

/// Time between two rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// Repeats `round` while `story` runs. Both are part of the same future: a panic in a round is a panic of the
/// story, and no round outlives it.
pub async fn beside<T>(round: impl AsyncFn(), story: impl Future<Output = T>) -> T {
    let rounds = async {
        loop {
            round().await;
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        done = story => done,
        () = rounds => unreachable!("rounds have no end"),
    }
}
