//! Structured logs on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
}

/// Starts logging. `filter` is a level or a list like `info,capw=debug,kube=warn`. The error explains what is wrong with the filter.
pub fn start(format: Format, filter: &str) -> Result<(), String> {
    let filter = directives(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
        Format::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).finish().try_init(),
    };
    started.map_err(|e| format!("logging: {e}"))
}

/// Returns the user's filter, extended by what is never logged.
fn directives(filter: &str) -> Result<EnvFilter, String> {
    let mut filter = EnvFilter::try_new(filter).map_err(|e| format!("log level {filter:?}: {e}; expected e.g. info or info,capw=debug"))?;
    // kube warns of each client without verification. A simulated guest that has only a token reads the discovery document before it can know the
    // server's certificate, as kubeadm does. Our clients for clusters cannot be created without verification.
    // kube also logs each failed call as an error, however often it is repeated: we report it once, in a condition.
    // kube logs an unreadable answer as a whole, and that may be a Secret.
    for quiet in ["kube_client::client::tls=error", "kube_client::client::builder=off", "kube_client::client=off"] {
        filter = filter.add_directive(quiet.parse().map_err(|e| format!("logging: {e}"))?);
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::Write;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bodies_of_answers_that_kube_cannot_read_are_not_logged() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_env_filter(directives("debug").unwrap()).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "kube_client::client", "the body of a Secret");
            tracing::error!(target: "kube_client::client::builder", "failed with status 500");
            tracing::error!(target: "kube_client::client::tls", "the CA cannot be read");
            tracing::debug!(target: "capw::kube_api", "one of ours");
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert!(!text.contains("the body of a Secret") && !text.contains("failed with status"), "{text}");
        assert!(text.contains("the CA cannot be read") && text.contains("one of ours"), "{text}");
    }
}
