//! Calls for many machines, side by side.

use futures::{StreamExt, stream};

use crate::engine::outcome::ReconcileError;

/// Requests of one batch at the same time.
const AT_ONCE: usize = 8;

/// Runs calls side by side, all of them; the first error, if there is one.
pub(super) async fn all<T>(calls: Vec<impl Future<Output = Result<T, ReconcileError>>>) -> Result<Vec<T>, ReconcileError> {
    let done: Vec<Result<T, ReconcileError>> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    done.into_iter().collect()
}
