//! The scripts that carry out a plan on Windows: static text, the same for every machine. They know nothing of Kubernetes.

/// Name and text of each script in the payload's `runner/`.
pub(super) const SCRIPTS: [(&str, &str); 1] = [("run.ps1", include_str!("run.ps1"))];
