//! The settings of all watches.

use kube::runtime::watcher;

/// The seconds after which the API server ends a watch, which then continues where it was. A watch without any data for a few seconds longer
/// counts as silent. Without this limit, events that a proxy or a lost connection holds back would be noticed after five minutes.
const SECONDS: u32 = 45;

/// Returns the settings that all watches begin with.
pub fn settings() -> watcher::Config {
    watcher::Config::default().timeout(SECONDS).page_size(super::cluster::PAGE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures::StreamExt;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use k8s_openapi::api::core::v1::Node;
    use kube::api::Api;
    use kube::client::Body;
    use kube::{Client, runtime::WatchStreamExt};
    use serde_json::json;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// The watches of this server never send anything, and each request for one is recorded.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_goes_silent_is_asked_for_again_within_a_minute() {
        let (told, mut watches) = mpsc::unbounded_channel();
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_watch = query.contains("watch=true");
            if is_watch {
                let _ = told.send(query);
            }
            let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
            let body = if is_watch { Silent.boxed_unsync() } else { Full::new(Bytes::from(list.to_string())).boxed_unsync() };
            async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
        });
        let api: Api<Node> = Api::all(Client::new(server, "default"));
        let nodes = tokio::spawn(watcher(api, settings()).default_backoff().for_each(|_| async {}));
        let first = watches.recv().await.unwrap();
        assert!(first.contains("timeoutSeconds=45"), "{first}");
        let since = Instant::now();
        timeout(Duration::from_secs(600), watches.recv()).await.expect("it is asked again").unwrap();
        assert!(since.elapsed() <= Duration::from_secs(60), "after {:?}", since.elapsed());
        nodes.abort();
    }

    struct Silent;

    impl http_body::Body for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Pending
        }
    }
}
