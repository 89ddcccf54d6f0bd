//! Story *idle*: nothing changes, so nothing is done. Ready machines cost no write at the API server, and no call of the hypervisor but
//! its listings, which serve all of them. What a thousand machines cost is measured by `make bench`.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::workers::{Workers, by_capw};
use crate::world::{self, AuditEvent, AuditMark, Capw, ControlPlane, Options, step, wait_for};

const MACHINES: usize = 5;
/// For the last change to be worked off.
const LIMIT: Duration = Duration::from_secs(300);
/// After so long without a write it is: hypervisors are listed more often.
const QUIET: Duration = Duration::from_secs(25);
/// Listings during which nothing else is asked.
const LISTINGS: f64 = 3.0;
/// The same in `make judge`, some two minutes: what is written once a minute is found too.
const MANY_LISTINGS: f64 = 12.0;

#[test]
fn idle() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("idle")).await;
        // Without leader election, as `Capw` starts it. With it the Lease is written every few seconds, whatever else happens,
        // and that is the one write that an idle CAPW makes.
        let capw = Capw::start(&cp, &[]).await;
        let mut workers = Workers { replicas: MACHINES, ..Workers::new("idle", &cp).await };
        workers.apply(&cp).await;
        workers.wait_settled(&cp, &cp, Duration::from_secs(120)).await;
        only_listings(&cp, &capw, MACHINES).await;
        // One listing serves all of an endpoint: more machines cost no more calls.
        workers.replicas = 3 * MACHINES;
        cp.apply_objects(&[workers.machine_deployment()]).await;
        workers.wait_settled(&cp, &cp, Duration::from_secs(120)).await;
        only_listings(&cp, &capw, workers.replicas).await;
        workers.settled(&cp, &cp).await.expect("all machines are still Ready");
    });
}

/// Waits until the hypervisor has been listed some times with no other call and no write.
async fn only_listings(cp: &ControlPlane, capw: &Capw, machines: usize) {
    let enough = if world::is_judge() { MANY_LISTINGS } else { LISTINGS };
    wait_quiet(cp).await;
    let calls = || [&["call=\"list\""][..], &[]].map(|labels| capw.metric("capw_hypervisor_calls_total", labels));
    let look = || (calls(), cp.audit_mark());
    let from = RefCell::new(look());
    // A guest's late word is a write, and begins the wait again.
    let listings = wait_for("listings of the hypervisor, and nothing else", LIMIT, || async {
        let (([lists, all], mark), now) = (*from.borrow(), calls());
        let (lists, all) = (now[0] - lists, now[1] - all);
        let written = cp.audit_since(mark).into_iter().find(|event| by_capw(event) && event.is_write());
        if written.is_some() || all > lists {
            *from.borrow_mut() = look();
            return Err(format!("{lists} listings of {all} calls; {written:?}"));
        }
        // If the hypervisor were never asked, a VM that is gone would go unnoticed.
        if lists >= enough { Ok(lists) } else { Err(format!("{lists} listings so far")) }
    })
    .await;
    step(format!("{listings} listings for {machines} machines, no other call and no write"));
}

/// Waits until CAPW has written nothing for a while.
pub async fn wait_quiet(cp: &ControlPlane) {
    wait_quiet_of(cp, by_capw).await;
}

/// Waits until those whom `by` knows have written nothing for a while.
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
