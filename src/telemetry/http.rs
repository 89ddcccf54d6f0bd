//! `/livez` and `/readyz`; `/metrics` is in [`super::diagnostics`]. Liveness does not depend on other systems: a restart fixes no outage.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::passes::Passes;
use super::readiness::Readiness;

/// Opens the address of a server. The error names the address.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}")))
}

fn probes(readiness: Readiness, passes: Passes) -> Router {
    let live = move || async move {
        match passes.hung() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(what) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{what}\n")),
        }
    };
    let ready = move || async move {
        let missing = readiness.missing();
        if missing.is_empty() {
            (StatusCode::OK, "ok\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, missing.iter().map(|m| format!("missing: {m}\n")).collect())
        }
    };
    Router::new().route("/livez", get(live.clone())).route("/healthz", get(live)).route("/readyz", get(ready))
}

/// Serves the probes until `stop`.
pub async fn serve_probes(listener: TcpListener, readiness: Readiness, passes: Passes, stop: CancellationToken) -> io::Result<()> {
    axum::serve(listener, probes(readiness, passes)).with_graceful_shutdown(stop.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    async fn ask(router: Router, path: &str) -> (u16, String) {
        let answer = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        (code, String::from_utf8(to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing_and_liveness_does_not_ask() {
        let readiness = Readiness::default();
        readiness.expect("watch of machines");
        readiness.expect("watch of clusters");
        readiness.met("watch of clusters");
        assert_eq!(ask(probes(readiness.clone(), Passes::default()), "/readyz").await, (503, "missing: watch of machines\n".into()));
        assert_eq!(ask(probes(readiness.clone(), Passes::default()), "/livez").await.0, 200);
        readiness.met("watch of machines");
        // A watch that restarts repeats its expectation: it stays met.
        readiness.expect("watch of machines");
        assert_eq!(ask(probes(readiness, Passes::default()), "/readyz").await, (200, "ok\n".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_ends_with_a_pass_that_hangs() {
        let passes = Passes::default();
        let pass = passes.begin("windowsmachine");
        tokio::time::advance(std::time::Duration::from_secs(3600)).await;
        let (code, text) = ask(probes(Readiness::default(), passes.clone()), "/livez").await;
        assert_eq!((code, text.as_str()), (500, "a pass of windowsmachine has run for 60 minutes\n"));
        drop(pass);
        assert_eq!(ask(probes(Readiness::default(), passes), "/livez").await.0, 200);
    }
}
