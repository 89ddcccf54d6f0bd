//! Tests the service with a client: over TLS, against an API server with one pool that fails as the test requires.

mod calls;
mod certificates;
mod properties;
mod world;
