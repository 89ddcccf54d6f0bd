//! Story *idle*: nothing changes, so nothing is done. Fifty Ready machines cost no write at the API server, and the hypervisor
//! is asked no more often than for five.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::workers::{Workers, by_capw};
use crate::world::{self, AuditEvent, AuditMark, Capw, ControlPlane, Options, step, wait_for};

/// How long nothing may be written.
const WINDOW: Duration = Duration::from_secs(120);
/// How long the calls for the few machines are counted: a part of the window.
const SHORT_WINDOWS: u32 = 3;
const FEW: usize = 5;
const MANY: usize = 50;
/// After so long without a write, the last change is taken to be worked off: hypervisors are listed more often.
const QUIET: Duration = Duration::from_secs(25);

#[test]
fn idle() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("idle")).await;
        // Without leader election, as `Capw` starts it. With it the Lease is written every few seconds, whatever else happens,
        // and that is the one write that an idle CAPW makes.
        let capw = Capw::start(&cp, &[]).await;
        let mut workers = Workers { replicas: FEW, ..Workers::new("idle", &cp).await };
        workers.apply(&cp).await;
        workers.wait_settled(&cp, &cp, Duration::from_secs(120)).await;
        wait_quiet(&cp).await;
        let few = calls_in(&capw, WINDOW / SHORT_WINDOWS).await;
        step(format!("{few} hypervisor calls in {} s with {FEW} machines", (WINDOW / SHORT_WINDOWS).as_secs()));

        workers.replicas = MANY;
        crate::workers::apply(&cp, &[workers.machine_deployment()]).await;
        workers.wait_settled(&cp, &cp, Duration::from_secs(600)).await;
        wait_quiet(&cp).await;
        let mark = cp.audit_mark();
        let many = calls_in(&capw, WINDOW).await;
        let asked = of_capw(cp.audit_since(mark));
        let writes: Vec<&AuditEvent> = asked.iter().filter(|event| event.is_write()).collect();
        step(format!("{many} hypervisor calls and {} requests in {} s with {MANY} machines", asked.len(), WINDOW.as_secs()));
        assert!(writes.is_empty(), "{} writes by CAPW while nothing changed: {writes:#?}", writes.len());
        // A VM that is gone would go unnoticed if the hypervisor were never asked.
        assert!(few > 0.0, "the hypervisor was not asked at all; is capw_hypervisor_calls_total still the metric's name?");
        // One more, because windows and looks do not begin together.
        let most = f64::from(SHORT_WINDOWS) * (few + 1.0);
        assert!(many <= most, "{many} hypervisor calls with {MANY} machines, at most {most} expected from what {FEW} cost");
        workers.settled(&cp, &cp).await.expect("all machines are still Ready");
    });
}

/// Calls to hypervisors during the next `window`.
async fn calls_in(capw: &Capw, window: Duration) -> f64 {
    let before = capw.metric("capw_hypervisor_calls_total", &[]);
    tokio::time::sleep(window).await;
    capw.metric("capw_hypervisor_calls_total", &[]) - before
}

fn of_capw(mut events: Vec<AuditEvent>) -> Vec<AuditEvent> {
    events.retain(by_capw);
    events
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
