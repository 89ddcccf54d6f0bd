//! The clients of API servers, with their limits of requests and of answers.

use std::sync::Arc;

use http::header::{HeaderValue, USER_AGENT};
use kube::client::ClientBuilder;
use kube::{Client, Config};

use crate::kube_api::limits::Limits;
use crate::kube_api::review::Reviews;
use crate::kube_api::workloads::Connect;
use crate::telemetry::Metrics;
use crate::telemetry::build::BUILD;
use crate::telemetry::requests::{Counted, Rate};

/// The requests per second that check whether a client may read the metrics, and the burst.
const REVIEWS: (u32, u32) = (5, 10);

/// The clients of the management cluster, each with connections and a rate of its own.
pub struct Clients {
    /// A renewal of the lease must not wait behind other requests, nor use their connections.
    pub lease: Client,
    /// Anyone who reaches the port of the metrics causes reviews.
    pub reviews: Reviews,
    pub controllers: Client,
}

impl Clients {
    /// Creates the clients. `qps` and `burst` are the rate of the controllers.
    pub fn new<E>(connect: impl Fn(Rate) -> Result<Client, E>, qps: u32, burst: u32) -> Result<Self, E> {
        Ok(Self {
            lease: connect(Rate::new(0, 1))?,
            reviews: Reviews::new(connect(Rate::new(REVIEWS.0, REVIEWS.1))?),
            controllers: connect(Rate::new(qps, burst))?,
        })
    }
}

/// Creates a client of the management cluster.
pub fn to_management(config: &Config, metrics: &Metrics, rate: Rate) -> kube::Result<Client> {
    connect(config.clone(), metrics, rate, "management", &Limits::of_management())
}

/// Returns a function that creates clients of workload clusters. All their answers share a budget.
pub fn to_workloads(metrics: Metrics) -> Connect {
    let budget = Limits::of_workloads();
    Arc::new(move |config| connect(config, &metrics, Rate::new(0, 1), "workload", &Limits::of_workload(&budget)))
}

/// Creates a client that is counted, limited in its rate, and does not retry requests on its own.
fn connect(mut config: Config, metrics: &Metrics, rate: Rate, cluster: &'static str, limits: &Limits) -> kube::Result<Client> {
    config.default_retry = false;
    // Proxies are not built in; a variable for other programs must not stop us.
    config.proxy_url = None;
    if let Ok(agent) = HeaderValue::try_from(BUILD.user_agent()) {
        config.headers.push((USER_AGENT, agent));
    }
    Ok(ClientBuilder::try_from(config)?.with_layer(limits).with_layer(&Counted { metrics: metrics.clone(), rate, cluster }).build())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::Router;
    use axum::http::Uri;
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use tokio::net::TcpListener;
    use tokio::time::Instant;
    use tower::Layer;

    use super::*;
    use crate::causes::chain;
    use crate::kube_api::review::Access;

    /// Returns a client with that rate. The server answers at once, and knows no token.
    fn answered(rate: Rate) -> Result<Client, Infallible> {
        let answer = || Response::new(Body::from(br#"{"spec": {}, "status": {"authenticated": false}}"#.to_vec()));
        let server = tower::service_fn(move |_: Request<Body>| async move { Ok::<_, Infallible>(answer()) });
        let counted = Counted { metrics: Metrics::default(), rate, cluster: "management" };
        Ok(Client::new(counted.layer(server), "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_reviews_takes_no_turn_of_the_controllers_or_of_the_lease() {
        let Ok(Clients { lease, reviews, controllers }) = Clients::new(answered, 1, 1);
        let review = async |number: u32| reviews.may_get(&format!("junk-{number}").into(), "/metrics").await;
        let request = async |client: &Client| client.request_text(Request::get("/version").body(Vec::new()).unwrap()).await.unwrap();
        let (start, at_once) = (Instant::now(), Duration::from_millis(100));
        for number in 0..REVIEWS.1 {
            assert_eq!(review(number).await, Ok(Access::Unknown));
        }
        request(&controllers).await;
        assert!(start.elapsed() < at_once, "the reviews have used up their burst, and only theirs: {:?}", start.elapsed());
        review(REVIEWS.1).await.unwrap();
        assert!(start.elapsed() > at_once, "the next review waits for its turn");
        let start = Instant::now();
        for _ in 0..20 {
            request(&lease).await;
        }
        assert!(start.elapsed() < at_once, "a renewal never waits: {:?}", start.elapsed());
        request(&controllers).await;
        assert!(start.elapsed() > at_once, "the controllers keep their own rate");
    }

    /// The API server of each cluster answers with a list of 17 MiB, or with an object of few bytes that would take 21 MiB of memory.
    #[tokio::test]
    async fn a_client_of_a_workload_cluster_limits_its_answers_and_shares_the_budget_of_all() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        config.root_cert = Some(Vec::new());
        let answer = |uri: Uri| async move { if uri.path() == "/api/v1/pods" { " ".repeat(17 << 20) } else { "{},".repeat(70_000) } };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        let connect = to_workloads(Metrics::default());
        let clients = [(); 3].map(|()| connect(config.clone()).unwrap());
        // The body keeps its part of the budgets.
        let read = async |client: &Client, uri: &str| {
            let mut body = client.send(Request::get(uri).body(Body::empty()).unwrap()).await.map_err(|e| chain(&e))?.into_body();
            while let Some(frame) = body.frame().await {
                frame.map_err(|e| chain(&e))?;
            }
            Ok::<_, String>(body)
        };

        let error = read(&clients[0], "/api/v1/pods?limit=250").await.err().unwrap();
        assert!(error.contains("the answer is larger than 16 MiB"), "{error}");
        let [one, two] = [read(&clients[0], "/api/v1/nodes/a").await.unwrap(), read(&clients[1], "/api/v1/nodes/a").await.unwrap()];
        let error = read(&clients[2], "/api/v1/nodes/a").await.err().unwrap();
        assert!(error.contains("answers of all workload clusters that are read at the same time"), "{error}");
        drop((one, two));
        read(&clients[2], "/api/v1/nodes/a").await.unwrap();
    }
}
