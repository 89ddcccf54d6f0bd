//! Story *idle*: without changes, CAPW does nothing. Ready machines cause no write at the API server. At the hypervisor they cause only listings, and
//! one listing covers all machines. The benchmark `lifecycle` measures the cost of a thousand machines.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::workers::{Workers, by_capw};
use crate::world::{self, AuditEvent, AuditMark, Capw, ControlPlane, Options, step, wait_for};

const MACHINES: usize = 5;
/// The limit until CAPW has processed the last change.
const LIMIT: Duration = Duration::from_secs(300);
/// CAPW counts as quiet after this time without a write. It lists hypervisors more often.
const QUIET: Duration = Duration::from_secs(25);
/// The number of listings during which no other call happens.
const LISTINGS: f64 = 3.0;
/// The number of listings in the profile `judge`, about two minutes, which also finds a write that happens once a minute.
const MANY_LISTINGS: f64 = 12.0;

#[test]
fn idle() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("idle")).await;
        // `Capw` starts without leader election. With it, the Lease is written every few seconds, which is the only write of an idle CAPW.
        let capw = Capw::start(&cp, &[]).await;
        let mut workers = Workers { replicas: MACHINES, ..Workers::new("idle", &cp).await };
        workers.apply(&cp).await;
        workers.wait_settled(&cp, &cp, Duration::from_secs(120)).await;
        only_listings(&cp, &capw, MACHINES).await;
        // One listing covers an endpoint, so more machines cause no more calls.
        workers.replicas = 3 * MACHINES;
        cp.apply_objects(&[workers.machine_deployment()]).await;
        workers.wait_settled(&cp, &cp, Duration::from_secs(120)).await;
        only_listings(&cp, &capw, workers.replicas).await;
        workers.settled(&cp, &cp).await.expect("all machines are still Ready");
    });
}

/// Waits until CAPW has listed the hypervisor several times without another call or a write.
async fn only_listings(cp: &ControlPlane, capw: &Capw, machines: usize) {
    let enough = if world::is_judge() { MANY_LISTINGS } else { LISTINGS };
    wait_quiet(cp).await;
    let calls = || [&["call=\"list\""][..], &[]].map(|labels| capw.metric("capw_hypervisor_calls_total", labels));
    let look = || (calls(), cp.audit_mark());
    let from = RefCell::new(look());
    // A late report of a guest is a write, and restarts the wait.
    let listings = wait_for("listings of the hypervisor, and nothing else", LIMIT, || async {
        let (([lists, all], mark), now) = (*from.borrow(), calls());
        let (lists, all) = (now[0] - lists, now[1] - all);
        let written = cp.audit_since(mark).into_iter().find(|event| by_capw(event) && event.is_write());
        if written.is_some() || all > lists {
            *from.borrow_mut() = look();
            return Err(format!("{lists} listings of {all} calls; {written:?}"));
        }
        // Without listings, CAPW would not notice a VM that disappeared.
        if lists >= enough { Ok(lists) } else { Err(format!("{lists} listings so far")) }
    })
    .await;
    step(format!("{listings} listings for {machines} machines, no other call and no write"));
}

/// Waits until CAPW has written nothing for a while.
pub async fn wait_quiet(cp: &ControlPlane) {
    wait_quiet_of(cp, by_capw).await;
}

/// Waits until the clients that `by` matches have written nothing for a while.
pub async fn wait_quiet_of(cp: &ControlPlane, by: fn(&AuditEvent) -> bool) {
    let mark: Cell<AuditMark> = Cell::new(cp.audit_mark());
    let since = Cell::new(Instant::now());
    wait_for("CAPW writes nothing for a while", Duration::from_secs(120), || async {
        let from = mark.replace(cp.audit_mark());
        if let Some(last) = cp.audit_since(from).iter().rfind(|event| by(event) && event.is_write()) {
            since.set(Instant::now());
            return Err(format!("{} {}/{} {}", last.verb, last.resource, last.subresource, last.name));
        }
        if since.get().elapsed() >= QUIET { Ok(()) } else { Err("a write some seconds ago".to_owned()) }
    })
    .await;
}
