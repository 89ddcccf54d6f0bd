//! Where the random numbers of stories come from: the same ones in each run, unless it is asked for others.

use capw_patience::step;
use rand::Rng;

/// Of the gate.
const USUAL: u64 = 7;

/// `CAPW_SEED`: a number, or `random`. Says which it is, so that a run can be repeated.
pub fn seed() -> u64 {
    let seed = match std::env::var("CAPW_SEED").as_deref() {
        Err(_) => USUAL,
        Ok("random") => rand::rng().random_range(0..1 << 32),
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("CAPW_SEED={text}: {e}; it is a number, or the word random")),
    };
    step(format!("CAPW_SEED={seed} draws the same random numbers again"));
    seed
}
