//! The gates of endpoints. WindowsHypervisors that reach one address with one login share theirs, so that an endpoint that is slow holds no
//! more passes the more objects name it.

use std::sync::Arc;

use super::Caps;
use super::gate::Gate;
use super::login::Login;
use crate::registry::Registry;

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

/// The gates of this process, by driver, address and login.
#[derive(Default)]
pub struct Gates(Registry<(&'static str, String, Login), EndpointGates>);

impl Gates {
    /// The gates of that login at that address. Only the values of a login are compared: they prove that they are known, and its user's
    /// name alone would let one tenant fill the gates of another.
    pub fn get(&self, address: String, login: &Login, caps: &Caps, passes: usize) -> Arc<EndpointGates> {
        self.0.get((caps.driver, address, login.without_place()), || EndpointGates::new(caps, passes))
    }
}
