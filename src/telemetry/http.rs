//! `/livez` and `/readyz`; `/metrics` is in [`super::diagnostics`]. Liveness never asks for anything: a restart cures no outage.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Readiness;

/// Opens the address of a server. The error names the address.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}")))
}

fn probes(readiness: Readiness) -> Router {
    let ready = move || async move {
        let missing = readiness.missing();
        if missing.is_empty() {
            (StatusCode::OK, "ok\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, missing.iter().map(|m| format!("missing: {m}\n")).collect())
        }
    };
    Router::new().route("/livez", get(|| async { "ok\n" })).route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}

/// Serves the probes until `stop`.
pub async fn serve_probes(listener: TcpListener, readiness: Readiness, stop: CancellationToken) -> io::Result<()> {
    axum::serve(listener, probes(readiness)).with_graceful_shutdown(stop.cancelled_owned()).await
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
        assert_eq!(ask(probes(readiness.clone()), "/readyz").await, (503, "missing: watch of machines\n".into()));
        assert_eq!(ask(probes(readiness.clone()), "/livez").await.0, 200);
        readiness.met("watch of machines");
        // Said again by a watch that starts anew: it stays met.
        readiness.expect("watch of machines");
        assert_eq!(ask(probes(readiness), "/readyz").await, (200, "ok\n".into()));
    }
}
