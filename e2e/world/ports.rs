//! Unused ports on 127.0.0.1. They lie below the range from which the system takes ports for outgoing connections, so
//! that a server can be stopped and started again on its port. A stranger may still be faster: [`super::control_plane`]
//! then starts over.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex, PoisonError};

use rand::Rng;

const FROM: u16 = 20_000;
/// Linux takes outgoing ports from 32768 on.
const TO: u16 = 32_000;

static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A free port, never the same twice in this process.
pub fn free_port() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..1_000 {
        let port = rand::rng().random_range(FROM..TO);
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 between {FROM} and {TO}: end what listens there");
}
