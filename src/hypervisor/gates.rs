//! The gates of endpoints. WindowsHypervisors that reach one address with one login share their gates, so that a slow endpoint does not
//! hold up more reconciles when more objects name it.

use std::sync::Arc;

use super::driver::Caps;
use super::gate::Gate;
use super::login::Login;
use crate::registry::Registry;

/// The limits of concurrent calls to an endpoint.
pub struct EndpointGates {
    pub reads: Gate,
    pub changes: Arc<Gate>,
}

impl EndpointGates {
    /// `passes`: the most machines that are reconciled at the same time.
    pub fn new(caps: &Caps, passes: usize) -> Self {
        // Reads and changes together take at most half of the passes, so that a slow endpoint does not hold up the others.
        let share = (passes / 4).max(1);
        Self { reads: Gate::new(caps.reads.min(share)), changes: Arc::new(Gate::new(caps.changes.min(share))) }
    }
}

/// The gates of this process, by driver, address and login.
#[derive(Default)]
pub struct Gates(Registry<(&'static str, String, Login), EndpointGates>);

impl Gates {
    /// Returns the gates of a login at an address. Only the values of logins are compared: they prove that the tenant knows the secret. A
    /// comparison by user name would let one tenant fill the gates of another.
    pub fn get(&self, address: String, login: &Login, caps: &Caps, passes: usize) -> Arc<EndpointGates> {
        self.0.get((caps.driver, address, login.without_place()), || EndpointGates::new(caps, passes))
    }
}
