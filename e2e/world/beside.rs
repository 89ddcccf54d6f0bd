//! What goes on beside a story: the part of a kubelet that it needs, or a look that is taken the whole time.

use std::future::Future;
use std::time::Duration;

/// Time between two rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// Does `round` again and again for as long as `story` lasts. Both are part of the same future: a panic in a round is one of the
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
