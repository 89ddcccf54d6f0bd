//! The gates of endpoints. WindowsHypervisors that reach one address with one login share theirs, so that an endpoint that is slow holds no
//! more passes the more objects name it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Caps;
use super::gate::Gate;
use super::login::Login;

/// How many calls an endpoint gets at the same time.
pub struct EndpointGates {
    pub reads: Gate,
    pub changes: Arc<Gate>,
}

impl EndpointGates {
    /// `passes`: those of machines at the same time.
    pub fn new(caps: &Caps, passes: usize) -> Self {
        // Reads and changes together take at most half of the passes: an endpoint that is slow does not hold up others.
        let share = (passes / 4).max(1);
        Self { reads: Gate::new(caps.reads.min(share)), changes: Arc::new(Gate::new(caps.changes.min(share))) }
    }
}

/// The gates of this process.
#[derive(Default)]
pub struct Gates(Mutex<Vec<(String, Login, Weak<EndpointGates>)>>);

impl Gates {
    /// The gates of that login at that endpoint. Only the values of a login are compared: they prove that they are known, and its user's
    /// name alone would let one tenant fill the gates of another.
    pub fn get(&self, endpoint: &str, login: &Login, caps: &Caps, passes: usize) -> Arc<EndpointGates> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, _, gates)| gates.strong_count() > 0);
        let is_same = |address: &str, with: &Login| address == endpoint && with.has_values_of(login);
        if let Some(gates) = all.iter().find(|(address, with, _)| is_same(address, with)).and_then(|(_, _, gates)| gates.upgrade()) {
            return gates;
        }
        let gates = Arc::new(EndpointGates::new(caps, passes));
        all.push((endpoint.to_owned(), login.clone(), Arc::downgrade(&gates)));
        gates
    }
}
