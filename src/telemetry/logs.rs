//! Structured logs on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
}

/// Starts logging. `filter` is a level or a list like `info,capw=debug,kube=warn`. The error names what is wrong with it.
pub fn start(format: Format, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("log level {filter:?}: {e}; expected e.g. info or info,capw=debug"))?;
    // A simulated guest that has only a token reads the discovery document before it can know the server's certificate, as kubeadm
    // does; kube warns of each such client. Ours for clusters refuse to be made without verification.
    // And each call that fails is logged by kube as an error of its own, however often it is repeated: we say it once, in a condition.
    let mut filter = filter;
    for quiet in ["kube_client::client::tls=error", "kube_client::client::builder=off"] {
        filter = filter.add_directive(quiet.parse().map_err(|e| format!("logging: {e}"))?);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
        Format::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).finish().try_init(),
    };
    started.map_err(|e| format!("logging: {e}"))
}
