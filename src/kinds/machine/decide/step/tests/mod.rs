//! A model of one machine's world: every decision is repeated while random faults happen.

mod histories;
mod lives;
mod places;
mod stops;
mod troubles;
mod world;
