//! A scripted API server for wiring tests: it expects exactly these requests in this order.
//!
//! Dropping the script with a request left over, or after a wrong one, fails the test.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// One expected request, `METHOD path` (without query; a `*` at its end is any rest), and the answer to it.
pub(crate) struct Exchange {
    request: String,
    code: u16,
    answer: Value,
}

impl Exchange {
    fn expects(&self, request: &str) -> bool {
        self.request.strip_suffix('*').map_or(self.request == request, |beginning| request.starts_with(beginning))
    }
}

/// Expects `METHOD path` and answers with an object.
pub(crate) fn step(request: &str, answer: Value) -> Exchange {
    Exchange { request: request.into(), code: 200, answer }
}

/// Expects `METHOD path` and answers with an error status.
pub(crate) fn refuse(request: &str, code: u16, reason: &str) -> Exchange {
    let answer =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": format!("said {reason}"), "reason": reason, "code": code });
    Exchange { request: request.into(), code, answer }
}

/// Expects `METHOD path` and answers with an error status that has this message and these details.
pub(crate) fn refuse_with(request: &str, code: u16, message: &str, details: Value) -> Exchange {
    let answer =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "", "code": code, "details": details });
    Exchange { request: request.into(), code, answer }
}

/// Expects `METHOD path` and never answers.
pub(crate) fn hang(request: &str) -> Exchange {
    Exchange { request: request.into(), code: 0, answer: Value::Null }
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub query: String,
    pub body: Value,
}

#[derive(Default)]
struct State {
    steps: VecDeque<Exchange>,
    seen: Vec<Recorded>,
    wrong: Vec<String>,
}

pub(crate) struct Script(Arc<Mutex<State>>);

impl Script {
    pub(crate) fn new(steps: Vec<Exchange>) -> (Client, Self) {
        let state = Arc::new(Mutex::new(State { steps: steps.into(), ..State::default() }));
        let shared = state.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let state = shared.clone();
            async move { Ok::<_, std::convert::Infallible>(answer(&state, request).await) }
        });
        (Client::new(service, "default"), Self(state))
    }

    /// Returns the requests so far.
    pub(crate) fn seen(&self) -> Vec<Recorded> {
        self.0.lock().seen.clone()
    }
}

async fn answer(state: &Mutex<State>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect_bytes().await.unwrap();
    let got = format!("{} {}", parts.method, parts.uri.path());
    let (code, answer) = next(state, &got, parts.uri.query(), &bytes);
    if code == 0 {
        std::future::pending::<()>().await;
    }
    Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer).unwrap())).unwrap()
}

fn next(state: &Mutex<State>, got: &str, query: Option<&str>, body: &[u8]) -> (u16, Value) {
    let mut state = state.lock();
    state.seen.push(Recorded { query: query.unwrap_or_default().into(), body: serde_json::from_slice(body).unwrap_or(Value::Null) });
    match state.steps.pop_front() {
        Some(step) if step.expects(got) => (step.code, step.answer),
        other => {
            state.wrong.push(format!("expected {:?}, got {got}", other.map(|s| s.request)));
            (500, json!({ "message": "not in the script", "code": 500 }))
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let state = self.0.lock();
            assert!(state.wrong.is_empty(), "{:?}", state.wrong);
            let left: Vec<_> = state.steps.iter().map(|s| s.request.as_str()).collect();
            assert!(left.is_empty(), "requests that never came: {left:?}");
        }
    }
}
