//! Real parts for end-to-end tests, the demo and the benchmarks: etcd, the Kubernetes control plane and Cluster API core as plain
//! processes on 127.0.0.1, with `capw` beside them. Each [`ControlPlane`] has its own ports, certificates, data and logs, and
//! leaves nothing behind: processes end and files are removed when it is dropped, when the test fails or when this process is killed.
//! After a failure the files stay and their path is printed.
//!
//! It must not know the subject of a story: it contains only ways to observe and to act, and no expectations on CAPW.
//! Everything here panics with what, where and remedy when a part fails; only tests and tools use it.
//!
//! Stories run on one runtime for the whole program, because a Kubernetes client ends with the runtime that created it:
//!
//! ```ignore
//! #[test]
//! fn a_story() {
//!     world::run(async {
//!         let cp = ControlPlane::start(Options::default()).await;
//!         let mut capw = Capw::start(&cp, &[]).await;
//!     });
//! }
//! ```
#![allow(dead_code, unused_imports, reason = "the tests, the demo and the benchmarks each use a part")]
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

mod audit;
mod beside;
mod capw;
mod client;
mod cloudbase;
mod clusterctl;
mod control_plane;
mod core;
mod ended;
mod extent;
pub mod facts;
mod faulty_way;
mod fewest;
mod forward;
mod guardian;
pub mod hardware;
mod history;
mod host_process;
mod kept;
pub mod manifests;
mod pki;
mod ports;
mod process;
mod recording;
mod scratch;
pub mod search;
mod seed;
mod servers;
mod simulator;
mod tools;
mod vms;
mod waits;
pub mod wine;

pub use capw_patience::{Observation, Patience, step, stretch, wait_for};

pub use self::audit::{AuditEvent, AuditMark};
pub use self::beside::beside;
pub use self::capw::{Capw, files, http_get, program};
pub use self::client::{Kind, condition, output, text};
pub use self::cloudbase::CloudbaseInit;
pub use self::control_plane::{ControlPlane, Options};
pub use self::extent::{has_goals, is_judge};
pub use self::faulty_way::FaultyWay;
pub use self::fewest::Fewest;
pub use self::forward::Forward;
pub use self::history::History;
pub use self::host_process::HostProcesses;
pub use self::ports::free_port;
pub use self::process::{Process, interrupt};
pub use self::seed::seed;
pub use self::simulator::{Product, Simulator};
pub use self::tools::{Tools, checkout};
pub use self::vms::{SimulatedVm, simulated_vms};
pub use self::waits::Waits;

use std::future::Future;
use std::sync::LazyLock;

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| tokio::runtime::Runtime::new().expect("a tokio runtime"));

/// Runs a story on the runtime that all stories of this program share. A panic in it is a panic here, on this thread.
pub fn run<F: Future>(story: F) -> F::Output {
    RUNTIME.block_on(async {
        ended::explain();
        story.await
    })
}
