//! The end-to-end stories: one file each, run against the real parts that `world` starts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "test code: it fails by panicking and lives by the clock"
)]

mod alerts;
#[path = "../../src/hypervisor/contract/authority.rs"]
mod authority;
mod autoscaler;
mod bad_input;
mod bad_manifests;
mod bad_windows;
mod calico_side;
mod clusterctl;
mod contract;
#[allow(dead_code, reason = "shared with the benchmark, which uses more of it")]
#[path = "../bench/cost.rs"]
mod cost;
mod cost_of_a_machine;
mod definitions;
mod demo_runs;
mod doctor;
mod documents;
mod drain;
mod effects;
mod faults;
mod guests;
mod idle;
mod image_recipe;
mod in_place;
mod installed;
mod least_rights;
mod linux_side;
mod operator;
mod own_mirror;
mod parts;
mod polkit;
mod pool_rules;
mod pools;
mod powershell;
mod program_logs;
mod prove;
mod real_vms;
mod real_windows_node;
mod restart;
mod rights;
mod rollout;
mod scale_race;
mod secrets;
mod sequences;
mod slow_cluster;
mod slow_endpoint;
mod specs;
mod standalone;
mod stuck;
mod tenants;
mod three_nodes;
mod two_of_everything;
mod upgrade;
mod ways_in;
mod windows_matrix;
mod windows_network;
mod windows_policies;
mod windows_side;
mod wine_kills;
mod workers;
#[path = "../world/mod.rs"]
mod world;
mod wrong_input;
mod wrong_objects;
mod wrong_pools;
