//! Unused ports on 127.0.0.1. They lie below the range from which the system takes ports for outgoing connections, so
//! that a server can be stopped and started again on its port. Concurrent tests get ports of different ranges. Another program
//! may still be faster: [`super::control_plane`] then starts over.

use std::collections::HashSet;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{LazyLock, Mutex, PoisonError};

use rand::Rng;

const FROM: u16 = 20_000;
/// Linux uses ports from 32768 on for outgoing connections.
const TO: u16 = 32_000;

/// The number of ports per slot of cargo-nextest, and of slots per checkout. Two concurrent checkouts mostly get different halves.
const OF_SLOT: u16 = 425;
const SLOTS: u16 = 14;

/// The ports for this process: the range of its cargo-nextest slot, or all.
fn range() -> Range<u16> {
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse::<u16>().ok());
    let Some(slot) = slot else { return FROM..TO };
    of_slot(slot % SLOTS)
}

fn of_slot(slot: u16) -> Range<u16> {
    let half =
        super::tools::checkout().as_os_str().as_encoded_bytes().iter().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())) % 2;
    let from = FROM + OF_SLOT * (SLOTS * half + slot);
    from..from + OF_SLOT
}

static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A free port, never the same twice in this process.
pub fn free_port() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let range = range();
    for _ in 0..1_000 {
        let port = rand::rng().random_range(range.clone());
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 between {} and {}: end what listens there", range.start, range.end);
}
