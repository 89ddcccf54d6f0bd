//! Parallel calls for many machines.

use futures::{StreamExt, stream};

use crate::engine::outcome::ReconcileError;

/// The most parallel requests of one batch.
const AT_ONCE: usize = 8;

/// Runs all calls in parallel. Returns the first error, if there is one.
pub(super) async fn all<T>(calls: Vec<impl Future<Output = Result<T, ReconcileError>>>) -> Result<Vec<T>, ReconcileError> {
    let done: Vec<Result<T, ReconcileError>> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    done.into_iter().collect()
}
