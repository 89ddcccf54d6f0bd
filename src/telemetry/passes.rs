//! The running passes, so that liveness notices a pass that never ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest pass. Every request and every call of a pass has a limit, so a longer pass hangs, and only a restart helps.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// The running passes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Passes(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    next: u64,
    since: BTreeMap<u64, (&'static str, Instant)>,
}

/// A running pass, which ends when this value is dropped.
#[derive(Debug)]
pub struct Pass {
    passes: Passes,
    number: u64,
}

impl Passes {
    /// Begins a pass of this controller.
    pub fn begin(&self, controller: &'static str) -> Pass {
        let mut running = self.0.lock();
        let number = running.next;
        running.next += 1;
        running.since.insert(number, (controller, Instant::now()));
        Pass { passes: self.clone(), number }
    }

    /// Returns a message if a pass hangs.
    pub fn hung(&self) -> Option<String> {
        // The first entry is the oldest pass.
        let (controller, since) = *self.0.lock().since.values().next()?;
        let took = since.elapsed();
        (took >= LONGEST).then(|| format!("a pass of {controller} has run for {} minutes", took.as_secs() / 60))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.passes.0.lock().since.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_never_ends_is_noticed() {
        let passes = Passes::default();
        let hanging = passes.begin("windowsmachine");
        drop(passes.begin("windowsnodepool"));
        tokio::time::advance(LONGEST - Duration::from_secs(1)).await;
        let _young = passes.begin("windowsnodepool");
        assert_eq!(passes.hung(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(passes.hung().as_deref(), Some("a pass of windowsmachine has run for 20 minutes"));
        drop(hanging);
        assert_eq!(passes.hung(), None);
    }
}
