//! The service as a client sees it: over TLS, against an API server of one pool that may fail as a test says.

mod calls;
mod certificates;
mod properties;
mod world;
