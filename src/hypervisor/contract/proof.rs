//! The user's proof of an endpoint also passes at the endpoints of the tests.

use std::sync::OnceLock;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::endpoint::TestEndpoint;
use crate::hypervisor::prove::{Bench, CASES, Ledger, Verdict, prove};

/// Asserts that all cases of the proof pass and leave nothing.
pub async fn is_proven(endpoint: &dyn TestEndpoint) {
    let (run, ledger, stop) = ("k3x9d0aa".parse().unwrap(), Ledger::default(), CancellationToken::new());
    let connect = || Ok(endpoint.driver());
    let bench = Bench {
        run: &run,
        connect: &connect,
        spec: endpoint.spec(),
        limit: Duration::from_secs(3600),
        ledger: &ledger,
        stop: &stop,
        progress: &|line| eprintln!("{line}"),
        endpoint: OnceLock::new(),
    };
    let outcomes = prove(&bench).await;
    for outcome in &outcomes {
        assert!(outcome.verdict == Verdict::Passed && !outcome.is_left, "{}: {}", outcome.case.name, outcome.words);
    }
    assert_eq!((outcomes.len(), endpoint.count().await), (CASES.len(), 0));
    assert!(bench.endpoint.get().is_some());
}
