//! What users run on an endpoint of theirs passes at those of the tests, too.

use std::sync::OnceLock;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::TestEndpoint;
use crate::hypervisor::prove::{Bench, CASES, Ledger, Verdict, prove};

/// All cases of the proof pass, and nothing is left.
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
