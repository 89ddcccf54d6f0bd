//! The seed for the random numbers of stories: the same in each run, unless `CAPW_SEED` changes it.

use capw_patience::step;
use rand::Rng;

/// The default seed.
const USUAL: u64 = 7;

/// `CAPW_SEED`: a number, or `random`. Prints the seed, so that a run can be repeated.
pub fn seed() -> u64 {
    let seed = match std::env::var("CAPW_SEED").as_deref() {
        Err(_) => USUAL,
        Ok("random") => rand::rng().random_range(0..1 << 32),
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("CAPW_SEED={text}: {e}; it is a number, or the word random")),
    };
    step(format!("CAPW_SEED={seed} draws the same random numbers again"));
    seed
}
